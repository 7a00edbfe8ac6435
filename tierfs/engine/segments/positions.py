"""Positions in a managed ledger, its ledgers in order, and their offload as `tierfs ledger status` shows it."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from enum import StrEnum
from typing import Self

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words import names
from tierfs.base.words.errors import InvalidRequest
from tierfs.base.words.names import printable
from tierfs.base.words.types import DirectoryId, EntryKind, SegmentId, SegmentKind
from tierfs.engine.metadata import directories, entries
from tierfs.engine.metadata.ledger_records import LedgerRecord
from tierfs.engine.metadata.records import SegmentRecord
from tierfs.engine.metadata.tables import INTENTS
from tierfs.engine.metadata.transaction import ReadTransaction

_TEXT = re.compile(r"([0-9]{1,20})(?::([0-9]{1,20}))?")


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """An entry, by its ledger's id and its own; or the place after a ledger's last entry."""

    ledger_id: int
    entry_id: int

    def __str__(self) -> str:
        return f"{self.ledger_id}:{self.entry_id}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a position as users write it, like 42:7; 42 is the begin of ledger 42. Raises InvalidRequest."""
        match = _TEXT.fullmatch(text)
        if match is None:
            raise InvalidRequest(
                f"{printable(text)} is not a position", remedy="write LEDGER or LEDGER:ENTRY, like 42 or 42:7"
            )
        return cls(int(match[1]), int(match[2] or 0))


# Pulsar's position before the first possible entry. No ledger has it.
EARLIEST = Position(-1, -1)


@dataclass(frozen=True, slots=True)
class MemberLedger:
    """One ledger of a managed ledger."""

    segment: SegmentRecord
    ledger_id: int
    entries: int
    known: LedgerRecord

    @property
    def is_cold(self) -> bool:
        """Whether it is offloaded: all its bytes, or all its entries where these are empty."""
        return self.segment.whole_in_cold or (not self.segment.length and self.known.offload.complete)

    @property
    def waits_for_offload(self) -> bool:
        """Whether it is closed, has entries, and is not offloaded."""
        return self.segment.sealed and self.entries > 0 and not self.is_cold

    @property
    def end(self) -> Position:
        """Return the position after the last entry."""
        return Position(self.ledger_id, self.entries)


def members(txn: ReadTransaction, directory_id: DirectoryId) -> list[MemberLedger]:
    """Return the ledgers directly in a directory, by id; a name without one is ordered by its segment's id."""
    ledgers: list[MemberLedger] = []
    for entry in directories.entries(txn, directory_id):
        member = _member(txn, entry.id) if entry.kind is EntryKind.SEGMENT else None
        if member is not None:
            ledgers.append(member)
    return sorted(ledgers, key=lambda member: (member.ledger_id, member.segment.name))


def newest(txn: ReadTransaction, directory_id: DirectoryId) -> MemberLedger | None:
    """Return the last one of `members`; reads few records where ledgers have their ids as names."""
    entries_by_id = [entry for entry in directories.entries(txn, directory_id) if entry.kind is EntryKind.SEGMENT]
    entries_by_id.sort(key=lambda entry: names.ledger_id(entry.name) or 0)
    for entry in reversed(entries_by_id):
        if names.ledger_id(entry.name) is None:
            break
        member = _member(txn, entry.id)
        if member is not None:
            return member
    return next(reversed(members(txn, directory_id)), None)


def directory_of(txn: ReadTransaction, path: str) -> DirectoryId:
    """Return the id of a managed ledger's directory. Raises NotFound, InvalidRequest for a segment."""
    entry = directories.must_find(txn, path, "managed ledger")
    if entry.kind is not EntryKind.DIRECTORY:
        raise InvalidRequest(f"{printable(path)} is a segment, not a managed ledger: give its directory")
    return DirectoryId(entry.id)


def closed_before(ledgers: Sequence[MemberLedger], position: Position, path: str) -> list[MemberLedger]:
    """Return the closed ledgers that lie wholly before a position, which an empty ledger at it does not.

    Raises InvalidRequest unless a ledger has the entry, or the position is the one after its last entry.
    """
    member = next((ledger for ledger in ledgers if ledger.ledger_id == position.ledger_id), None)
    if member is None:
        ids = f"{ledgers[0].ledger_id} to {ledgers[-1].ledger_id}" if ledgers else "none"
        shown = printable(path) or "/"
        raise InvalidRequest(f"{shown} has no ledger {position.ledger_id} (ledgers: {ids})")
    if not 0 <= position.entry_id <= member.entries:
        raise InvalidRequest(
            f"position {position} is not in {printable(path)}: ledger {member.ledger_id} ends at {member.entries}"
        )
    return [ledger for ledger in ledgers if ledger.segment.sealed and _is_before(ledger, position)]


