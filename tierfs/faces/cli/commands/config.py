"""Define tierfs config: the store's settings, the place of its cold tier, and the policies of paths."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, NoReturn

import click
from click.shell_completion import CompletionItem

from tierfs.app import verbs
from tierfs.app.setup import theirs
from tierfs.base.options import contradictions, settings, store_toml
from tierfs.base.options import policy as policy_text
from tierfs.base.options.policy import KEYS
from tierfs.base.options.precedence import BELOW_POLICIES
from tierfs.base.system.store_paths import StorePaths
from tierfs.base.words.errors import DataLoss, InvalidRequest, NotFound
from tierfs.base.words.names import as_word, join, printable, split
from tierfs.engine.metadata import archive_place, policies
from tierfs.faces.cli import output
from tierfs.faces.cli.group import command
from tierfs.faces.cli.paths import StoreName
from tierfs.faces.cli.session import Session

if TYPE_CHECKING:
    from tierfs.app.store import Store
    from tierfs.base.options.config import ColdSettings, StandbySettings
    from tierfs.engine.metadata.records import LocationRecord

# Prefix of settings of which a cold tier may ignore some.
_COLD = "cold."

_TAKEOVER = "standby.takeover_after_s"

# First words of `git config` and its like, which are no paths here.
_VERBS = ("get", "list", "set", "show", "unset")


class Asked(NamedTuple):
    """What was asked for: of a path its policies, else the settings."""

    path: str | None
    names: tuple[str, ...]
    """To be shown; with nothing to change, and without any, all of them."""
    changes: Mapping[str, str]
    """The new value by name; empty to remove it."""


class _Word(StoreName):
    """A path, a name, or NAME=VALUE."""

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Remember what may be a path, for the store that it may be in."""
        text = str(value)
        return text if "=" in text or text in settings.names() else super().convert(value, param, ctx)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Complete the names of settings and policies, and the names in the store."""
        known = [name for name in sorted((*KEYS, *_setting_names())) if incomplete and name.startswith(incomplete)]
        return [CompletionItem(f"{name}=") for name in known] or super().shell_complete(ctx, param, incomplete)


@command("config")
@click.argument("words", nargs=-1, metavar="[PATH] [NAME[=VALUE]]...", type=_Word())
def config(session: Session, words: tuple[str, ...]) -> None:
    """Show or change the settings of the store; with PATH, the policies of a directory or segment.

    A setting has a dot in its name. The others are policies: a value applies to everything below PATH that does not set
    another value itself. A missing PATH is created as a directory. If any value is invalid, nothing is changed.

    cold.url, cold.endpoint_url, cold.region and cold.profile are the address of the cold tier. Set them if the same
    objects have another address; the command first verifies that they belong to the store. archive.place is another
    directory or bucket, the archive place of the store; archive.endpoint_url, archive.region and archive.profile are
    those of its server. archive.place= unsets it, once nothing is there any more. Mounts and daemons use new addresses
    at once; they reload other settings at SIGHUP.
    """
    asked = _parsed(session, words)
    if asked.path is None:
        (_change_settings if asked.changes else _show_settings)(session, asked)
    else:
        (_change_policies if asked.changes else _show_policies)(session, asked)


def _parsed(session: Session, words: Sequence[str]) -> Asked:
    """Return what the words ask for. Raises InvalidRequest for words that do not go together."""
    if words and words[0] in _VERBS:
        _refuse_verb(session, words)
    path: str | None = None
    names: list[str] = []
    changes: dict[str, str] = {}
    for index, word in enumerate(words):
        name, equals, value = word.partition("=")
        name, value = name.strip(), store_toml.unquoted(value.strip())
        if index == 0 and not equals and name not in _setting_names():
            path = word
        elif not equals:
            names.append(name)
        elif changes.setdefault(name, value) != value:
            raise InvalidRequest(f"{printable(name)} is given twice")
    if len(names) == 2 and not changes and names[1] not in (*KEYS, *_setting_names()):
        changes[names[0]] = names[1]  # NAME VALUE, as git's
        names = []
    if names and changes:
        raise InvalidRequest(
            f"{printable(names[0])} is not NAME=VALUE", remedy="use one command to show and another to change"
        )
    typed = [*names, *changes]
    _refuse_theirs(path, typed, changes)
    if path is None:
        policy = next((name for name in typed if name in KEYS), None)
        if policy is not None:
            remedy = f"for the whole store: tierfs config / {next(word for word in words if word.startswith(policy))}"
            raise InvalidRequest(f"{policy} is a policy and needs a path", remedy=remedy)
        for name in typed:
            _require_known(name, _setting_names())
    else:
        for name in typed:
            if name in _setting_names():
                raise InvalidRequest(f"{name} is a setting of the store and takes no path")
            policy_text.check_key(name)
    return Asked(path, tuple(dict.fromkeys(names)), changes)


def _refuse_verb(session: Session, words: Sequence[str]) -> NoReturn:
    verb, *rest = words
    if verb == "unset":
        rest = [
            word if index == 0 and word not in (*KEYS, *_setting_names()) else f"{word}="
            for index, word in enumerate(rest)
        ]
    elif verb == "set" and len(rest) == 2 and rest[0] in _setting_names():
        rest = ["=".join(rest)]
    line = " ".join(["tierfs config", *map(as_word, rest)])
    raise InvalidRequest(f"config has no {verb}", remedy=f"use: {line}; write a path of that name as /{verb}")


def _refuse_theirs(path: str | None, typed: Sequence[str], changes: Mapping[str, str]) -> None:
    """Refuse names of Pulsar, RocketMQ and Pravega, with what to type for each."""
    names = [name for name in (*([path] if path else []), *typed) if name.lower() in theirs.table()]
    if names:
        place = None if path in names else path
        remedies = [theirs.remedy(name, changes.get(name, ""), place) for name in names]
        raise InvalidRequest(f"{', '.join(names)}: unknown setting", remedy="; ".join(remedies))


def _require_known(name: str, known: frozenset[str]) -> None:
    if name not in known:
        close = difflib.get_close_matches(name, sorted(known), 1)
        remedy = f"did you mean {close[0]}?" if close else "to list them: tierfs config"
        raise InvalidRequest(f"unknown setting {printable(name)!r}", remedy=remedy)


def _setting_names() -> frozenset[str]:
    return settings.names() | _place_names()


def _place_names() -> frozenset[str]:
    from tierfs.app.setup import place_settings

    return frozenset((*place_settings.COLD, *place_settings.ARCHIVE))


def _show_policies(session: Session, asked: Asked) -> None:
    """Show the policies in force at a path, and the origin of each."""
    assert asked.path is not None
    with session.open_store(looks=True) as store:
        name = store.segment_of_path(asked.path)
        with store.metadata.read() as txn:
            try:
                held = policies.at(txn, name)
            except NotFound as exc:
                if asked.path not in KEYS:
                    raise
                raise NotFound(str(exc), remedy=f"a policy needs a path: tierfs config / {asked.path}") from exc
    shown = [(key, value) for key, value in held.all() if not asked.names or key in asked.names]
    data = {
        key: {"value": policy.value, "origin": policy.origin.set_by.value, "set_on": policy.origin.name}
        for key, policy in shown
    }
    rows = [(key, policy_text.format(key, policy.value), str(policy.origin)) for key, policy in shown]
    session.result({"path": join(split(name)), "policy": data}, output.table(rows, *"<<<"))
    for _, text in contradictions.useless(held):
        session.warn(text)


def _change_policies(session: Session, asked: Asked) -> None:
    """Set policies at a path, or remove them there. Removing one that is not set succeeds."""
    assert asked.path is not None
    wanted = {key: policy_text.parse(key, text) for key, text in asked.changes.items() if text}
    removed = [key for key, text in asked.changes.items() if not text]
    with session.open_store() as store:
        name = store.segment_of_path(asked.path)
        changed = verbs.change_policies(store, name, wanted, removed)
    made, before, held = changed.made, changed.before, changed.held
    values = {key: policy_text.from_stored(key, text) for key, text in wanted.items()}
    canonical = join(split(name))
    if made:
        session.note(f"created the directory {canonical}")
    told = [f"{key} = {policy_text.format(key, value)}" for key, value in values.items()]
    told += [f"{key} is no longer set" if key in before else f"{key} was not set" for key in removed]
    data: dict[str, object] = {"path": canonical}
    if wanted:
        data |= {"set": values, "made": made}
    if removed:
        data |= {"unset": [key for key in removed if key in before]}
        data |= {"not_set": [key for key in removed if key not in before]}
    session.done(data, f"{output.path(canonical)}: {', '.join(told)}")
    for rule, text in contradictions.useless(held):
        if not wanted.keys().isdisjoint(rule.keys):
            session.warn(text)


def _show_settings(session: Session, asked: Asked) -> None:
    """Show settings and the origin of each, and the place of the cold tier.

    The origin is default, file (store.toml) or environment; of the place it is the store.
    """
    from tierfs.app.setup import place_settings

    file = _settings_file(session)
    loaded = settings.load_with_origins(file, os.environ)
    data = {name: {"value": value, "origin": loaded.origins[name].value} for name, value in settings.values(loaded)}
    places: tuple[LocationRecord | None, LocationRecord | None] = None, None
    try:
        with session.open_store() as store:
            with store.metadata.read() as txn:
                places = store.cold_location, archive_place.find(txn)
            _warn_of_overridden(session, store)
            _warn_of_no_replica(session, store, loaded.settings.standby)
    except (DataLoss, NotFound) as exc:
        session.warn(f"cannot read the address of the cold tier: {exc}")
    data |= {name: {"value": value, "origin": "store"} for name, value in place_settings.parts(*places).items()}
    lines = [*place_settings.lines(*places), *settings.lines(loaded).splitlines()]
    if asked.names:
        unset = {"value": "", "origin": settings.Origin.DEFAULT.value}
        data = {name: data.get(name, unset) for name in asked.names}
        lines = [line for line in lines if line.partition(" = ")[0] in asked.names]
    session.result(data, "\n".join(lines))
    for text in contradictions.useless_settings(loaded.settings):
        session.warn(text)


def _change_settings(session: Session, asked: Asked) -> None:
    """Change store.toml, or the address of the cold tier, whose parts may be empty."""
    from tierfs.app.setup import place_settings
    from tierfs.app.setup.store_directory import replace_settings

    file = _settings_file(session)
    of_place = _place_names()
    place = {place_settings.COLD[name]: value for name, value in asked.changes.items() if name in place_settings.COLD}
    archive = {
        place_settings.ARCHIVE[name]: value for name, value in asked.changes.items() if name in place_settings.ARCHIVE
    }
    changed = {name: value for name, value in asked.changes.items() if name not in of_place and value}
    removed = [name for name, value in asked.changes.items() if name not in of_place and not value]
    text = settings.text_in(file)
    for name, value in changed.items():
        text = store_toml.with_value(text, name, value)
    for name in removed:
        text = store_toml.without(text, name, settings.default_of(name))
    checked = settings.check(text, file)
    if place:
        _move_place(session, place, checked.settings.cold)
    elif any(name.startswith(_COLD) for name in changed):
        _require_supported(session, checked.settings.cold)
    if archive.get("url") == "" and not any(archive.values()):
        _unset_archive(session)
    elif archive:
        _set_archive(session, archive)
    if changed or removed:
        replace_settings(StorePaths(file.parent), text)
        shown = dict(line.split(" = ", 1) for line in settings.lines(checked).splitlines())
        told = [f"{name} = {shown[name].rsplit('  (', 1)[0]}" for name in changed]
        told += [f"{name} = {settings.default_of(name)}" for name in removed]
        values = dict(settings.values(checked))
        data: dict[str, object] = {"set": {name: values[name] for name in changed}} if changed else {}
        if removed:
            data["unset"] = removed
        session.done(data, "\n".join(told))
        session.note("running mounts and daemons reload store.toml at SIGHUP")
    origins = settings.load_with_origins(file, os.environ).origins
    for name in (*changed, *removed):
        if origins[name] is settings.Origin.ENVIRONMENT:
            session.warn(f"{name} is set by the environment, which overrides store.toml")
    if not changed.keys().isdisjoint((*BELOW_POLICIES, _TAKEOVER)):
        try:
            with session.open_store() as store:
                _warn_of_overridden(session, store)
                _warn_of_no_replica(session, store, checked.settings.standby)
        except (DataLoss, NotFound) as exc:
            session.warn(f"cannot read the policies of the store: {exc}")


def _warn_of_overridden(session: Session, store: Store) -> None:
    with store.metadata.read() as txn:
        root = policies.at(txn, "")
    for text, remedy in contradictions.overridden_settings(root):
        session.warn(f"{text}; to use the setting: {remedy}")


def _warn_of_no_replica(session: Session, store: Store, settings: StandbySettings) -> None:
    from tierfs.app.standby_rows import NO_REPLICA

    if settings.takeover_after_s > 0 and not store.is_replica:
        session.warn(NO_REPLICA)


def _require_supported(session: Session, settings: ColdSettings) -> None:
    """Raise InvalidRequest for settings that the store's cold tier would ignore."""
    from tierfs.app.setup.supported import require_settings

    try:
        with session.open_store() as store:
            place = store.cold_location
    except (DataLoss, NotFound) as exc:
        session.warn(f"cannot read the address of the cold tier: {exc}")
        return
    if place is not None:
        require_settings(place, settings)


