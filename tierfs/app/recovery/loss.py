"""Settle segments after a loss (design §6): each ends where its bytes in the bucket do, and records its gaps.

Chunks after the end of a segment are an unfinished concat and are unlinked; gaps become lost extents; the segment
ends with its last chunk. Offsets after that may be written again, so writer epoch and inode are new. A sealed segment
of which nothing is missing stays as it is: in most stores nearly all of them are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

from tierfs.base.bytes import ranges, recoveries
from tierfs.base.bytes.frozen import dataclass, field
from tierfs.base.words import names
from tierfs.base.words.types import (
    ROOT_DIRECTORY,
    ByteRange,
    ChunkState,
    DirectoryId,
    EntryKind,
    Inode,
    ObjectId,
    SegmentId,
    SegmentStatus,
    Tier,
)
from tierfs.engine.metadata import batches, chains, changes, checksums, directories, row_batches, tables
from tierfs.engine.metadata import records_pb2 as pb
from tierfs.engine.metadata.chain_edits import Editor
from tierfs.engine.metadata.directories import Entry
from tierfs.engine.metadata.records import ChunkRecord, GarbageRecord, SegmentRecord
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.tables import CHECKSUMS, CHUNKS, GARBAGE, OBJECTS, SEGMENTS
from tierfs.engine.metadata.transaction import ReadTransaction, WriteTransaction
from tierfs.engine.segments import delete, trash

# Segments per transaction: some thousand rows, committed in well under a second.
_BATCH_SEGMENTS = 500

_BATCH_GARBAGE = 5000


@dataclass(frozen=True, slots=True)
class SegmentLoss:
    """A segment after the loss."""

    segment: str
    start_offset: int
    length: int
    sealed: bool
    cut_bytes: int
    """Bytes that the journal named beyond the new end. Later appends to an open segment are unknown."""
    lost: tuple[ByteRange, ...]
    """Missing ranges inside the segment."""

    @property
    def is_whole(self) -> bool:
        """Whether it is known to be complete: it was sealed, and nothing is missing."""
        return self.sealed and not self.cut_bytes and not self.lost


@dataclass(slots=True)
class _ColdChain:
    """The ranges of a cold chain, compared with the segment's record."""

    start: int
    held: list[ByteRange] = field(default_factory=list)
    lost: list[ByteRange] = field(default_factory=list)
    beyond: list[ChunkRecord] = field(default_factory=list)
    """Chunks outside the segment, or partly after its end."""

    @property
    def end(self) -> int:
        """Offset after the last byte of the chain."""
        return self.held[-1].end if self.held else self.start

    @property
    def gaps(self) -> list[ByteRange]:
        """Missing ranges before the end."""
        return list(ranges.gaps(ByteRange(self.start, self.end), self.held))

    def is_all_of(self, segment: SegmentRecord) -> bool:
        """Return whether the chain is that of the segment's record: no byte is missing at its end, and none is more."""
        return self.end == segment.length and not self.gaps and not self.beyond


def settle(metadata: MetadataStore, *, grace_ms: int, keeps_inodes: bool = False) -> Iterator[SegmentLoss]:
    """Settle every segment, some hundred per transaction, and yield the results; objects are due after `grace_ms`.

    `keeps_inodes`: whoever reads here has seen no byte that is lost, as in the mount of a replica, and reads on.
    Segments that were removed, in the trash or not, are settled, but not yielded.
    """

    def work(txn: WriteTransaction, rows: list[tuple[bytes, bytes]]) -> list[SegmentLoss]:
        due_ms, paths = txn.now_ms + grace_ms, _Paths(txn)
        return [
            _whole(txn, data, paths)
            or _settle(txn, SEGMENTS.codec.decode(data), due_ms, paths, keeps_inode=keeps_inodes)
            for _, data in rows
        ]

    for losses in row_batches.raw_batches(metadata.write, SEGMENTS.name, _BATCH_SEGMENTS, work):
        yield from (loss for loss in losses if not names.is_removed(loss.segment))
    _recount_trash(metadata)


def _recount_trash(metadata: MetadataStore) -> None:
    """Take what was lost out of the sums of removals."""
    with metadata.read() as view:
        entries = [each.entry for each in trash.removed(view)]
    for entry in entries:
        with metadata.write() as txn:
            trash.recount(txn, entry, delete.count(txn, entry).sums)


