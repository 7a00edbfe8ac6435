"""Ledgers as users see them: segments of entries, named `<managed ledger>/<ledger id, 20 digits>`.

Create and list them, close those that are due by policy, delete the objects of an incomplete offload, and terminate a
managed ledger: its ledgers are closed, and it never takes another.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.options.policy import Policy
from tierfs.base.words import names
from tierfs.base.words.errors import InvalidRequest, Sealed
from tierfs.base.words.types import DirectoryId, EntryKind, SegmentId, SegmentKind
from tierfs.engine.ledger import keys
from tierfs.engine.metadata import chains, changes, directories, empty_ledgers, entries, policies
from tierfs.engine.metadata import entries as metadata_ledgers
from tierfs.engine.metadata.directories import Entry
from tierfs.engine.metadata.ledger_records import LedgerRecord
from tierfs.engine.metadata.records import SegmentRecord
from tierfs.engine.metadata.tables import DIRECTORIES
from tierfs.engine.metadata.transaction import ReadTransaction, WriteTransaction
from tierfs.engine.segments import create, ownership, positions, seal, sealed_record, streams
from tierfs.engine.segments.positions import OffloadState, Position
from tierfs.engine.segments.writer_locks import WriterLocks


@dataclass(frozen=True, slots=True)
class LedgerDescription:
    """One ledger as of a snapshot."""

    segment: str
    ledger_id: int | None
    """From the name; None if the name is not a number."""
    managed_ledger: str
    """The directory that the ledger is in."""
    entries: int
    last_entry_id: int
    """-1 for an empty ledger, as in Pulsar."""
    length: int
    """Bytes of all payloads."""
    state: str
    """`open` or `closed`."""
    offload: OffloadState


def make(txn: WriteTransaction, managed_ledger: str, ledger_id: int | None = None) -> str:
    """Create an empty ledger in the directory `managed_ledger`, with a new id unless one is given; returns its name.

    Raises AlreadyExists, NotDirectory, InvalidRequest, or Sealed for a managed ledger that was terminated.
    """
    above = names.split(managed_ledger)
    if not above:
        raise InvalidRequest("a ledger needs the name of its managed ledger, the directory that it is in")
    if ledger_id is not None and not 0 <= ledger_id <= names.MAX_LEDGER_ID:
        raise InvalidRequest(f"ledger id {ledger_id} is not between 0 and {names.MAX_LEDGER_ID}")
    directory = directories.find(txn, names.join(above))
    if directory is not None and directory.kind is EntryKind.DIRECTORY:
        require_not_terminated(txn, DirectoryId(directory.id), managed_ledger)
    if ledger_id is None:
        ledger_id = max(txn.allocate_id(), _last_id(txn, directory) + 1)  # callers may have chosen greater ones
        if ledger_id > names.MAX_LEDGER_ID:
            raise InvalidRequest(f"{names.printable(managed_ledger)} has the maximum ledger id")
    name = names.join((*above, names.of_ledger(ledger_id)))
    create.create(txn, name, SegmentKind.LEDGER)
    return name


def require_not_terminated(txn: ReadTransaction, directory_id: DirectoryId, path: str) -> None:
    """Raise Sealed for a managed ledger that takes no more ledgers."""
    if directories.directory(txn, directory_id).terminated:
        raise Sealed(f"managed ledger {names.printable(path)} was terminated", remedy="append to another one")


def _last_id(txn: ReadTransaction, directory: Entry | None) -> int:
    """Return the greatest id in the names of a directory; -1 without one."""
    if directory is None or directory.kind is not EntryKind.DIRECTORY:
        return -1
    ids = (names.ledger_id(entry.name) for entry in directories.entries(txn, DirectoryId(directory.id)))
    return max((ledger_id for ledger_id in ids if ledger_id is not None), default=-1)


def find(txn: ReadTransaction, name: str, *, held: bool = False) -> tuple[SegmentRecord, LedgerDescription]:
    """Return a ledger by its segment's name; `held`: see positions.being_offloaded.

    Raises NotFound, IsDirectory, InvalidRequest for another segment.
    """
    segment = directories.segment_by_name(txn, name)
    if segment.kind is not SegmentKind.LEDGER:
        raise InvalidRequest(f"{names.printable(name)} is not a ledger", remedy=f"tierfs cat {names.printable(name)}")
    return segment, described(txn, names.join(names.split(name)), segment, positions.being_offloaded(txn, held=held))


def below(txn: ReadTransaction, path: str, *, held: bool = False) -> Iterator[LedgerDescription]:
    """Yield every ledger at or below a path, in the order of names; `held`: as in `find`. Raises NotFound."""
    in_progress = positions.being_offloaded(txn, held=held)
    for name, segment in records_below(txn, path):
        yield described(txn, name, segment, in_progress)


def records_below(txn: ReadTransaction, path: str) -> Iterator[tuple[str, SegmentRecord]]:
    """Yield name and segment of every ledger at or below a path, in the order of names. Raises NotFound."""
    for name, segment in directories.segments_at(txn, path):
        if segment.kind is SegmentKind.LEDGER:
            yield name, segment


def require_below(txn: ReadTransaction, path: str) -> list[tuple[str, SegmentRecord]]:
    """Return name and segment of every ledger at or below a path. Raises NotFound, InvalidRequest without any."""
    ledgers = list(records_below(txn, path))
    if not ledgers:
        raise InvalidRequest(f"{names.printable(path)} is not a ledger and contains no ledger")
    return ledgers


def described(
    txn: ReadTransaction, name: str, segment: SegmentRecord, in_progress: Collection[SegmentId]
) -> LedgerDescription:
    """Describe a ledger; `in_progress`: see positions.being_offloaded."""
    *above, last = names.split(name)
    count = entries.count(txn, segment.id)
    ledger_id = names.ledger_id(last)
    state = "closed" if segment.sealed else "open"
    offload = positions.offload_state(metadata_ledgers.find(txn, segment.id), in_progress)
    return LedgerDescription(
        name, ledger_id, names.join(tuple(above)), count, count - 1, segment.length, state, offload
    )


@dataclass(frozen=True, slots=True)
class Filling:
    """Entries and bytes of an open ledger, compared with the policy's limits."""

    entries: int
    length: int

    def is_full(self, policy: Policy) -> bool:
        """Return whether it has reached the entries or bytes that policy sets."""
        enough = policy.ledger_entries is not None and self.entries >= policy.ledger_entries
        return enough or (policy.seal_bytes is not None and self.length >= policy.seal_bytes)

    def plus(self, payload_bytes: int) -> Filling:
        """Return the sums with one more entry."""
        return Filling(self.entries + 1, self.length + payload_bytes)