def _move_place(session: Session, changes: Mapping[str, str], settings: ColdSettings) -> None:
    """Change the address of the cold tier; `settings` are those of store.toml after the command."""
    from tierfs.app.setup import place_change

    with session.open_store() as store:
        moved = place_change.change(store.metadata, store.paths, settings, changes)
    before, after = moved.before, moved.after
    data = {"before": before and before.url, **output.fields(after, "cold_url=url endpoint_url")}
    session.done(data, f"cold tier: {policies.told(after)}")
    if before is None:
        session.note("from now on policies offload bytes there; to offload all bytes at once: tierfs offload")
    elif after.url != before.url:
        session.note(f"{printable(before.url)} is unchanged; to verify that all objects were copied: tierfs check")


def _set_archive(session: Session, changes: Mapping[str, str]) -> None:
    """Set the archive place, or another address of it."""
    from tierfs.app.setup import archive_change

    with session.open_store() as store:
        done = archive_change.change(store, changes)
    before, after = done.before, done.after
    data = {"before": before and before.url, **output.fields(after, "archive_place=url endpoint_url")}
    session.done(data, f"archive place: {policies.told(after)}")
    if before is None:
        session.note(
            "to move objects there: tierfs archive PATH --class place, or: "
            "tierfs config PATH archive_class=place archive_after=TIME"
        )


def _unset_archive(session: Session) -> None:
    """Unset the archive place, in which nothing is any more."""
    from tierfs.app.setup import archive_change

    with session.open_store() as store:
        done = archive_change.unset(store)
    data = {"unset": ["archive.place"], "before": done.before and done.before.url}
    was = "was not set" if done.before is None else f"is no longer set; it was {policies.told(done.before)}"
    session.done(data, f"archive.place {was}")
    if done.stays:
        session.warn(f"its mark tierfs-store stays: {done.stays}")


def _settings_file(session: Session) -> Path:
    path = session.require_store_path()
    file = StorePaths(path.absolute()).settings
    if not file.is_file():
        raise NotFound(f"{path} is not a tierfs store", remedy=f"create one with: tierfs --store {path} init")
    return file
