"""After a loss (design §6): segments end where the bucket does, and say what is gone.

Chunks behind the end of a segment are an unfinished concat and go; gaps become lost extents; the segment
ends with its last chunk. Offsets behind that may be written again, so writer epoch and inode are new.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import islice

from tierfs import names, ranges
from tierfs.metadata import batches, chain_edits, chains, changes, checksums, directories, tables, transaction
from tierfs.metadata.directories import Entry
from tierfs.metadata.records import ChunkRecord, GarbageRecord, SegmentRecord
from tierfs.metadata.store import MetadataStore
from tierfs.metadata.tables import CHECKSUMS, CHUNKS, GARBAGE, OBJECTS, SEGMENTS
from tierfs.metadata.transaction import ReadTransaction, WriteTransaction
from tierfs.segments import delete
from tierfs.types import ByteRange, EntryKind, Inode, ObjectId, SegmentId, Tier

_BATCH_SEGMENTS = 500
"""Per transaction: some thousand rows, committed in well under a second."""

_BATCH_GARBAGE = 5000


@dataclass(frozen=True, slots=True)
class SegmentLoss:
    """What a segment is after the loss."""

    segment: str
    start_offset: int
    length: int
    sealed: bool
    cut_bytes: int
    """How much shorter it is than the journal said. Bytes appended to an open one since then nobody knows of."""
    lost: tuple[ByteRange, ...]
    """What is missing inside."""

    @property
    def is_whole(self) -> bool:
        """Whether it is known to be complete: it was sealed, and nothing is missing."""
        return self.sealed and not self.cut_bytes and not self.lost


@dataclass(slots=True)
class _Found:
    """A cold chain against its segment's record."""

    start: int
    held: list[ByteRange] = field(default_factory=list)
    lost: list[ByteRange] = field(default_factory=list)
    beyond: list[ChunkRecord] = field(default_factory=list)
    """Chunks outside the segment, or partly behind its end."""

    @property
    def end(self) -> int:
        """Where the last of its bytes is."""
        return self.held[-1].end if self.held else self.start

    @property
    def gaps(self) -> list[ByteRange]:
        """What is missing before that."""
        return list(ranges.gaps(ByteRange(self.start, self.end), self.held))


def settle(metadata: MetadataStore, *, grace_ms: int) -> Iterator[SegmentLoss]:
    """Settle every segment, some hundred in each transaction; what it drops is due after `grace_ms`.

    Of segments that were removed and are still to be taken apart nothing is told.
    """

    def work(txn: WriteTransaction, rows: list[tuple[bytes, SegmentRecord]]) -> list[SegmentLoss]:
        return [_settle(txn, segment, txn.now_ms + grace_ms) for _, segment in rows]

    for losses in transaction.batches(metadata.write, SEGMENTS, _BATCH_SEGMENTS, work):
        yield from (one for one in losses if not names.is_removed(one.segment))


def undo_batches(metadata: MetadataStore, *, grace_ms: int) -> int:
    """Take away what a journal told of batches that it ended in; returns how many batches there were.

    Nobody was told that they are committed. Their segments go like deleted ones, objects after `grace_ms`.
    """
    with metadata.read() as view:
        begun = batches.begun(view)
    for record in begun:
        with metadata.write() as txn:
            for number in record.segment_ids:
                segment = directories.segment(txn, SegmentId(number))
                if segment is not None:
                    directories.queue(txn, segment.parent_id, Entry(segment.name, EntryKind.SEGMENT, segment.id))
            batches.drop(txn, record)
    if begun:
        delete.dismantle_removed(metadata, cold_due_ms=metadata.clock.now_ms() + grace_ms)
    return len(begun)


def drop_false_garbage(metadata: MetadataStore) -> int:
    """Forget garbage whose object is linked: a journal that ends in the middle of a change may name both."""

    def work(txn: WriteTransaction, rows: list[tuple[bytes, GarbageRecord]]) -> int:
        linked = [key for key, row in rows if row.object_id and txn.get(OBJECTS, tables.u64(row.object_id)) is not None]
        return sum(txn.delete(GARBAGE.name, key) for key in linked)

    return sum(transaction.batches(metadata.write, GARBAGE, _BATCH_GARBAGE, work))


