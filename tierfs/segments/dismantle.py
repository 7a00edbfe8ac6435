"""Taking apart what was removed by name, in commits of bounded size. Any process may, and several at once."""

from __future__ import annotations

from itertools import islice

from tierfs import names
from tierfs.metadata import chains, directories, journal, keys, ledgers, removals
from tierfs.metadata.directories import Entry
from tierfs.metadata.records import SegmentRecord
from tierfs.metadata.store import MetadataStore
from tierfs.metadata.tables import DIRECTORIES, POLICIES, SEGMENTS
from tierfs.metadata.transaction import WriteTransaction
from tierfs.segments import ledger_attempts, streams
from tierfs.types import ROOT_DIRECTORY, DirectoryId, EntryKind, SegmentKind, SegmentStatus, Tier

BATCH_RECORDS = 1000
"""Segments, directories and chunks taken apart per commit: some 100 ms, which is how long an append may wait."""


def dismantle(metadata: MetadataStore, *, cold_due_ms: int) -> int:
    """Take apart all that is queued; returns the number of commits. Idempotent, and ends at any crash.

    Cold objects are due at `cold_due_ms` and not before the journal says that they are gone. A store that may
    only be read is left as it is.
    """
    commits = 0
    while _is_queued(metadata):
        with metadata.write() as txn:
            Batch(txn, cold_due_ms, BATCH_RECORDS).take_queued()
        commits += 1
    return commits


def _is_queued(metadata: MetadataStore) -> bool:
    with metadata.read() as txn:
        store = txn.store
        may_change = not (store.replica or store.journal.fenced_by_epoch)
        return may_change and removals.next_queued(txn) is not None


class Batch:
    """One commit's share: at most so many records."""

    def __init__(self, txn: WriteTransaction, cold_due_ms: int, records: int) -> None:
        self._txn = txn
        self._cold_due_ms = cold_due_ms
        self._left = records

    def take_queued(self) -> None:
        """Take from the queue until the batch is full or the queue is empty."""
        while self._left > 0 and (entry := removals.next_queued(self._txn)) is not None:
            self.remove(ROOT_DIRECTORY, entry)

    def remove(self, parent_id: DirectoryId, entry: Entry) -> bool:
        """Remove an entry and everything below it, children first; False when the batch is full before that."""
        whole = self._directory(entry) if entry.kind is EntryKind.DIRECTORY else self._segment(entry)
        if whole:
            self._left -= 1
            self._txn.delete(POLICIES.name, keys.u64(entry.id))
            directories.remove_entry(self._txn, parent_id, entry.name)
        return whole

    def _directory(self, entry: Entry) -> bool:
        directory_id = DirectoryId(entry.id)
        for child in list(islice(directories.entries(self._txn, directory_id), self._left)):
            if self._left <= 0 or not self.remove(directory_id, child):
                return False
        if self._left <= 0 or not directories.is_empty(self._txn, directory_id):
            return False
        self._txn.delete(DIRECTORIES.name, keys.u64(entry.id))
        journal.directory_removed(self._txn, entry.id)
        return True

    def _segment(self, entry: Entry) -> bool:
        txn = self._txn
        segment: SegmentRecord = txn.must_get(SEGMENTS, keys.u64(entry.id), f"segment {names.printable(entry.name)}")
        if segment.local.count + segment.cold.count >= self._left:
            self._shorten(segment)
            return False
        sequence = journal.segment_removed(txn, segment.id)
        for tier in Tier:
            segment = self._drop(segment, tier, segment.tier_state(tier).count, sequence)
        streams.unlink(txn, segment)
        if segment.kind is SegmentKind.LEDGER:
            ledger_attempts.discard(txn, ledgers.find(txn, segment.id))
        ledgers.forget(txn, segment)
        txn.delete(SEGMENTS.name, keys.u64(segment.id))
        txn.touch(inode=segment.inode, segment_id=segment.id)
        return True

    def _shorten(self, segment: SegmentRecord) -> None:
        """As many chunks as the batch has room for; the segment itself goes with its last ones."""
        if segment.status is not SegmentStatus.DELETED:
            streams.unlink(self._txn, segment)
            segment = removals.bury(self._txn, segment)
        for tier in Tier:
            first = islice(chains.chunks(self._txn, segment.id, tier), self._left)
            starts = [chunk.start_offset for chunk in first] if tier is Tier.COLD else []
            sequence = journal.cold_unlinked(self._txn, segment.id, starts)
            segment = self._drop(segment, tier, self._left, sequence)
        self._txn.put(SEGMENTS, keys.u64(segment.id), segment)

    def _drop(self, segment: SegmentRecord, tier: Tier, count: int, sequence: int) -> SegmentRecord:
        removed = list(islice(chains.chunks(self._txn, segment.id, tier), count))
        self._left -= len(removed)
        cold = tier is Tier.COLD
        due_ms = self._cold_due_ms if cold else self._txn.now_ms
        after = sequence if cold else 0
        return chains.remove(self._txn, segment, tier, removed, due_ms=due_ms, after_sequence=after)