def filling(txn: ReadTransaction, segment: SegmentRecord) -> Filling:
    """Return a ledger's entries and bytes as of the transaction."""
    return Filling(entries.count(txn, segment.id), segment.length)


def is_due(txn: ReadTransaction, segment: SegmentRecord, policy: Policy, now_ms: int) -> bool:
    """Return whether the segment is an open ledger that policy closes now."""
    if segment.kind is not SegmentKind.LEDGER or segment.sealed or segment.grows_from:
        return False
    return streams.is_old(segment, policy, now_ms) or filling(txn, segment).is_full(policy)


def close_if_due(
    txn: WriteTransaction, writer_locks: WriterLocks, segment_id: SegmentId, *, now_ms: int
) -> tuple[bool, str | None]:
    """Close a ledger that is due by policy; return whether it did, and the chunk file it ended.

    A ledger that is only full is left to its living writer. The writer of an old one finds it closed, and continues
    in the next ledger.
    """
    segment = directories.living_segment(txn, segment_id)
    if segment is None:
        return False, None
    policy = policies.effective(txn, segment)
    if not is_due(txn, segment, policy, now_ms):
        return False, None
    alive = writer_locks.is_alive_elsewhere(segment.id, segment.writer_epoch)
    if alive and not streams.is_old(segment, policy, now_ms):
        return False, None
    ended = seal.active_file(txn, segment)
    sealed_record.write(txn, segment)
    return True, ended


def discard(txn: WriteTransaction, ledger: LedgerRecord, *, due_ms: int, after_sequence: int = 0) -> None:
    """Queue the objects for deletion that only the ledger's context has.

    Those of an incomplete attempt, whether they exist or not, are due now. Those of a ledger of empty entries are due
    at a time, once the journal has a change by which no ledger has them.
    """
    uuid, location_id = ledger.offload.uuid, txn.store.cold_location_id
    if uuid is None or not location_id:
        return
    if not ledger.offload.complete:
        for name in (keys.data_key(uuid, ledger.ledger_id), keys.index_key(uuid, ledger.ledger_id)):
            chains.discard(txn, location_id, name)
        return
    for name in empty_ledgers.own_names(ledger):
        chains.discard(txn, location_id, name, due_ms=due_ms, after_sequence=after_sequence)


def terminate(txn: WriteTransaction, writer_locks: WriterLocks, path: str) -> tuple[Position | None, list[str]]:
    """Close the open ledgers and record that none follows; idempotent.

    Returns the position of the last entry, None without one, and the chunk files it ended. Raises NotFound,
    InvalidRequest for a segment, Conflict naming a live writer of an open ledger.
    """
    directory_id = positions.directory_of(txn, path)
    ledgers = positions.members(txn, directory_id)
    ended: list[str] = []
    for member in ledgers:
        if not member.segment.sealed:
            file = seal.active_file(txn, member.segment)
            sealed_record.write(txn, ownership.fence(txn, member.segment, writer_locks))
            ended += [] if file is None else [file]
    record = directories.directory(txn, directory_id)
    if not record.terminated:
        changes.put(txn, DIRECTORIES, replace(record, terminated=True))
    last = next((member for member in reversed(ledgers) if member.entries), None)
    return None if last is None else Position(last.ledger_id, last.entries - 1), ended