def _is_before(ledger: MemberLedger, position: Position) -> bool:
    if ledger.ledger_id != position.ledger_id:
        return ledger.ledger_id < position.ledger_id
    return 0 < ledger.entries <= position.entry_id


def member(txn: ReadTransaction, segment: SegmentRecord) -> MemberLedger:
    """Return a ledger with its id, or its segment's where the name has none."""
    ledger_id = names.ledger_id(segment.name)
    number = segment.id if ledger_id is None else ledger_id
    return MemberLedger(segment, number, entries.count(txn, segment.id), entries.find(txn, segment.id))


def _member(txn: ReadTransaction, segment_id: int) -> MemberLedger | None:
    """Return the ledger, or None for another segment."""
    segment = directories.segment(txn, SegmentId(segment_id))
    return None if segment is None or segment.kind is not SegmentKind.LEDGER else member(txn, segment)


class OffloadState(StrEnum):
    """State of one ledger's offload."""

    NONE = "none"
    IN_PROGRESS = "in progress"
    FAILED = "failed"
    """The last attempt ended incomplete; the next one deletes its objects."""
    COMPLETE = "complete"


@dataclass(frozen=True, slots=True)
class LedgerStatus:
    """One ledger of a managed ledger; times are milliseconds, 0 for never."""

    segment: str
    ledger_id: int
    state: str
    """`open` or `closed`."""
    entries: int
    bytes: int
    local_bytes: int
    closed_ms: int
    offload: OffloadState
    uuid: str | None
    """Uuid of the newest attempt."""
    offloaded_ms: int
    local_deleted: bool


@dataclass(frozen=True, slots=True)
class ManagedStatus:
    """A managed ledger at one instant."""

    managed_ledger: str
    terminated: bool
    ledgers: tuple[LedgerStatus, ...]
    entries: int
    bytes: int
    local_bytes: int
    offloaded_bytes: int
    not_offloaded_bytes: int
    next_to_offload: str | None
    """Position of the first entry of a closed ledger that is not offloaded; None when there is no such ledger."""


def being_offloaded(txn: ReadTransaction, *, held: bool) -> set[SegmentId]:
    """Return the segments of which an object is being made: by their intents, if a process holds the store.

    The next one to hold it ends the intents that a killed one left, before anything else.
    """
    return {intent.segment_id for _, intent in txn.scan(INTENTS)} if held else set()


def offload_state(known: LedgerRecord, in_progress: Collection[SegmentId]) -> OffloadState:
    """Return the state of a ledger's offload; `in_progress`: see being_offloaded."""
    if known.offload.complete:
        return OffloadState.COMPLETE
    if known.offload.uuid is None:
        return OffloadState.NONE
    return OffloadState.IN_PROGRESS if SegmentId(known.segment_id) in in_progress else OffloadState.FAILED


def is_local_deleted(segment: SegmentRecord, known: LedgerRecord) -> bool:
    """Return whether only the cold form is left; in a recovered store the local one is missing without a record."""
    return known.offload.complete and (known.offload.local_deleted or not segment.local.count)


def status(txn: ReadTransaction, path: str, *, held: bool) -> ManagedStatus:
    """Return the status of a managed ledger; `held`: see being_offloaded.

    Raises NotFound, InvalidRequest for a segment.
    """
    directory_id = directory_of(txn, path)
    ledgers = members(txn, directory_id)
    in_progress = being_offloaded(txn, held=held)
    following = next((member for member in ledgers if member.waits_for_offload), None)
    offloaded = sum(member.segment.length for member in ledgers if member.segment.whole_in_cold)
    total = sum(member.segment.length for member in ledgers)
    name = names.join(names.split(path))
    return ManagedStatus(
        managed_ledger=name,
        terminated=directories.directory(txn, directory_id).terminated,
        ledgers=tuple(_of(member, name, in_progress) for member in ledgers),
        entries=sum(member.entries for member in ledgers),
        bytes=total,
        local_bytes=sum(member.segment.local.bytes for member in ledgers),
        offloaded_bytes=offloaded,
        not_offloaded_bytes=total - offloaded,
        next_to_offload=None if following is None else str(Position(following.ledger_id, 0)),
    )


def _of(member: MemberLedger, managed_ledger: str, in_progress: Collection[SegmentId]) -> LedgerStatus:
    segment, offload = member.segment, member.known.offload
    return LedgerStatus(
        segment=names.join((*names.split(managed_ledger), segment.name)),
        ledger_id=member.ledger_id,
        state="closed" if segment.sealed else "open",
        entries=member.entries,
        bytes=segment.length,
        local_bytes=segment.local.bytes,
        closed_ms=segment.sealed_ms,
        offload=offload_state(member.known, in_progress),
        uuid=None if offload.uuid is None else str(offload.uuid),
        offloaded_ms=offload.timestamp_ms if offload.complete else 0,
        local_deleted=is_local_deleted(segment, member.known),
    )
