"""Define tierfs policy, for policies of directories and segments, and tierfs config, which shows the settings."""

from __future__ import annotations

import os
from collections.abc import Sequence

import click

from tierfs import contradictions, settings
from tierfs import policy as policy_text
from tierfs.cli import output
from tierfs.cli.group import LazyGroup, command
from tierfs.cli.session import Session
from tierfs.errors import InvalidRequest, NotFound
from tierfs.metadata import directories, policies
from tierfs.names import join, printable, split
from tierfs.policy import KEYS
from tierfs.segments import create
from tierfs.store_paths import StorePaths

_COMMANDS = {name: f"tierfs.cli.commands.policy_config:{name}_" for name in ("show", "set", "unset")}


@click.group("policy", cls=LazyGroup, lazy=_COMMANDS, store_variable=None)
def policy() -> None:
    """Show and change policies.

    Policies are settings of directories and segments; the value set nearest to a segment holds for it.
    """


@command("show")
@click.argument("path")
def show_(session: Session, path: str) -> None:
    """Show the policies in force for PATH and the origin of each value."""
    with session.open_store() as store:
        name = store.segment_of_path(path)
        with store.metadata.read() as txn:
            held = policies.at(txn, name)
    data = {
        key: {"value": found.value, "origin": found.origin.set_by.value, "set_on": found.origin.name}
        for key, found in held.all()
    }
    rows = [(key, policy_text.format(key, found.value), str(found.origin)) for key, found in held.all()]
    session.result({"path": join(split(name)), "policy": data}, output.table(rows, *"<<<"))
    for _, text in contradictions.useless(held):
        session.warn(text)


@command("set")
@click.argument("path")
@click.argument("pairs", nargs=-1, required=True, metavar="KEY=VALUE...")
def set_(session: Session, path: str, pairs: tuple[str, ...]) -> None:
    """Set policies on a directory or a segment.

    They hold for everything below PATH that does not set another value itself. A missing PATH is created as a
    directory. If one policy is invalid, none is set and nothing is created.
    """
    wanted = _parsed(pairs)
    with session.open_store() as store:
        name = store.segment_of_path(path)
        with store.metadata.write() as txn:
            made = directories.find(txn, name) is None
            if made:
                create.make_directory(txn, name)
            policies.change(txn, name, put_settings=wanted)
            held = policies.at(txn, name)
    values = {key: policy_text.from_stored(key, text) for key, text in wanted.items()}
    text = ", ".join(f"{key} = {policy_text.format(key, value)}" for key, value in values.items())
    canonical = join(split(name))
    if made:
        session.note(f"created the directory {canonical}")
    session.done({"path": canonical, "set": values, "made": made}, f"{_shown(canonical)}: {text}")
    for rule, told in contradictions.useless(held):
        if not wanted.keys().isdisjoint(rule.keys):
            session.warn(told)


@command("unset")
@click.argument("path")
@click.argument("keys", nargs=-1, required=True, metavar="KEY...")
def unset_(session: Session, path: str, keys: tuple[str, ...]) -> None:
    """Remove policies from PATH, which inherits them again. Removing a policy that is not set succeeds."""
    for key in keys:
        policy_text.check_key(key)
    with session.open_store() as store:
        name = store.segment_of_path(path)
        with store.metadata.write() as txn:
            before = policies.change(txn, name, put_settings={}, unset=keys)
    gone = [key for key in dict.fromkeys(keys) if key in before]
    missing = [key for key in dict.fromkeys(keys) if key not in before]
    canonical = join(split(name))
    data = {"path": canonical, "unset": gone, "not_set": missing}
    lines = [f"{key} is no longer set" for key in gone] + [f"{key} was not set" for key in missing]
    session.done(data, f"{_shown(canonical)}: {', '.join(lines)}")


def _parsed(pairs: Sequence[str]) -> dict[str, str]:
    wanted: dict[str, str] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals:
            raise InvalidRequest(f"{pair!r} is not KEY=VALUE", remedy=f"keys are: {', '.join(KEYS)}")
        value = policy_text.parse(key, text)
        if wanted.setdefault(key, value) != value:
            raise InvalidRequest(f"policy {key} is given two values")
    return wanted


def _shown(name: str) -> str:
    return printable(name) or "/"


@click.group("config", cls=LazyGroup, lazy={"show": "tierfs.cli.commands.policy_config:show"}, store_variable=None)
def config() -> None:
    """Show the store's settings."""


@command("show")
def show(session: Session) -> None:
    """Show every setting and its origin.

    The origin is default, file (store.toml) or environment.
    """
    path = session.require_store_path()
    file = StorePaths(path.absolute()).settings
    if not file.is_file():
        raise NotFound(f"{path} is not a tierfs store", remedy=f"create one with: tierfs --store {path} init")
    loaded = settings.load_with_origins(file, os.environ)
    data = {name: {"value": value, "origin": loaded.origins[name].value} for name, value in settings.values(loaded)}
    session.result(data, settings.lines(loaded))
    for text in contradictions.useless_settings(loaded.settings):
        session.warn(text)
