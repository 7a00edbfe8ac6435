"""Delete segments and directories: names go at once, bytes become garbage (invariants 4 and 5).

What a person removes goes into the trash instead, for as long as policy says (trash.py).

A small tree goes in one commit. A large one loses its name in one commit, and its rows are then removed in commits
of bounded size by any process, or several at once: this one, the holder, or the next command after a crash
(the queue: directories.queue).
"""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.bytes.progress import Meter, OnProgress, unseen
from tierfs.base.words import names
from tierfs.base.words.errors import InvalidRequest, IsDirectory
from tierfs.base.words.types import ROOT_DIRECTORY, DirectoryId, EntryKind, SegmentKind, SegmentStatus, Tier
from tierfs.engine.metadata import chains, changes, copies_elsewhere, directories, entries, tables
from tierfs.engine.metadata.chain_edits import Editor
from tierfs.engine.metadata.directories import Entry
from tierfs.engine.metadata.record_parts import Removal
from tierfs.engine.metadata.records import SegmentRecord
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.tables import DIRECTORIES, POLICIES, SEGMENTS
from tierfs.engine.metadata.transaction import ReadTransaction, WriteTransaction
from tierfs.engine.segments import ledgers as ledger_attempts
from tierfs.engine.segments import ownership, streams, trash
from tierfs.engine.segments.writer_locks import WriterLocks

# Segments, directories and chunks removed per commit: some 100 ms, the longest wait of an append.
BATCH_RECORDS = 1000


def dismantle_removed(metadata: MetadataStore, *, cold_due_ms: int, report: OnProgress = unseen) -> int:
    """Remove the rows of all queued entries; return the number of commits. Idempotent, and may crash anywhere.

    Cold objects are due at `cold_due_ms` and not before the journal says that they are gone. A read-only store is
    left as it is.
    """
    commits, taken = 0, Meter(report, noun="record")
    while _is_queued(metadata):
        with metadata.write() as txn:
            records = RemovalBatch(txn, cold_due_ms, BATCH_RECORDS).take_queued()
        commits += 1
        taken(0, "deleting removed directories", records)
    return commits


def _is_queued(metadata: MetadataStore) -> bool:
    with metadata.read() as txn:
        store = txn.store
        may_change = not (store.replica or store.journal.fenced_by_epoch)
        return may_change and directories.next_queued(txn) is not None


class RemovalBatch:
    """One commit's share of removals, bounded in records."""

    def __init__(self, txn: WriteTransaction, cold_due_ms: int, records: int) -> None:
        self._txn = txn
        self._cold_due_ms = cold_due_ms
        self._records = self._left = records

    def take_queued(self) -> int:
        """Remove queued entries until the batch is full or the queue is empty; return the number of records."""
        while self._left > 0 and (entry := directories.next_queued(self._txn)) is not None:
            self.remove(ROOT_DIRECTORY, entry)
        return self._records - self._left

    def remove(self, parent_id: DirectoryId, entry: Entry) -> bool:
        """Remove an entry and everything below it, children first; False when the batch is full before that."""
        whole = self._directory(entry) if entry.kind is EntryKind.DIRECTORY else self._segment(entry)
        if whole:
            self._left -= 1
            self._txn.delete(POLICIES.name, tables.u64(entry.id))
            directories.remove_entry(self._txn, parent_id, entry.name)
        return whole

    def _directory(self, entry: Entry) -> bool:
        directory_id = DirectoryId(entry.id)
        for child in list(islice(directories.entries(self._txn, directory_id), self._left)):
            if self._left <= 0 or not self.remove(directory_id, child):
                return False
        if self._left <= 0 or not directories.is_empty(self._txn, directory_id):
            return False
        self._txn.delete(DIRECTORIES.name, tables.u64(entry.id))
        changes.directory_removed(self._txn, entry.id)
        return True

    def _segment(self, entry: Entry) -> bool:
        txn = self._txn
        segment: SegmentRecord = txn.must_get(SEGMENTS, tables.u64(entry.id), f"segment {names.printable(entry.name)}")
        if segment.local.count + segment.cold.count >= self._left:
            self._shorten(segment)
            return False
        sequence = changes.segment_removed(txn, segment.id)
        for tier in Tier:
            segment = self._drop(segment, tier, segment.tier_state(tier).count, sequence)
        streams.unlink(txn, segment)
        if segment.kind is SegmentKind.LEDGER:
            ledger = entries.find(txn, segment.id)
            ledger_attempts.discard(txn, ledger, due_ms=self._cold_due_ms, after_sequence=sequence)
        if segment.kind is SegmentKind.LEDGER:
            copies_elsewhere.owe(txn, segment)
        entries.forget(txn, segment)
        txn.delete(SEGMENTS.name, tables.u64(segment.id))
        txn.touch(inode=segment.inode, segment_id=segment.id)
        return True

    def _shorten(self, segment: SegmentRecord) -> None:
        """Remove as many chunks as the batch has room for; the segment itself goes with its last ones."""
        if segment.status is not SegmentStatus.DELETED:
            streams.unlink(self._txn, segment)
            segment = directories.bury(self._txn, segment)
        for tier in Tier:
            first = islice(chains.chunks(self._txn, segment.id, tier), self._left)
            starts = [chunk.start_offset for chunk in first] if tier is Tier.COLD else []
            sequence = changes.cold_unlinked(self._txn, segment.id, starts)
            segment = self._drop(segment, tier, self._left, sequence)
        self._txn.put(SEGMENTS, tables.u64(segment.id), segment)

    def _drop(self, segment: SegmentRecord, tier: Tier, count: int, sequence: int) -> SegmentRecord:
        removed = list(islice(chains.chunks(self._txn, segment.id, tier), count))
        self._left -= len(removed)
        due_ms, after = (self._cold_due_ms, sequence) if tier is Tier.COLD else (self._txn.now_ms, 0)
        return Editor(self._txn, segment).remove(tier, removed, due_ms=due_ms, after_sequence=after).segment


