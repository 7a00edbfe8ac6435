"""Offload: make one verified cold object of one OffloadAction, in the crash order of objects.py."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace

from tierfs.base.bytes.byte_times import ByteTimes, TimedBytes
from tierfs.base.words.errors import DataLoss, TierfsError, Unavailable
from tierfs.base.words.types import ByteRange, Compression, ObjectId, SegmentId, Tier
from tierfs.engine.chunkstore.local_files import ChunkFiles
from tierfs.engine.chunkstore.protocol import ChunkStorage, StoredObject
from tierfs.engine.metadata import chains, checksums, chunk_times, directories, policies
from tierfs.engine.metadata.chain_edits import Editor
from tierfs.engine.metadata.layout import PlacedChunk
from tierfs.engine.metadata.records import ChunkRecord, ObjectRecord, SegmentRecord
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.transaction import ReadTransaction, WriteTransaction
from tierfs.reading.verified import VerifiedReader
from tierfs.tiering import objects
from tierfs.tiering.candidates import OffloadAction
from tierfs.tiering.compressed_source import CompressedSource, compressed
from tierfs.tiering.extra_metadata import NO_EXTRA
from tierfs.tiering.objects import ChunksMoved, ColdTier, Description, Made
from tierfs.tiering.offload_source import ChunkSource, DamagedChunk, SourceChunk


class Offload:
    """Executor of offload actions. Thread-safe."""

    def __init__(self, metadata: MetadataStore, files: ChunkFiles, cold: ColdTier) -> None:
        self._metadata = metadata
        self._files = files
        self._cold = cold
        self._accuser = Accuser(VerifiedReader(metadata, lambda _: cold.storage, lambda: files))

    def run(self, action: OffloadAction, extra: Mapping[str, str] = NO_EXTRA) -> int:
        """Make the action's bytes cold and return their number. Idempotent: a second upload does not stay.

        `extra`: checked extra metadata of the object.

        A damaged chunk becomes suspect, and the others are made cold without it; then its DataLoss is raised, NotFound
        for a missing file. Raises ChunksMoved when the chunks moved meanwhile, Unavailable when a file was read wrongly
        and proves right, Fenced, WrongColdTier, and storage errors; the local bytes stay in every case.
        """
        self._cold.require_ours()
        damages = self._make(action, extra)
        if damages:
            for rest in action.without(damages):
                self._make(rest, extra)
            raise min(damages.items())[1]
        return action.range.length_bytes

    def _make(self, action: OffloadAction, extra: Mapping[str, str]) -> dict[int, TierfsError]:
        """Make one object; return the errors of damaged chunks, by their number, if there is none for them."""
        with self._metadata.read() as txn:
            segment, places = revalidated(txn, action)
            sources = sources_of(txn, action, places)
            policy = policies.effective(txn, segment)
        with closing(ChunkSource(self._files, sources)) as source, ExitStack() as stack:
            try:
                crc = source.crc32c()
                sent = compressed(source, policy)
                if sent is not None:
                    stack.callback(sent.close)
                kept_plain = sent is None and policy.compression is Compression.AUTO
                recipe = OffloadRecipe(self._metadata, action, source, crc, sent, kept_plain=kept_plain, extra=extra)
                objects.make(self._metadata, self._cold, recipe)
            except DamagedChunk as exc:
                return self._accuser.damages(source, [(action.segment_id, place) for place in places], exc)
        return {}


class Accuser:
    """Judge of the chunks of a source that failed. Thread-safe."""

    def __init__(self, reader: VerifiedReader) -> None:
        self._reader = reader

    def damages(
        self, source: ChunkSource, places: Sequence[tuple[SegmentId, PlacedChunk]], first: DamagedChunk
    ) -> dict[int, TierfsError]:
        """Return the errors of all chunks of a source that fail again, by number; those that differ are suspect now.

        Reads every file of the source once, which saves an upload for each further one that is damaged. Raises
        Unavailable when all prove right: the bytes of the first read were wrong, not those of the disk.
        """
        damages: dict[int, TierfsError] = {}
        for damage in source.damaged():
            # A missing file is not marked: it may appear again, as when its disk is mounted.
            if not isinstance(damage.cause, DataLoss) or self._reader.accuse(*places[damage.index]):
                damages[damage.index] = damage.cause
        if not damages:
            raise Unavailable(f"{first}: the second read succeeded; nothing was stored", remedy="retry") from first
        return damages


class OffloadRecipe(objects.Recipe[None]):
    """Recipe for the object of one action."""

    def __init__(
        self,
        metadata: MetadataStore,
        action: OffloadAction,
        source: ChunkSource,
        crc32c: int,
        sent: CompressedSource | None = None,
        *,
        kept_plain: bool = False,
        extra: Mapping[str, str] = NO_EXTRA,
    ) -> None:
        """`sent` is the compressed form of the source, if that is stored; the caller closes both.

        `kept_plain`: it is not, because compressing saves too little.
        """
        super().__init__(crc32c)
        self.compressed = self._sent = sent
        self._kept_plain = kept_plain
        self._extra = extra
        self._metadata = metadata
        self._action = action
        self._source = source

    def describe(self, txn: WriteTransaction) -> Description:
        segment, _ = revalidated(txn, self._action)
        path = directories.path_of(txn, segment.parent_id, segment.name)
        stored_bytes = None if self.compressed is None else self.compressed.length_bytes
        held = self._action.range
        return objects.describe_range(txn, path, segment.id, held, self.attempt, self.crc32c, stored_bytes, self._extra)

    def write(self, storage: ChunkStorage, description: Description) -> StoredObject:
        return storage.put(description.name, self._sent or self._source, metadata=description.metadata)

    def verify(self, storage: ChunkStorage, stored: StoredObject) -> Sequence[int]:
        """Check the sent bytes against our checksums; the server checked those that arrived."""
        return self._source.verified_grid().grid()

    def link(self, made: Made) -> None:
        action, window = self._action, self._action.range
        with self._metadata.write() as txn:
            record = made.record(txn, ObjectId(txn.allocate_id()))
            segment, places = revalidated(txn, action)
            times = times_of(txn, segment, action, places)
            ended_ms = chunk_times.ended_ms(txn, segment, window)
            stored = replace(record, kept_plain=self._kept_plain, written_ms=ended_ms, times=ByteTimes.of(times))
            Editor(txn, segment).link_objects([(window, stored)], segment_first=True)
            txn.touch(inode=segment.inode, segment_id=segment.id)


def revalidated(txn: ReadTransaction, action: OffloadAction) -> tuple[SegmentRecord, list[PlacedChunk]]:
    """Return the segment and, for each of the action's chunks, the local chunk that it is, or is a part of.

    Raises ChunksMoved if they changed since the action's plan.
    """
    segment = directories.living_segment(txn, action.segment_id)  # what is in the trash stays as it was removed
    if segment is None:
        raise ChunksMoved(f"segment {action.segment_id} was deleted meanwhile")
    places: list[PlacedChunk] = []
    for chunk in action.chunks:
        current = chains.chunk_at(txn, action.segment_id, Tier.LOCAL, chunk.start_offset)
        if current is None or not _holds(current, chunk):
            raise ChunksMoved(f"segment {segment.name}: its chunk at {chunk.start_offset} changed meanwhile")
        places.append(PlacedChunk(current, chains.object_of(txn, current)))
    cold = next(chains.overlapping(txn, segment.id, Tier.COLD, action.range), None) if segment.cold.count else None
    if cold is not None:
        raise ChunksMoved(f"segment {segment.name}: bytes from {cold.start_offset} on became cold meanwhile")
    return segment, places


def times_of(
    txn: ReadTransaction, segment: SegmentRecord, action: OffloadAction, places: Sequence[PlacedChunk]
) -> Iterator[TimedBytes]:
    """Yield the times of an action's bytes, in the chunks that `revalidated` returned."""
    return chunk_times.of_local(
        txn, segment, [(chunk, place.object) for chunk, place in zip(action.chunks, places, strict=True)]
    )


def _holds(current: ChunkRecord, planned: ChunkRecord) -> bool:
    """Return whether a chunk has the bytes of a planned one in the same place of the same object."""
    shift = planned.start_offset - current.start_offset
    in_place = planned.object_offset == current.object_offset + shift
    return current.object_id == planned.object_id and in_place and current.range.contains(planned.range)


def sources_of(txn: ReadTransaction, action: OffloadAction, places: Sequence[PlacedChunk]) -> list[SourceChunk]:
    """Return the bytes of an action's chunks, in the files of the chunks that `revalidated` returned."""
    return [source_chunk(txn, chunk, place.object) for chunk, place in zip(action.chunks, places, strict=True)]


def source_chunk(txn: ReadTransaction, chunk: ChunkRecord, stored: ObjectRecord) -> SourceChunk:
    """Return a local chunk with the block checksums of its file."""
    crcs = tuple(run.crc(index) for run in checksums.runs(txn, stored.id) for index in range(run.count))
    held = ByteRange(chunk.object_offset, chunk.object_offset + chunk.length)
    return SourceChunk(stored.name, stored.length, crcs, held)
