"""Deleting segments and directories: names go at once, bytes become garbage (invariants 4 and 5).

What is small goes in one commit. What is not loses its name in one, and is then taken apart in bounded ones
by whoever comes along: this process, the holder, or the next command after a crash (metadata/removals.py).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tierfs import names
from tierfs.errors import InvalidRequest, IsDirectory
from tierfs.metadata import directories, journal, keys, removals
from tierfs.metadata.directories import Entry
from tierfs.metadata.records import SegmentRecord
from tierfs.metadata.store import MetadataStore
from tierfs.metadata.tables import POLICIES, SEGMENTS
from tierfs.metadata.transaction import ReadTransaction, WriteTransaction
from tierfs.segments import dismantle, ownership, streams
from tierfs.segments.writer_locks import WriterLocks
from tierfs.types import DirectoryId, EntryKind


@dataclass(frozen=True, slots=True)
class Deletion:
    """What a delete removes, or would remove."""

    segments: int = 0
    directories: int = 0
    local_chunks: int = 0
    local_bytes: int = 0
    cold_bytes: int = 0
    cold_chunks: int = 0

    @property
    def records(self) -> int:
        """How many things have to be taken apart."""
        return self.segments + self.directories + self.local_chunks + self.cold_chunks

    def plus(self, segment: SegmentRecord) -> Deletion:
        """With one more segment."""
        return replace(
            self,
            segments=self.segments + 1,
            local_chunks=self.local_chunks + segment.local.count,
            local_bytes=self.local_bytes + segment.local.bytes,
            cold_bytes=self.cold_bytes + segment.cold.bytes,
            cold_chunks=self.cold_chunks + segment.cold.count,
        )


def plan(
    txn: ReadTransaction, path: str, *, recursive: bool, writer_locks: WriterLocks | None = None
) -> tuple[Entry, Deletion]:
    """What deleting `path` would remove.

    Raises NotFound, IsDirectory without `recursive`, InvalidRequest for the root, and with `writer_locks`
    Conflict naming a live writer in another process.
    """
    entry = directories.must_find(txn, path)
    if not names.split(path):
        raise InvalidRequest("the root directory cannot be deleted")
    if entry.kind is EntryKind.DIRECTORY and not recursive:
        raise IsDirectory(f"{names.printable(path)} is a directory", remedy=f"tierfs rm -r {names.printable(path)}")
    return entry, _count(txn, entry, Deletion(), writer_locks)


def delete(
    metadata: MetadataStore, writer_locks: WriterLocks, path: str, *, recursive: bool, cold_due_ms: int
) -> Deletion:
    """Delete a segment, or a directory with everything below it. The name is gone in one commit.

    Local files are due for deletion at once, cold objects at `cold_due_ms` and not before the journal
    says that they are gone. Raises what `plan` raises. A writer that comes to a large directory while it
    is counted finds its segment deleted.
    """
    with metadata.read() as view:
        _, expected = plan(view, path, recursive=recursive, writer_locks=writer_locks)
    small = expected.records <= dismantle.BATCH_RECORDS
    with metadata.write() as txn:
        deletion = _remove_name(txn, writer_locks, path, expected, small=small, cold_due_ms=cold_due_ms)
    dismantle.dismantle(metadata, cold_due_ms=cold_due_ms)
    return deletion


def _remove_name(
    txn: WriteTransaction,
    writer_locks: WriterLocks,
    path: str,
    expected: Deletion,
    *,
    small: bool,
    cold_due_ms: int,
) -> Deletion:
    """All of it when it is small, still counted now; else only the name."""
    entry = directories.must_find(txn, path)
    parent = directories.find(txn, names.join(names.split(path)[:-1]))
    assert parent is not None
    parent_id = DirectoryId(parent.id)
    if small or entry.kind is EntryKind.SEGMENT:
        expected = _count(txn, entry, Deletion(), writer_locks)
    _remove(txn, parent_id, entry, expected, cold_due_ms)
    return expected


def _queue(txn: WriteTransaction, parent_id: DirectoryId, entry: Entry) -> None:
    segment = txn.get(SEGMENTS, keys.u64(entry.id)) if entry.kind is EntryKind.SEGMENT else None
    if segment is not None:
        streams.unlink(txn, segment)
    removals.queue(txn, parent_id, entry)


def _count(txn: ReadTransaction, entry: Entry, found: Deletion, writer_locks: WriterLocks | None) -> Deletion:
    """`found` with an entry and everything below it. Raises Conflict for a live writer elsewhere."""
    if entry.kind is EntryKind.SEGMENT:
        segment = txn.must_get(SEGMENTS, keys.u64(entry.id), f"segment {names.printable(entry.name)}")
        if writer_locks is not None:
            ownership.require_no_writer_elsewhere(txn, segment, writer_locks)
        return found.plus(segment)
    for child in directories.entries(txn, DirectoryId(entry.id)):
        found = _count(txn, child, found, writer_locks)
    return replace(found, directories=found.directories + 1)


def forget(txn: WriteTransaction, segment: SegmentRecord) -> None:
    """Remove the name and the record of a segment whose chunks belong to another one now."""
    streams.unlink(txn, segment)
    journal.segment_removed(txn, segment.id)
    txn.delete(SEGMENTS.name, keys.u64(segment.id))
    txn.delete(POLICIES.name, keys.u64(segment.id))
    directories.remove_entry(txn, segment.parent_id, segment.name)
    txn.touch(inode=segment.inode, segment_id=segment.id)


def remove_segment(
    txn: WriteTransaction, writer_locks: WriterLocks, segment: SegmentRecord, *, cold_due_ms: int
) -> None:
    """Delete one segment inside a transaction; a large one loses its name, and `dismantle` does the rest.

    Raises Conflict naming a live writer in another process.
    """
    entry = Entry(segment.name, EntryKind.SEGMENT, segment.id)
    found = _count(txn, entry, Deletion(), writer_locks)
    _remove(txn, segment.parent_id, entry, found, cold_due_ms)


def _remove(txn: WriteTransaction, parent_id: DirectoryId, entry: Entry, found: Deletion, cold_due_ms: int) -> None:
    """All of an entry when it is small, else only its name."""
    if found.records <= dismantle.BATCH_RECORDS:
        gone = dismantle.Batch(txn, cold_due_ms, dismantle.BATCH_RECORDS + 1).remove(parent_id, entry)
        assert gone
        return
    _queue(txn, parent_id, entry)
