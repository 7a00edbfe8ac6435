"""Ledgers as users see them: segments of entries, named `<managed ledger>/<ledger id, 20 digits>`."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from tierfs import names
from tierfs.errors import InvalidRequest, Sealed
from tierfs.metadata import directories, entries
from tierfs.metadata import ledgers as metadata_ledgers
from tierfs.metadata.directories import Entry
from tierfs.metadata.records import SegmentRecord
from tierfs.metadata.transaction import ReadTransaction, WriteTransaction
from tierfs.segments import create, ledger_status
from tierfs.segments.ledger_status import OffloadState
from tierfs.types import DirectoryId, EntryKind, SegmentId, SegmentKind


@dataclass(frozen=True, slots=True)
class Ledger:
    """One ledger as of a snapshot."""

    segment: str
    ledger_id: int | None
    """From the name; None for a name that has none."""
    managed_ledger: str
    """The directory that the ledger is in."""
    entries: int
    last_entry_id: int
    """-1 for an empty ledger, as in Pulsar."""
    length: int
    """Of all payloads, in bytes."""
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
        ledger_id = max(txn.allocate_id(), _last_id(txn, directory) + 1)  # somebody may have chosen greater ones
        if ledger_id > names.MAX_LEDGER_ID:
            raise InvalidRequest(f"{names.printable(managed_ledger)} has the greatest ledger id there is")
    name = names.join((*above, names.of_ledger(ledger_id)))
    create.create(txn, name, SegmentKind.LEDGER)
    return name


def require_not_terminated(txn: ReadTransaction, directory_id: DirectoryId, path: str) -> None:
    """Raise Sealed for a managed ledger that takes no more ledgers."""
    if directories.directory(txn, directory_id).terminated:
        raise Sealed(f"managed ledger {names.printable(path)} was terminated", remedy="append to another one")


def _last_id(txn: ReadTransaction, directory: Entry | None) -> int:
    """The greatest id in the names of a directory; -1 without one."""
    if directory is None or directory.kind is not EntryKind.DIRECTORY:
        return -1
    found = (names.ledger_id(entry.name) for entry in directories.entries(txn, DirectoryId(directory.id)))
    return max((ledger_id for ledger_id in found if ledger_id is not None), default=-1)


def find(txn: ReadTransaction, name: str) -> tuple[SegmentRecord, Ledger]:
    """A ledger by its segment's name. Raises NotFound, IsDirectory, InvalidRequest for a segment that is none."""
    segment = directories.segment_by_name(txn, name)
    if segment.kind is not SegmentKind.LEDGER:
        raise InvalidRequest(f"{names.printable(name)} is no ledger", remedy=f"tierfs cat {names.printable(name)}")
    return segment, _described(txn, names.join(names.split(name)), segment, ledger_status.being_offloaded(txn))


def below(txn: ReadTransaction, path: str) -> Iterator[Ledger]:
    """Every ledger at or below a path, in the order of names. Raises NotFound."""
    in_progress = ledger_status.being_offloaded(txn)
    for name, segment in records_below(txn, path):
        yield _described(txn, name, segment, in_progress)


def records_below(txn: ReadTransaction, path: str) -> Iterator[tuple[str, SegmentRecord]]:
    """The same as name and segment."""
    for name, segment in directories.segments_at(txn, path):
        if segment.kind is SegmentKind.LEDGER:
            yield name, segment


def require_below(txn: ReadTransaction, path: str) -> list[tuple[str, SegmentRecord]]:
    """The same; raises InvalidRequest, besides, where there is none."""
    found = list(records_below(txn, path))
    if not found:
        raise InvalidRequest(f"{names.printable(path)} is no ledger and has none below it")
    return found


def _described(txn: ReadTransaction, name: str, segment: SegmentRecord, in_progress: Collection[SegmentId]) -> Ledger:
    *above, last = names.split(name)
    count = entries.count(txn, segment.id)
    ledger_id = names.ledger_id(last)
    state = "closed" if segment.sealed else "open"
    offload = ledger_status.offload_state(metadata_ledgers.find(txn, segment.id), in_progress)
    return Ledger(name, ledger_id, names.join(tuple(above)), count, count - 1, segment.length, state, offload)