def drop_unlinked_checksums(metadata: MetadataStore) -> int:
    """Forget checksums of objects that a journal ended before it linked; returns how many objects there were."""
    dropped, after = 0, 0
    while True:
        with metadata.write() as txn:
            numbers = list(islice(_objects_with_checksums(txn, after), _BATCH_GARBAGE))
            for number in numbers:
                if txn.get_raw(OBJECTS.name, tables.u64(number)) is None:
                    checksums.delete(txn, number)
                    dropped += 1
        if len(numbers) < _BATCH_GARBAGE:
            return dropped
        after = numbers[-1]


def _objects_with_checksums(txn: ReadTransaction, after: int) -> Iterator[ObjectId]:
    """Ids of objects behind `after` that have a run, one seek each."""
    while (key := next((key for key, _ in txn.scan_raw(CHECKSUMS.name, tables.u64(after + 1))), None)) is not None:
        after = tables.read_u64(key)
        yield ObjectId(after)


def _settle(txn: WriteTransaction, before: SegmentRecord, due_ms: int) -> SegmentLoss:
    found = _look(txn, before)
    segment = replace(
        before,
        length=found.end,
        inode=Inode(txn.allocate_id()),
        writer_epoch=before.writer_epoch + 1,
        generation=before.generation + 1,
        recovered_ms=txn.now_ms,
        changed_ms=txn.now_ms,
    )
    changes.segment_changed(txn, segment)
    segment, gaps = _drop(txn, segment, found.beyond, due_ms), found.gaps
    segment = chain_edits.fill_gaps(txn, segment, gaps)
    txn.put(SEGMENTS, tables.u64(segment.id), segment)
    return SegmentLoss(
        segment=directories.path_of(txn, segment.parent_id, segment.name),
        start_offset=segment.start_offset,
        length=segment.length,
        sealed=segment.sealed,
        cut_bytes=before.length - segment.length,
        lost=tuple(sorted([*found.lost, *gaps])),
    )


def _look(txn: ReadTransaction, segment: SegmentRecord) -> _Found:
    """Walk the chain once."""
    found = _Found(segment.start_offset)
    for chunk in chains.chunks(txn, segment.id, Tier.COLD):
        readable = chunk.range.intersect(segment.range)
        if not readable or chunk.end_offset > segment.length:
            found.beyond.append(chunk)
        if not readable:
            continue
        ranges.add(found.held, readable)
        if chunk.lost:
            found.lost.append(readable)
    return found


def _drop(txn: WriteTransaction, segment: SegmentRecord, beyond: list[ChunkRecord], due_ms: int) -> SegmentRecord:
    """Unlink chunks outside the segment; of one that reaches over its end the part before it stays."""
    if not beyond:
        return segment
    after = changes.cold_unlinked(txn, segment.id, [chunk.start_offset for chunk in beyond])
    for chunk in reversed(beyond):
        if chunk.range.intersect(segment.range):
            segment = _cut(txn, segment, chunk)
        else:
            segment = chains.remove(txn, segment, Tier.COLD, [chunk], due_ms=due_ms, after_sequence=after)
    return segment


def _cut(txn: WriteTransaction, segment: SegmentRecord, chunk: ChunkRecord) -> SegmentRecord:
    """Let the last chunk end where the segment does; it keeps its reference."""
    shorter = replace(chunk, length=segment.length - chunk.start_offset, next=0)
    txn.put(CHUNKS, tables.chunk(segment.id, Tier.COLD, shorter.start_offset), shorter)
    changes.cold_linked(txn, segment.id, (shorter,), (chains.object_of(txn, chunk),) if chunk.object_id else ())
    held = segment.cold.bytes - chunk.held_bytes + shorter.held_bytes
    return replace(segment, cold=replace(segment.cold, bytes=held))