@dataclass(frozen=True, slots=True)
class Deletion:
    """The effect of a delete, done or planned."""

    segments: int = 0
    directories: int = 0
    local_chunks: int = 0
    local_bytes: int = 0
    cold_bytes: int = 0
    cold_chunks: int = 0
    bytes: int = 0
    """Readable ones."""
    uncovered_bytes: int = 0
    """Bytes that no cold chunk holds."""
    active_bytes: int = 0
    """Those of them in chunks that were still appended to."""
    trash_due_ms: int = 0
    """End of its time in the trash; 0: it cannot be restored."""

    @property
    def sums(self) -> Removal:
        """The sums as those of a removal."""
        return Removal(
            segments=self.segments,
            directories=self.directories,
            bytes=self.bytes,
            local_bytes=self.local_bytes,
            cold_bytes=self.cold_bytes,
            uncovered_bytes=self.uncovered_bytes,
            active_bytes=self.active_bytes,
        )

    @property
    def records(self) -> int:
        """Return the number of records to remove."""
        return self.segments + self.directories + self.local_chunks + self.cold_chunks

    def plus(self, segment: SegmentRecord) -> Deletion:
        """Return the sums with one more segment."""
        return replace(
            self,
            segments=self.segments + 1,
            local_chunks=self.local_chunks + segment.local.count,
            local_bytes=self.local_bytes + segment.local.bytes,
            cold_bytes=self.cold_bytes + segment.cold.bytes,
            cold_chunks=self.cold_chunks + segment.cold.count,
            bytes=self.bytes + segment.range.length_bytes,
            uncovered_bytes=self.uncovered_bytes + segment.uncovered_bytes,
            active_bytes=self.active_bytes + segment.growing_bytes,
        )


def plan(
    txn: ReadTransaction, path: str, *, recursive: bool, writer_locks: WriterLocks | None = None
) -> tuple[Entry, Deletion]:
    """Return the entry at `path` and the effect of deleting it.

    Raises NotFound, IsDirectory without `recursive`, InvalidRequest for the root, and with `writer_locks`
    Conflict naming a live writer in another process.
    """
    entry = directories.must_find(txn, path)
    if not names.split(path):
        raise InvalidRequest("the root directory cannot be deleted")
    if entry.kind is EntryKind.DIRECTORY and not recursive:
        raise IsDirectory(f"{names.printable(path)} is a directory", remedy=f"tierfs rm -r {names.printable(path)}")
    return entry, count(txn, entry, writer_locks)