def undo_batches(metadata: MetadataStore, *, grace_ms: int) -> int:
    """Undo the batches that a journal begins and does not end; return their number.

    Their commit was never acknowledged. Their segments are deleted, with objects due after `grace_ms`.
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
    """Drop garbage whose object is linked, and return their number: a journal cut inside a change may name both."""

    def linked(txn: ReadTransaction, rows: list[tuple[bytes, GarbageRecord]]) -> list[bytes]:
        return [key for key, row in rows if row.object_id and txn.get(OBJECTS, tables.u64(row.object_id)) is not None]

    dropped = 0
    for keys in row_batches.batches(metadata.read, GARBAGE, _BATCH_GARBAGE, linked):
        if keys:
            with metadata.write() as txn:
                dropped += sum(txn.delete(GARBAGE.name, key) for key in keys)
    return dropped


def drop_unlinked_checksums(metadata: MetadataStore) -> int:
    """Drop checksums of objects that a cut journal never linked; return the number of objects."""
    dropped, after = 0, 0
    while True:
        with metadata.read() as view:
            numbers = list(islice(_objects_with_checksums(view, after), _BATCH_GARBAGE))
            unlinked = [number for number in numbers if view.get_raw(OBJECTS.name, tables.u64(number)) is None]
        if unlinked:
            with metadata.write() as txn:
                for number in unlinked:
                    checksums.delete(txn, number)
            dropped += len(unlinked)
        if len(numbers) < _BATCH_GARBAGE:
            return dropped
        after = numbers[-1]


def _objects_with_checksums(txn: ReadTransaction, after: int) -> Iterator[ObjectId]:
    """Yield the ids of objects after `after` that have a run, one seek each."""
    while (key := next((key for key, _ in txn.scan_raw(CHECKSUMS.name, tables.u64(after + 1))), None)) is not None:
        after = tables.read_u64(key)
        yield ObjectId(after)


class _Paths:
    """Full names of segments, of which many are in one directory: its path is climbed once."""

    def __init__(self, txn: ReadTransaction) -> None:
        self._txn = txn
        self._above: dict[int, str] = {ROOT_DIRECTORY: ""}
        """By directory: what precedes the names in it."""

    def of(self, segment: SegmentRecord | pb.SegmentRecord) -> str:
        """Return the full name of a segment."""
        above = self._above.get(segment.parent_id)
        if above is None:
            parent = directories.directory(self._txn, DirectoryId(segment.parent_id))
            above = f"{directories.path_of(self._txn, parent.parent_id, parent.name)}/"
            self._above[parent.id] = above
        name: str = segment.name
        return above + name


def _whole(txn: ReadTransaction, data: bytes, paths: _Paths) -> SegmentLoss | None:
    """Return the result for a sealed segment that is one cold chunk, of which no byte is lost; None for any other one.

    Of messages, as most segments of a store of many are so: `_settle` does the same in three times as long.
    """
    segment = SEGMENTS.codec.message(data)
    if segment.status == SegmentStatus.OPEN:
        return None
    prefix = tables.chunk_prefix(segment.id, Tier.COLD)
    rows = [row for _, row in islice(txn.scan_raw(CHUNKS.name, prefix, prefix=prefix), 2)]
    chunk = CHUNKS.codec.message(rows[0]) if len(rows) == 1 else None
    if chunk is None or chunk.state == ChunkState.LOST or chunk.start_offset != segment.start_offset:
        return None
    if chunk.start_offset + chunk.length != segment.length:
        return None
    return SegmentLoss(
        segment=paths.of(segment),
        start_offset=segment.start_offset,
        length=segment.length,
        sealed=True,
        cut_bytes=0,
        lost=(),
    )


def _settle(
    txn: WriteTransaction, before: SegmentRecord, due_ms: int, paths: _Paths, *, keeps_inode: bool
) -> SegmentLoss:
    cold, segment = _cold_chain(txn, before), before
    # Sealed and all in the bucket: the previous owner had no other byte of it, and who unseals it makes another file.
    if not (before.sealed and cold.is_all_of(before)):
        segment = _settled(txn, before, cold, due_ms, keeps_inode=keeps_inode)
    return SegmentLoss(
        segment=paths.of(segment),
        start_offset=segment.start_offset,
        length=segment.length,
        sealed=segment.sealed,
        cut_bytes=before.length - segment.length,
        lost=tuple(sorted([*cold.lost, *cold.gaps])),
    )


def _settled(
    txn: WriteTransaction, before: SegmentRecord, cold: _ColdChain, due_ms: int, *, keeps_inode: bool
) -> SegmentRecord:
    """End a segment where its chain does, as another file, and return it."""
    number = txn.allocate_id()
    segment = replace(
        before,
        length=cold.end,
        joins=before.joins.until(cold.end) if before.joins.names else before.joins,
        inode=before.inode if keeps_inode else Inode(number),
        writer_epoch=before.writer_epoch + 1,
        generation=before.generation + 1,
        recovered_ms=txn.now_ms,
        recoveries=recoveries.added(before.recoveries, number, cold.end),
        changed_ms=txn.now_ms,
    )
    gaps = cold.gaps
    if not (gaps or cold.beyond):
        changes.put_segment(txn, segment)
        return segment
    changes.segment_changed(txn, segment)
    editor = Editor(txn, segment)
    _drop(txn, editor, cold.beyond, due_ms)
    segment = editor.fill_gaps(gaps).segment
    txn.put(SEGMENTS, tables.u64(segment.id), segment)
    return segment


def _cold_chain(txn: ReadTransaction, segment: SegmentRecord) -> _ColdChain:
    """Compare the chain with the segment's record, in one walk."""
    cold = _ColdChain(segment.start_offset)
    for chunk in chains.chunks(txn, segment.id, Tier.COLD):
        readable = chunk.range.intersect(segment.range)
        if not readable or chunk.end_offset > segment.length:
            cold.beyond.append(chunk)
        if not readable:
            continue
        ranges.add(cold.held, readable)
        if chunk.lost:
            cold.lost.append(readable)
    return cold


def _drop(txn: WriteTransaction, editor: Editor, beyond: list[ChunkRecord], due_ms: int) -> None:
    """Unlink chunks outside the segment; cut one that crosses its end."""
    after = changes.cold_unlinked(txn, editor.segment.id, [chunk.start_offset for chunk in beyond])
    for chunk in reversed(beyond):
        if chunk.range.intersect(editor.segment.range):
            editor.cut_end(chunk)
        else:
            editor.remove(Tier.COLD, [chunk], due_ms=due_ms, after_sequence=after)
