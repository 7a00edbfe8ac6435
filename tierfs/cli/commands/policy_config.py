"""Define tierfs policy, for policies of directories and segments, and tierfs config, for settings and the place."""

from __future__ import annotations

import difflib
import os
from collections.abc import Sequence
from pathlib import Path

import click

from tierfs import contradictions, settings
from tierfs import policy as policy_text
from tierfs.cli import output
from tierfs.cli.group import LazyGroup, command, path_argument
from tierfs.cli.session import Session
from tierfs.errors import DataLoss, InvalidRequest, NotFound
from tierfs.metadata import directories, policies
from tierfs.names import join, printable, split
from tierfs.policy import KEYS
from tierfs.segments import create
from tierfs.store_paths import StorePaths

_ALIASES = {"get": "show", "list": "show", "rm": "unset"}
_COMMANDS = {name: f"tierfs.cli.commands.policy_config:{name}_" for name in ("show", "set", "unset")}


@click.group("policy", cls=LazyGroup, lazy=_COMMANDS, aliases=_ALIASES, store_variable=None)
def policy() -> None:
    """Show and change policies.

    Policies are settings of directories and segments; the value set nearest to a segment holds for it.
    """


@command("show")
@path_argument("path", optional=True, metavar="[PATH]")
def show_(session: Session, path: str) -> None:
    """Show the policies in force for PATH and the origin of each value; without PATH, of the whole store."""
    with session.open_store(looks=True) as store:
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
@path_argument("path")
@click.argument("pairs", nargs=-1, required=True, metavar="KEY=VALUE...")
def set_(session: Session, path: str, pairs: tuple[str, ...]) -> None:
    """Set policies on a directory or a segment.

    They hold for everything below PATH that does not set another value itself. A missing PATH is created as a
    directory. If one policy is invalid, none is set and nothing is created.
    """
    wanted: dict[str, str] = {}
    for pair in _joined(pairs):
        key, equals, text = pair.partition("=")
        if not equals:
            raise InvalidRequest(f"{pair!r} is not KEY=VALUE", remedy=f"keys are: {', '.join(KEYS)}")
        value = policy_text.parse(key, text)
        if wanted.setdefault(key, value) != value:
            raise InvalidRequest(f"policy {key} is given two values")
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
    session.done({"path": canonical, "set": values, "made": made}, f"{output.path(canonical)}: {text}")
    for rule, told in contradictions.useless(held):
        if not wanted.keys().isdisjoint(rule.keys):
            session.warn(told)


@command("unset")
@path_argument("path")
@click.argument("keys", nargs=-1, required=True, metavar="KEY...")
def unset_(session: Session, path: str, keys: tuple[str, ...]) -> None:
    """Remove policies from PATH, which inherits them again. Removing a policy that is not set succeeds."""
    for key in keys:
        policy_text.check_key(key)
    with session.open_store() as store:
        name = store.segment_of_path(path)
        with store.metadata.write() as txn:
            before = policies.change(txn, name, put_settings={}, unset=keys)
    keys = tuple(dict.fromkeys(keys))
    gone, missing = [key for key in keys if key in before], [key for key in keys if key not in before]
    canonical = join(split(name))
    lines = [f"{key} is no longer set" for key in gone] + [f"{key} was not set" for key in missing]
    data = {"path": canonical, "unset": gone, "not_set": missing}
    session.done(data, f"{output.path(canonical)}: {', '.join(lines)}")


def _joined(pairs: Sequence[str]) -> Sequence[str]:
    """Take `NAME VALUE` for `NAME=VALUE`, where it is all that was typed."""
    return ["=".join(pairs)] if len(pairs) == 2 and "=" not in pairs[0] else pairs


_CONFIG_COMMANDS = {name: f"tierfs.cli.commands.policy_config:config_{name}" for name in ("show", "set", "unset")}
# Prefix of the parts of the cold tier's place, which the store's records hold and not its file of settings.
_PLACE = "cold."


@click.group(
    "config", cls=LazyGroup, lazy=_CONFIG_COMMANDS, aliases=_ALIASES, store_variable=None, invoke_without_command=True
)
@click.pass_context
def config(ctx: click.Context) -> None:
    """Show and change the store's settings, and the place of its cold tier; alone it shows them."""
    if ctx.invoked_subcommand is None:
        ctx.invoke(config_show)