def delete(
    metadata: MetadataStore,
    writer_locks: WriterLocks,
    path: str,
    *,
    recursive: bool,
    cold_due_ms: int,
    to_trash: bool = False,
    report: OnProgress = unseen,
) -> Deletion:
    """Delete a segment, or a directory with everything below it. The name is gone in one commit.

    With `to_trash` it can be restored for as long as its policy says, and nothing else of it changes. Else local files
    are due for deletion at once, cold objects at `cold_due_ms` and not before the journal says that they are gone.
    Raises as `plan`. A writer that opens a segment of a large directory while it is counted finds its segment deleted.
    """
    with metadata.read() as view:
        _, expected = plan(view, path, recursive=recursive, writer_locks=writer_locks)
    with metadata.write() as txn:
        entry, parent_id = directories.must_find(txn, path), _parent_id(txn, path)
        again = expected.records <= BATCH_RECORDS or entry.kind is EntryKind.SEGMENT
        deletion = count(txn, entry, writer_locks) if again else expected
        deletion = _remove(txn, parent_id, entry, deletion, cold_due_ms, to_trash=to_trash)
    dismantle_removed(metadata, cold_due_ms=cold_due_ms, report=report)
    return deletion


def _parent_id(txn: ReadTransaction, path: str) -> DirectoryId:
    return DirectoryId(directories.must_find(txn, names.join(names.split(path)[:-1])).id)


def count(txn: ReadTransaction, entry: Entry, writer_locks: WriterLocks | None = None) -> Deletion:
    """Count an entry and everything below it. With `writer_locks`, raises Conflict for a live writer elsewhere."""
    return _count(txn, entry, Deletion(), writer_locks)


def _queue(txn: WriteTransaction, parent_id: DirectoryId, entry: Entry) -> None:
    segment = txn.get(SEGMENTS, tables.u64(entry.id)) if entry.kind is EntryKind.SEGMENT else None
    if segment is not None:
        streams.unlink(txn, segment)
    directories.queue(txn, parent_id, entry)


def _count(txn: ReadTransaction, entry: Entry, deletion: Deletion, writer_locks: WriterLocks | None) -> Deletion:
    """Return `deletion` plus an entry and everything below it. Raises Conflict for a live writer elsewhere."""
    if entry.kind is EntryKind.SEGMENT:
        segment = txn.must_get(SEGMENTS, tables.u64(entry.id), f"segment {names.printable(entry.name)}")
        if writer_locks is not None:
            ownership.require_no_writer_elsewhere(txn, segment, writer_locks)
        return deletion.plus(segment)
    for child in directories.entries(txn, DirectoryId(entry.id)):
        deletion = _count(txn, child, deletion, writer_locks)
    return replace(deletion, directories=deletion.directories + 1)


def forget(txn: WriteTransaction, segment: SegmentRecord) -> None:
    """Remove the name and the record of a segment after its chunks were moved to another one."""
    streams.unlink(txn, segment)
    changes.segment_removed(txn, segment.id)
    txn.delete(SEGMENTS.name, tables.u64(segment.id))
    txn.delete(POLICIES.name, tables.u64(segment.id))
    directories.remove_entry(txn, segment.parent_id, segment.name)
    txn.touch(inode=segment.inode, segment_id=segment.id)


def remove_segment(
    txn: WriteTransaction,
    writer_locks: WriterLocks,
    segment: SegmentRecord,
    *,
    cold_due_ms: int,
    to_trash: bool = False,
) -> Deletion:
    """Delete one segment inside a transaction; a large one loses its name, `dismantle_removed` removes its rows.

    `to_trash` as in `delete`. Raises Conflict naming a live writer in another process.
    """
    entry = Entry(segment.name, EntryKind.SEGMENT, segment.id)
    deletion = count(txn, entry, writer_locks)
    return _remove(txn, segment.parent_id, entry, deletion, cold_due_ms, to_trash=to_trash)


def _remove(
    txn: WriteTransaction, parent_id: DirectoryId, entry: Entry, deletion: Deletion, cold_due_ms: int, *, to_trash: bool
) -> Deletion:
    """Move an entry into the trash, remove all of it if it is small, or only its name."""
    age_s = trash.age_s(txn, entry) if to_trash else 0
    if age_s:
        return replace(deletion, trash_due_ms=trash.put(txn, parent_id, entry, deletion.sums, age_s).due_ms)
    if deletion.records <= BATCH_RECORDS:
        is_removed = RemovalBatch(txn, cold_due_ms, BATCH_RECORDS + 1).remove(parent_id, entry)
        assert is_removed
    else:
        _queue(txn, parent_id, entry)
    return deletion
