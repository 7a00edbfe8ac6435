"""Appending: bytes into the active chunk, splitting exactly at the chunk limit, then one group commit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tierfs.base.bytes.byte_times import NO_TIMES
from tierfs.base.bytes.checksum import Buffer
from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words.errors import OffsetMismatch
from tierfs.base.words.names import printable
from tierfs.base.words.types import ByteRange, ObjectId, SegmentId, Tier
from tierfs.engine.metadata import append_keys, chains, checksums, entries, followed, tables
from tierfs.engine.metadata.chain_edits import Editor
from tierfs.engine.metadata.chains import Growth
from tierfs.engine.metadata.records import ChunkRecord, ObjectRecord, SegmentRecord
from tierfs.engine.metadata.tables import OBJECTS, SEGMENTS
from tierfs.engine.metadata.transaction import WriteTransaction
from tierfs.engine.segments import ownership, sealed_record
from tierfs.engine.segments.active_chunk import ActiveChunk, ChunkDescriptors
from tierfs.engine.segments.group_commit import AppendCall, PendingCommit
from tierfs.engine.segments.ownership import StaleBase


@dataclass(frozen=True, slots=True)
class AppendPiece:
    """The part of the calls of one group that went into one chunk file."""

    chunk: ActiveChunk
    length: int
    first_block: int
    """The first of its blocks; the last one may be partial."""
    block_crcs: tuple[int, ...]
    crc32c: int
    """Of the whole chunk file."""
    begins_chunk: bool
    fills_chunk: bool


@dataclass(frozen=True, slots=True)
class Writing:
    """The writer's view of its segment when it wrote the calls of a group."""

    segment_id: SegmentId
    name: str
    stream: tuple[int, str]
    """Its directory's id, and the name of the stream in it."""
    epoch: int
    base_length: int
    removals: int
    """The store's count of removals and renames when the segment was last seen not to be among them, nor below one."""
    in_chunk: bool
    """Whether the writer continues in a chunk file; false after a failed sync, as the file is no longer trusted."""


class PendingAppend(PendingCommit):
    """Appends of one writer on their way to the commit.

    `last` of the newest one marks the chunk resumable, `seal` ends the segment.
    """

    def __init__(
        self,
        writing: Writing,
        calls: Sequence[AppendCall],
        pieces: Sequence[AppendPiece],
        descriptors: ChunkDescriptors,
    ) -> None:
        """Keep the calls, and the bytes of all of them as they were written."""
        chunks: list[ActiveChunk] = []
        begun: list[ActiveChunk] = []
        self.filled: list[ActiveChunk] = []
        for piece in pieces:
            chunks.append(piece.chunk)
            if piece.begins_chunk:
                begun.append(piece.chunk)
            if piece.fills_chunk:
                self.filled.append(piece.chunk)
        super().__init__(calls, chunks, begun)
        self._descriptors = descriptors
        self._writing = writing
        self._pieces = pieces
        self.removals = writing.removals
        self.stream = writing.stream
        """Of the segment in this commit: it may have another name than its writer knows."""
        self.last = calls[-1].last
        self.seal = calls[-1].seal

    @property
    def segment_id(self) -> SegmentId:
        """The segment."""
        return self._writing.segment_id

    @property
    def name(self) -> str:
        """The name by which its writer knows the segment."""
        return self._writing.name

    @property
    def range(self) -> ByteRange:
        """The segment's bytes that the calls add."""
        return ByteRange(self._writing.base_length, self.calls[-1].range.end)

    def apply(self, txn: WriteTransaction) -> None:
        """Link new chunks, grow the active one, and move the length; revalidate everything first."""
        self.removals, seen = txn.store.removals, self._writing.removals
        if self.removals == seen and self._grows_only() and self._has_names() and chains.grow(txn, self._growth()):
            self._append_entries(txn, self._writing.segment_id)
        else:
            self._change(txn)
        for call in self.calls:
            if call.key is not None:
                append_keys.note(txn, *self.stream, call.key, self.segment_id, call.range)
            if call.followed is not None:
                followed.note(txn, *self.stream, call.followed, call.range)

    def _change(self, txn: WriteTransaction) -> None:
        writing = self._writing
        segment = ownership.require_current(txn, writing.segment_id, writing.epoch, writing.name)
        self.stream = (segment.parent_id, segment.stream)
        last = self._revalidate(txn, segment)
        for piece in self._pieces:
            segment = _begin(txn, segment, piece) if last is None else _grow(txn, segment, last, piece)
            last = None  # only the first piece continues a chunk
        if segment.active and not writing.in_chunk:
            segment = replace(segment, active=False, generation=segment.generation + 1)
            txn.touch(segment_id=segment.id)
        self._append_entries(txn, segment.id)
        resumable = self.last and segment.active
        if self._pieces:
            first_byte_ms = segment.began_ms if writing.base_length > segment.first_offset else txn.now_ms
            segment = replace(segment, resumable=resumable, modified_ms=txn.now_ms, first_byte_ms=first_byte_ms)
        else:
            segment = replace(segment, resumable=resumable)
        if self.seal:
            sealed_record.write(txn, segment)
        else:
            txn.put(SEGMENTS, tables.u64(segment.id), segment)

    def _grows_only(self) -> bool:
        """Return whether the append does no more than most do: it continues a chunk that has room for more."""
        if self.seal or len(self._pieces) != 1:
            return False
        return not self._pieces[0].begins_chunk and not self._pieces[0].fills_chunk

    def _growth(self) -> Growth:
        writing, piece = self._writing, self._pieces[0]
        return Growth(
            segment_id=writing.segment_id,
            writer_epoch=writing.epoch,
            segment_length=writing.base_length,
            object_id=piece.chunk.object_id,
            length=piece.length,
            crc32c=piece.crc32c,
            first_block=piece.first_block,
            block_crcs=piece.block_crcs,
            resumable=self.last,
        )

    def _has_names(self) -> bool:
        return all(map(self._descriptors.has_name, self.chunks))

    def _append_entries(self, txn: WriteTransaction, segment_id: SegmentId) -> None:
        lengths: list[int] = []
        for call in self.calls:
            lengths.extend(call.entries)
        if not lengths:
            return
        entry_id = entries.append(txn, segment_id, self._writing.base_length, lengths)
        for call in self.calls:
            call.first_entry_id = entry_id
            entry_id += len(call.entries)

    def _revalidate(self, txn: WriteTransaction, segment: SegmentRecord) -> ChunkRecord | None:
        """Return the active chunk if the append continues it, else None.

        Raises StaleBase unless chunk and base length are those the bytes were written for, and all files still
        have their names: a file without one was taken for an orphan, inside a write transaction like this one.
        """
        if segment.length != self._writing.base_length:
            raise StaleBase("a preceding append failed")
        if not self._has_names():
            raise StaleBase("the chunk's file was deleted before the commit")
        if not self._pieces or self._pieces[0].begins_chunk:
            return None
        last = chains.chunk_at(txn, segment.id, Tier.LOCAL, segment.length)
        if not segment.active or last is None or last.object_id != self._pieces[0].chunk.object_id:
            raise StaleBase("the active chunk was sealed before the commit")
        return last


