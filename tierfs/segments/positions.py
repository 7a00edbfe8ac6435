"""Positions in a managed ledger, and the ledgers it has, oldest first."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from tierfs import names
from tierfs.errors import InvalidRequest
from tierfs.metadata import directories, entries, ledgers
from tierfs.metadata.ledger_records import LedgerRecord
from tierfs.metadata.records import SegmentRecord
from tierfs.metadata.transaction import ReadTransaction
from tierfs.names import printable
from tierfs.types import DirectoryId, EntryKind, SegmentId, SegmentKind

_TEXT = re.compile(r"([0-9]{1,20}):([0-9]{1,20})")


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """An entry, by its ledger's id and its own; or the place behind a ledger's last entry."""

    ledger_id: int
    entry_id: int

    def __str__(self) -> str:
        return f"{self.ledger_id}:{self.entry_id}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """A position as people write it, like 42:7. Raises InvalidRequest."""
        found = _TEXT.fullmatch(text)
        if found is None:
            raise InvalidRequest(f"{printable(text)} is no position", remedy="write LEDGER:ENTRY, like 42:7")
        return cls(int(found[1]), int(found[2]))


EARLIEST = Position(-1, -1)
LATEST = Position(names.MAX_LEDGER_ID, names.MAX_LEDGER_ID)
"""Pulsar's words for before the first and behind the last entry there will ever be. No ledger has them."""


@dataclass(frozen=True, slots=True)
class Member:
    """One ledger of a managed ledger."""

    segment: SegmentRecord
    ledger_id: int
    entries: int
    known: LedgerRecord

    @property
    def end(self) -> Position:
        """Behind the last entry."""
        return Position(self.ledger_id, self.entries)


def members(txn: ReadTransaction, directory_id: DirectoryId) -> list[Member]:
    """The ledgers directly in a directory, by id; of those without one in their names, by their segments' ids."""
    found: list[Member] = []
    for entry in directories.entries(txn, directory_id):
        member = _member(txn, entry.id) if entry.kind is EntryKind.SEGMENT else None
        if member is not None:
            found.append(member)
    return sorted(found, key=lambda member: (member.ledger_id, member.segment.name))


def newest(txn: ReadTransaction, directory_id: DirectoryId) -> Member | None:
    """The last one of `members`; reads few records where ledgers have their ids as names."""
    found = [entry for entry in directories.entries(txn, directory_id) if entry.kind is EntryKind.SEGMENT]
    found.sort(key=lambda entry: names.ledger_id(entry.name) or 0)
    for entry in reversed(found):
        if names.ledger_id(entry.name) is None:
            break
        member = _member(txn, entry.id)
        if member is not None:
            return member
    return next(reversed(members(txn, directory_id)), None)


def directory_of(txn: ReadTransaction, path: str) -> DirectoryId:
    """The directory that a managed ledger is. Raises NotFound, InvalidRequest for a segment."""
    entry = directories.must_find(txn, path, "managed ledger")
    if entry.kind is not EntryKind.DIRECTORY:
        raise InvalidRequest(f"{printable(path)} is a segment, not a managed ledger: name the directory it is in")
    return DirectoryId(entry.id)


def require_valid(position: Position, found: Sequence[Member], path: str) -> None:
    """Raise InvalidRequest unless a ledger has the entry, or the position is the one behind its last entry."""
    member = next((one for one in found if one.ledger_id == position.ledger_id), None)
    if member is None:
        known = f"{found[0].ledger_id} to {found[-1].ledger_id}" if found else "none"
        raise InvalidRequest(
            f"position {position} is not in {printable(path)}: it has no ledger {position.ledger_id} (it has {known})"
        )
    if not 0 <= position.entry_id <= member.entries:
        raise InvalidRequest(
            f"position {position} is not in {printable(path)}: ledger {member.ledger_id} ends at {member.entries}"
        )


def _member(txn: ReadTransaction, segment_id: int) -> Member | None:
    """None for a segment that is no ledger."""
    segment = directories.segment(txn, SegmentId(segment_id))
    if segment is None or segment.kind is not SegmentKind.LEDGER:
        return None
    ledger_id = names.ledger_id(segment.name)
    number = segment.id if ledger_id is None else ledger_id
    return Member(segment, number, entries.count(txn, segment.id), ledgers.find(txn, segment.id))
