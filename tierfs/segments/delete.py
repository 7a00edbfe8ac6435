"""Deleting segments and directories: names go at once, bytes become garbage (invariants 4 and 5)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tierfs import names
from tierfs.errors import InvalidRequest, IsDirectory, NotFound
from tierfs.metadata import chains, directories, journal, keys
from tierfs.metadata.directories import Entry
from tierfs.metadata.records import SegmentRecord
from tierfs.metadata.store import MetadataStore
from tierfs.metadata.tables import DIRECTORIES, POLICIES, SEGMENTS
from tierfs.metadata.transaction import ReadTransaction, WriteTransaction
from tierfs.segments import ownership, streams
from tierfs.segments.writer_locks import WriterLocks
from tierfs.types import DirectoryId, EntryKind, Tier


@dataclass(frozen=True, slots=True)
class Deletion:
    """What a delete removes, or would remove."""

    segments: int = 0
    directories: int = 0
    local_bytes: int = 0
    cold_bytes: int = 0
    cold_objects: int = 0

    def plus(self, segment: SegmentRecord) -> Deletion:
        """With one more segment."""
        return replace(
            self,
            segments=self.segments + 1,
            local_bytes=self.local_bytes + segment.local.bytes,
            cold_bytes=self.cold_bytes + segment.cold.bytes,
            cold_objects=self.cold_objects + segment.cold.count,
        )


def plan(txn: ReadTransaction, path: str, *, recursive: bool) -> tuple[Entry, Deletion]:
    """What deleting `path` would remove. Raises NotFound, IsDirectory without `recursive`, InvalidRequest."""
    entry = directories.find(txn, path)
    if entry is None:
        raise NotFound(f"{names.printable(path)} does not exist")
    if not names.split(path):
        raise InvalidRequest("the root directory cannot be deleted")
    if entry.kind is EntryKind.DIRECTORY and not recursive:
        raise IsDirectory(f"{names.printable(path)} is a directory", remedy=f"tierfs rm -r {names.printable(path)}")
    deletion = Deletion()
    for _, segment in directories.segments_below(txn, entry, path):
        deletion = deletion.plus(segment)
    return entry, deletion


def delete(
    metadata: MetadataStore, writer_locks: WriterLocks, path: str, *, recursive: bool, cold_due_ms: int
) -> Deletion:
    """Delete a segment, or a directory with everything below it, in one commit.

    Local files are due for deletion at once, cold objects at `cold_due_ms` and not before the journal
    says that they are gone. Raises what `plan` raises, and Conflict naming a live writer.
    """
    with metadata.write() as txn:
        entry, deletion = plan(txn, path, recursive=recursive)
        removal = _Removal(txn, writer_locks, cold_due_ms)
        parts = names.split(path)
        parent = directories.find(txn, names.join(parts[:-1]))
        assert parent is not None
        removal.remove(DirectoryId(parent.id), entry)
        return replace(deletion, directories=removal.directories)


class _Removal:
    """One delete inside its transaction."""

    def __init__(self, txn: WriteTransaction, writer_locks: WriterLocks, cold_due_ms: int) -> None:
        self._txn = txn
        self._locks = writer_locks
        self._cold_due_ms = cold_due_ms
        self.directories = 0

    def remove(self, parent_id: DirectoryId, entry: Entry) -> None:
        """Remove an entry and everything below it, children first."""
        if entry.kind is EntryKind.DIRECTORY:
            for child in list(directories.entries(self._txn, DirectoryId(entry.id))):
                self.remove(DirectoryId(entry.id), child)
            self._txn.delete(DIRECTORIES.name, keys.u64(entry.id))
            journal.directory_removed(self._txn, entry.id)
            self.directories += 1
        else:
            self._remove_segment(entry)
        self._txn.delete(POLICIES.name, keys.u64(entry.id))
        directories.remove_entry(self._txn, parent_id, entry.name)

    def _remove_segment(self, entry: Entry) -> None:
        txn = self._txn
        segment = txn.must_get(SEGMENTS, keys.u64(entry.id), f"segment {names.printable(entry.name)}")
        segment = ownership.fence(txn, segment, self._locks)
        sequence = journal.segment_removed(txn, segment.id)
        for tier, due_ms in ((Tier.LOCAL, txn.now_ms), (Tier.COLD, self._cold_due_ms)):
            after = sequence if tier is Tier.COLD else 0
            removed = list(chains.chunks(txn, segment.id, tier))
            segment = chains.remove(txn, segment, tier, removed, due_ms=due_ms, after_sequence=after)
        _drop(txn, segment)


def forget(txn: WriteTransaction, segment: SegmentRecord) -> None:
    """Remove the name and the record of a segment whose chunks belong to another one now."""
    journal.segment_removed(txn, segment.id)
    _drop(txn, segment)
    txn.delete(POLICIES.name, keys.u64(segment.id))
    directories.remove_entry(txn, segment.parent_id, segment.name)


def remove_segment(
    txn: WriteTransaction, writer_locks: WriterLocks, segment: SegmentRecord, *, cold_due_ms: int
) -> None:
    """Delete one segment inside a transaction; see delete."""
    removal = _Removal(txn, writer_locks, cold_due_ms)
    removal.remove(segment.parent_id, Entry(segment.name, EntryKind.SEGMENT, segment.id))


def _drop(txn: WriteTransaction, segment: SegmentRecord) -> None:
    streams.unlink(txn, segment)
    txn.delete(SEGMENTS.name, keys.u64(segment.id))
    txn.touch(inode=segment.inode, segment_id=segment.id)
