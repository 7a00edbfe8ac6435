"""Policies in the database: what is set where, and what holds for a segment."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from tierfs import names
from tierfs.errors import NotFound
from tierfs.metadata import directories, journal, keys
from tierfs.metadata.directories import Entry
from tierfs.metadata.records import PolicyRecord, SegmentRecord
from tierfs.metadata.tables import POLICIES
from tierfs.metadata.transaction import ReadTransaction, WriteTransaction
from tierfs.policy import Policy, inherit
from tierfs.types import ROOT_DIRECTORY, EntryKind


@dataclass(frozen=True, slots=True)
class Level:
    """What is set on one directory or segment."""

    name: str
    kind: EntryKind
    settings: Mapping[str, str]


def effective(txn: ReadTransaction, segment: SegmentRecord) -> Policy:
    """The policy in force for a segment: its own settings, then its directories' up to the root."""
    levels = [_settings(txn, segment.id)]
    directory_id = segment.parent_id
    while True:
        levels.append(_settings(txn, directory_id))
        if directory_id == ROOT_DIRECTORY:
            break
        directory_id = directories.directory(txn, directory_id).parent_id
    return inherit(levels[::-1])


def levels(txn: ReadTransaction, path: str) -> Iterator[Level]:
    """The settings of a directory or segment and of all directories above it, the root's first.

    Raises NotFound or NotDirectory.
    """
    parts = names.split(path)
    for depth in range(len(parts) + 1):
        name = names.join(parts[:depth])
        entry = _must_find(txn, name)
        yield Level(name, entry.kind, _settings(txn, entry.id))


def change(
    txn: WriteTransaction, path: str, *, put_settings: Mapping[str, str], unset: Collection[str] = ()
) -> Mapping[str, str]:
    """Change some settings of a directory or segment, leaving the others; returns what was set there before.

    Writes nothing where nothing changes. Raises NotFound, NotDirectory or InvalidRequest.
    """
    entry = _must_find(txn, path)
    before = _settings(txn, entry.id)
    kept = {key: value for key, value in before.items() if key not in unset}
    after = {**kept, **put_settings}
    if after != before:
        put(txn, entry.id, after)
    return before


def put(txn: WriteTransaction, target_id: int, settings: Mapping[str, str]) -> None:
    """Replace the settings of a directory or segment."""
    inherit([settings])
    old = txn.get(POLICIES, keys.u64(target_id)) or PolicyRecord(target_id=target_id)
    record = replace(old, settings=dict(settings))
    txn.put(POLICIES, keys.u64(target_id), record)
    journal.policy_changed(txn, record)
    txn.touch(policies=True)


def _must_find(txn: ReadTransaction, path: str) -> Entry:
    entry = directories.find(txn, path)
    if entry is None:
        raise NotFound(f"{names.printable(path)} does not exist")
    return entry


def _settings(txn: ReadTransaction, target_id: int) -> Mapping[str, str]:
    record = txn.get(POLICIES, keys.u64(target_id))
    return {} if record is None else record.settings