@command("show")
@click.argument("names", nargs=-1, metavar="[NAME]...")
def config_show(session: Session, names: tuple[str, ...] = ()) -> None:
    """Show settings and the origin of each, and the place of the cold tier; without NAME, all of them.

    The origin is default, file (store.toml) or environment; of the place it is the store.
    """
    from tierfs.setup import place

    file = _settings_file(session)
    loaded = settings.load_with_origins(file, os.environ)
    data = {name: {"value": value, "origin": loaded.origins[name].value} for name, value in settings.values(loaded)}
    held = None
    try:
        with session.open_store() as store:
            held = store.cold_location
    except (DataLoss, NotFound) as exc:
        session.warn(f"the address of the cold tier is not known: {exc}")
    data |= {name: {"value": value, "origin": "store"} for name, value in place.parts(held).items()}
    lines = [*place.lines(held), *settings.lines(loaded).splitlines()]
    if names:
        known = _named(names, dict.fromkeys(names, ""))
        data = {name: data[name] for name in known}
        lines = [line for line in lines if line.partition(" = ")[0] in known]
    session.result(data, "\n".join(lines))
    for text in contradictions.useless_settings(loaded.settings):
        session.warn(text)


@command("set")
@click.argument("pairs", nargs=-1, required=True, metavar="NAME=VALUE...")
def config_set(session: Session, pairs: tuple[str, ...]) -> None:
    """Set settings in store.toml, or the address of the cold tier. If one is invalid, none is set.

    cold.url, cold.endpoint_url, cold.region and cold.profile are its address: the same objects at another place, which
    is proved to be the store's before it is recorded. Mounts and daemons use it at once; they read other settings at
    SIGHUP.
    """
    from tierfs.setup.create import replace_settings

    file = _settings_file(session)
    typed = _joined(pairs)
    wanted: dict[str, str] = {}
    for pair in typed:
        name, equals, value = pair.partition("=")
        if not equals:
            raise InvalidRequest(f"{printable(pair)} is not NAME=VALUE", remedy="see the names: tierfs config show")
        wanted[name.strip()] = settings.unquoted(value.strip())
    wanted = _named(typed, wanted)
    of_place = _place_names()
    place = {name.removeprefix(_PLACE): value for name, value in wanted.items() if name in of_place}
    changed = {name: value for name, value in wanted.items() if name not in of_place}
    text = settings.text_in(file)
    for name, value in changed.items():
        text = settings.with_value(text, name, value)
    checked = settings.check(text, file)
    if place:
        from tierfs.setup import place as cold_place

        with session.open_store() as store:
            moved = cold_place.change(store.metadata, store.paths, store.settings.cold, place)
        before, after = moved.before, moved.after
        data = {"before": before and before.url, **output.fields(after, "cold_url=url endpoint_url")}
        session.done(data, f"cold tier: {cold_place.told(after)}")
        if before is None:
            session.note("bytes that policies offload go there from now on; all of them at once: tierfs offload")
        elif after.url != before.url:
            session.note(f"{printable(before.url)} is left as it is; see whether all was copied: tierfs fsck")
    if changed:
        replace_settings(StorePaths(file.parent), text)
        shown = dict(line.split(" = ", 1) for line in settings.lines(checked).splitlines())
        told = [f"{name} = {shown[name].rsplit('  (', 1)[0]}" for name in changed]
        values = dict(settings.values(checked))
        session.done({"set": {name: values[name] for name in changed}}, "\n".join(told))
        session.note("mounts and daemons that run read store.toml at SIGHUP")
        origins = settings.load_with_origins(file, os.environ).origins
        for name in changed:
            if origins[name] is settings.Origin.ENVIRONMENT:
                session.warn(f"{name} is set by the environment, which is above store.toml")


@command("unset")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
def config_unset(session: Session, names: tuple[str, ...]) -> None:
    """Remove settings from store.toml: their defaults hold again. Removing one that is not set succeeds."""
    from tierfs.setup.create import replace_settings

    file = _settings_file(session)
    text = settings.text_in(file)
    for name in _named(names, dict.fromkeys(names, "")):
        if name in _place_names():
            raise InvalidRequest(f"{name} is the cold tier's address", remedy=f"set another: tierfs config set {name}=")
        text = settings.without(text, name, settings.default_of(name))
    settings.check(text, file)
    replace_settings(StorePaths(file.parent), text)
    session.done({"unset": [*names]}, "\n".join(f"{name} = {settings.default_of(name)}" for name in names))


def _named(given: Sequence[str], wanted: dict[str, str]) -> dict[str, str]:
    """Return the settings by name. Raises InvalidRequest for an unknown name, or one that is given twice."""
    known = settings.names() | _place_names()
    for name in wanted:
        if name not in known:
            close = difflib.get_close_matches(name, sorted(known), 1)
            remedy = f"did you mean {close[0]}?" if close else "see the names: tierfs config show"
            raise InvalidRequest(f"unknown setting {printable(name)!r}", remedy=remedy)
    if len(wanted) != len(given):
        raise InvalidRequest("a setting is given twice")
    return wanted


def _place_names() -> frozenset[str]:
    from tierfs.setup import place

    return frozenset(_PLACE + key for key in place.KEYS)


def _settings_file(session: Session) -> Path:
    path = session.require_store_path()
    file = StorePaths(path.absolute()).settings
    if not file.is_file():
        raise NotFound(f"{path} is not a tierfs store", remedy=f"create one with: tierfs --store {path} init")
    return file