def _begin(txn: WriteTransaction, segment: SegmentRecord, piece: AppendPiece) -> SegmentRecord:
    chunk = piece.chunk
    chunk.object_id = ObjectId(txn.allocate_id())
    stored = ObjectRecord(
        id=chunk.object_id,
        tier=Tier.LOCAL,
        name=chunk.name,
        length=piece.length,
        crc32c=piece.crc32c,
        store_epoch=txn.store.store_epoch,
        created_ms=txn.now_ms,
        times=NO_TIMES.grown(piece.length, txn.now_ms, txn.now_ms),
    )
    record = ChunkRecord(start_offset=segment.length, length=piece.length, object_id=chunk.object_id)
    changed = Editor(txn, segment).insert(Tier.LOCAL, record, stored).segment
    checksums.write_blocks(txn, chunk.object_id, 0, piece.block_crcs)
    txn.touch(segment_id=segment.id)  # the holder is notified of new chunks only; it looks up growth itself
    return replace(changed, length=segment.length + piece.length, active=not piece.fills_chunk)


def _grow(txn: WriteTransaction, segment: SegmentRecord, last: ChunkRecord, piece: AppendPiece) -> SegmentRecord:
    stored = chains.object_of(txn, last)
    length = stored.length + piece.length
    times = stored.times.grown(length, stored.created_ms, txn.now_ms)
    grown = replace(stored, length=length, crc32c=piece.crc32c, times=times)
    txn.put(OBJECTS, tables.u64(stored.id), grown)
    checksums.write_blocks(txn, grown.id, piece.first_block, piece.block_crcs)
    changed = Editor(txn, segment).grow_last(last, piece.length).segment
    return replace(changed, length=segment.length + piece.length, active=not piece.fills_chunk)


def split(data: Buffer, room_bytes: int, chunk_bytes: int) -> list[memoryview]:
    """Cut data where chunks end: first at `room_bytes` (0: the chunk is full), then every `chunk_bytes`."""
    view = memoryview(data).cast("B")
    cuts = []
    while view:
        room_bytes = room_bytes or chunk_bytes
        cuts.append(view[:room_bytes])
        view, room_bytes = view[room_bytes:], 0
    return cuts


def joined(parts: Sequence[Buffer], size_bytes: int) -> list[Buffer]:
    """Join neighbours that have no more than `size_bytes` together; larger ones stay as they are."""
    parts_joined: list[Buffer] = []
    waiting: list[Buffer] = []
    room = size_bytes
    for part in parts:
        if len(part) > room and waiting:
            parts_joined.append(b"".join(waiting))
            waiting, room = [], size_bytes
        if len(part) > size_bytes:
            parts_joined.append(part)
        else:
            waiting.append(part)
            room -= len(part)
    if waiting:
        parts_joined.append(waiting[0] if len(waiting) == 1 else b"".join(waiting))
    return parts_joined


def require_offset(name: str, expected_offset: int | None, length: int) -> None:
    """Raise OffsetMismatch for a conditional append at another offset than the end; it names the true length."""
    if expected_offset is not None and expected_offset != length:
        raise OffsetMismatch(
            f"cannot append to {printable(name)} at {expected_offset}: its length is {length}",
            actual_length=length,
            remedy=f"append with --expect-offset {length}",
        )
