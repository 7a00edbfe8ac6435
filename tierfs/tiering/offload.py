"""Offload: make one verified cold object of one OffloadAction, in the crash order of objects.py."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from typing import TypeVar

from tierfs.chunkstore.local_files import ChunkFiles
from tierfs.chunkstore.protocol import ChunkStorage, StoredObject
from tierfs.errors import DataLoss
from tierfs.metadata import chain_edits, chains, changes, checksums, directories, tables
from tierfs.metadata.records import ChunkRecord, ObjectRecord, SegmentRecord
from tierfs.metadata.store import MetadataStore
from tierfs.metadata.tables import CHUNKS
from tierfs.metadata.transaction import ReadTransaction, WriteTransaction
from tierfs.tiering import objects
from tierfs.tiering.candidates import OffloadAction, ended_ms
from tierfs.tiering.objects import ChunksMoved, ColdTier, Description, Made
from tierfs.tiering.offload_source import ChunkSource, DamagedChunk, SourceChunk
from tierfs.types import ByteRange, ChunkState, ObjectId, Tier

T = TypeVar("T")


class Offload:
    """Executor of offload actions. Thread-safe."""

    def __init__(self, metadata: MetadataStore, files: ChunkFiles, cold: ColdTier) -> None:
        self._metadata = metadata
        self._files = files
        self._cold = cold

    def run(self, action: OffloadAction) -> int:
        """Make the action's bytes cold and return their number. Idempotent: a second upload does not stay.

        Raises ChunksMoved when the chunks moved meanwhile, DataLoss when a source is damaged (its chunk is
        then suspect), Fenced, WrongColdTier, and storage errors; the local bytes stay in every case.
        """
        self._cold.require_ours()
        with closing(ChunkSource(self._files, self._sources(action))) as source:
            crc = _suspecting(self._metadata, action, source.crc32c)
            recipe = OffloadRecipe(self._metadata, action, source, crc)
            try:
                objects.make(self._metadata, self._cold, recipe)
            except DamagedChunk as exc:
                raise exc.cause from exc
        return action.range.length_bytes

    def _sources(self, action: OffloadAction) -> tuple[SourceChunk, ...]:
        with self._metadata.read() as txn:
            _, holders = revalidated(txn, action)
            return tuple(source_chunk(txn, *pair) for pair in zip(action.chunks, holders, strict=True))


class OffloadRecipe(objects.Recipe[None]):
    """Recipe for the object of one action."""

    def __init__(self, metadata: MetadataStore, action: OffloadAction, source: ChunkSource, crc32c: int) -> None:
        super().__init__(crc32c)
        self._metadata = metadata
        self._action = action
        self._source = source

    def describe(self, txn: WriteTransaction) -> Description:
        """See Recipe.describe."""
        segment, _ = revalidated(txn, self._action)
        path = directories.path_of(txn, segment.parent_id, segment.name)
        return objects.describe_range(txn, path, segment.id, self._action.range, self.attempt, self.crc32c)

    def write(self, storage: ChunkStorage, description: Description) -> StoredObject:
        """See Recipe.write."""
        return storage.put(description.name, self._source, metadata=description.metadata)

    def verify(self, storage: ChunkStorage, stored: StoredObject) -> Sequence[int]:
        """Check the sent bytes against our checksums; the server checked those that arrived."""
        return _suspecting(self._metadata, self._action, self._source.verified_grid).grid()

    def link(self, made: Made) -> None:
        """See Recipe.link."""
        action, span = self._action, self._action.range
        with self._metadata.write() as txn:
            record = made.record(txn, ObjectId(txn.allocate_id()))
            segment, _ = revalidated(txn, action)
            holder = replace(
                record,
                linked_sequence=txn.store.next_outbox + 1,
                written_ms=min(ended_ms(txn, segment, action.chunks[-1]), segment.modified_ms),
            )
            chunk = ChunkRecord(start_offset=span.start, length=span.length_bytes, object_id=holder.id)
            linked = replace(chains.insert(txn, segment, Tier.COLD, chunk, holder), changed_ms=txn.now_ms)
            changes.put_segment(txn, linked)  # first: replay takes a chunk beyond the length for a crashed concat
            changes.cold_linked(txn, segment.id, (chunk,), (replace(holder, references=1),))
            txn.touch(inode=segment.inode, segment_id=segment.id)


def _suspecting(metadata: MetadataStore, action: OffloadAction, check: Callable[[], T]) -> T:
    """Return the result of a check of the source; mark the action's chunks suspect if it finds damage."""
    try:
        return check()
    except DamagedChunk as exc:
        if isinstance(exc.cause, DataLoss):
            for chunk in action.chunks:
                chain_edits.set_state(metadata, action.segment_id, Tier.LOCAL, chunk, ChunkState.SUSPECT)
        raise exc.cause from exc


def revalidated(txn: ReadTransaction, action: OffloadAction) -> tuple[SegmentRecord, list[ObjectRecord]]:
    """Return the segment and its local objects. Raises ChunksMoved if the chunks changed since the action's plan."""
    segment = directories.living_segment(txn, action.segment_id)  # what is in the trash stays as it was removed
    if segment is None:
        raise ChunksMoved(f"segment {action.segment_id} was deleted meanwhile")
    holders: list[ObjectRecord] = []
    for chunk in action.chunks:
        current = txn.get(CHUNKS, tables.chunk(action.segment_id, Tier.LOCAL, chunk.start_offset))
        if current is None or _place(current) != _place(chunk):
            raise ChunksMoved(f"segment {segment.name}: its chunk at {chunk.start_offset} changed meanwhile")
        holders.append(chains.object_of(txn, current))
    cold = next(chains.overlapping(txn, segment.id, Tier.COLD, action.range), None) if segment.cold.count else None
    if cold is not None:
        raise ChunksMoved(f"segment {segment.name}: bytes from {cold.start_offset} on became cold meanwhile")
    return segment, holders


def _place(chunk: ChunkRecord) -> tuple[ObjectId, int, int]:
    """Return the object, offset and length that identify a chunk's bytes."""
    return chunk.object_id, chunk.object_offset, chunk.length


def source_chunk(txn: ReadTransaction, chunk: ChunkRecord, holder: ObjectRecord) -> SourceChunk:
    """Return a local chunk with the block checksums of its file."""
    crcs = tuple(run.crc(index) for run in checksums.runs(txn, holder.id) for index in range(run.count))
    held = ByteRange(chunk.object_offset, chunk.object_offset + chunk.length)
    return SourceChunk(holder.name, holder.length, crcs, held)
