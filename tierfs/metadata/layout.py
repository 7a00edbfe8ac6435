"""Layout snapshots: where the bytes of one window of a segment live, at one instant.

A snapshot is immutable and belongs to one generation of the segment. It covers a window of the
segment, so opening a file of a million chunks loads only the chunks around the offset being read.

Chunks with their objects and checksums, read in one walk for those who read very many: plans of whole stores.

Measured: a third of the time of the records one by one. Messages are read as they are stored, and of an object only
what a reader needs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from tierfs.checksum import Buffer, crc32c
from tierfs.errors import DataLoss
from tierfs.metadata import chains, checksums, tables
from tierfs.metadata import records_pb2 as pb
from tierfs.metadata.records import RECORD_VERSION, ChunkRecord, ObjectRecord, SegmentRecord
from tierfs.metadata.tables import CHUNKS, OBJECTS
from tierfs.metadata.transaction import ReadTransaction
from tierfs.types import ByteRange, ChunkState, LocationId, ObjectId, PayloadEncoding, SegmentId, Tier

WINDOW_CHUNKS = 64
"""Most chunks of each tier loaded at once: 4 GiB of 64 MiB chunks, about 0.5 ms of decoding."""


@dataclass(frozen=True, slots=True)
class PlacedChunk:
    """A chunk together with its object."""

    chunk: ChunkRecord
    object: ObjectRecord

    @property
    def range(self) -> ByteRange:
        """The segment's bytes it holds."""
        return self.chunk.range

    def proves(self, span: ByteRange, data: Buffer) -> bool:
        """Whether `data`, the segment's bytes `span`, are all of the chunk and right by its own CRC32C.

        Where chunks of many segments share blocks of a pack, one bad bit makes the block wrong for all of them.
        """
        own = self.chunk.bytes_crc32c
        return own is not None and span == self.range and crc32c(data) == own


@dataclass(frozen=True, slots=True)
class Layout:
    """One window of a segment: chunks of each tier in offset order, complete inside `window`.

    Lost extents without an object are left out; one that keeps its object is tried last, and may prove right.
    """

    segment: SegmentRecord
    window: ByteRange
    local: tuple[PlacedChunk, ...]
    cold: tuple[PlacedChunk, ...]
    transaction_id: int

    def chunks(self, tier: Tier) -> tuple[PlacedChunk, ...]:
        """The window's chunks in one tier."""
        return self.local if tier is Tier.LOCAL else self.cold

    def holds(self, offset: int) -> bool:
        """Whether a chunk of either tier has the byte at `offset`, which the window begins at or before."""
        return any(placed.range.start <= offset < placed.range.end for placed in (*self.local, *self.cold))

    @property
    def readable(self) -> ByteRange:
        """The part of the window that holds bytes."""
        return self.window.intersect(self.segment.range)


def load(txn: ReadTransaction, segment: SegmentRecord, offset: int, chunks: int = WINDOW_CHUNKS) -> Layout:
    """The layout around `offset`, and on from there for up to `chunks` chunks of each tier."""
    at = min(max(offset, segment.start_offset), segment.length)
    start, end = segment.start_offset, segment.length
    loaded: list[tuple[PlacedChunk, ...]] = []
    for tier in (Tier.LOCAL, Tier.COLD):
        found = tuple(islice(chains.chunks(txn, segment.id, tier, at), chunks))
        if len(found) == chunks:
            end = min(end, found[-1].end_offset)
        if segment.tier_state(tier).count:
            # Before its first chunk, or in a gap, there may be others that were not loaded.
            start = max(start, min(at, found[0].start_offset) if found else at)
        loaded.append(tuple(PlacedChunk(one, chains.object_of(txn, one)) for one in found if one.object_id))
    return Layout(segment, ByteRange(start, max(start, end)), loaded[0], loaded[1], txn.id)


_TIERS = {tier.value: tier for tier in Tier}


class HeldObject(NamedTuple):
    """What a reader needs of an object. Measured: made in a tenth of the time of its record."""

    id: ObjectId
    tier: Tier
    location_id: LocationId
    name: str
    length: int
    etag: str
    encoding: PayloadEncoding = PayloadEncoding.RAW
    stored_length: int = 0
    segment_id: int = 0
    payload_start: int = 0

    @property
    def record(self) -> ObjectRecord:
        """As storage reads it."""
        return ObjectRecord(**self._asdict())


def held_object(record: ObjectRecord) -> HeldObject:
    """The same of a record."""
    return HeldObject(*(getattr(record, name) for name in HeldObject._fields))


class Placement(NamedTuple):
    """One chunk of a segment and where it lies."""

    range: ByteRange
    """Of the segment."""
    object: HeldObject
    held: ByteRange
    """Of the object."""
    crc32c: int | None
    """Of the chunk's own bytes, where that is known."""
    grid_start: int
    crcs: bytes
    """Checksums of the object's blocks, from `grid_start` on, that cover the chunk; packed."""


def placements(txn: ReadTransaction, segment_id: SegmentId, tier: Tier, start: int) -> Iterator[Placement]:
    """Chunks of one tier in order, from the one that holds `start` on, up to the first that is not good.

    Raises DataLoss for records that are damaged, missing or of a newer format.
    """
    first = next(chains.chunks(txn, segment_id, tier, start), None)
    if first is None:
        return
    prefix = tables.chunk_prefix(segment_id, tier)
    packed = checksums.PackedChecksums(txn)
    for _, data in txn.scan_raw(CHUNKS.name, tables.chunk(segment_id, tier, first.start_offset), prefix=prefix):
        chunk = pb.ChunkRecord.FromString(data)
        if chunk.version > RECORD_VERSION or chunk.state != ChunkState.GOOD:
            return
        at, length, object_id = chunk.start_offset, chunk.length, ObjectId(chunk.object_id)
        held = ByteRange(chunk.object_offset, chunk.object_offset + length)
        own = chunk.HasField("crc32c") and (chunk.crc_offset, chunk.crc_length) == (held.start, length)
        grid_start, crcs = packed.covering(object_id, held)
        yield Placement(
            ByteRange(at, at + length),
            _object(txn, object_id),
            held,
            chunk.crc32c if own else None,
            grid_start,
            crcs,
        )


def _object(txn: ReadTransaction, object_id: ObjectId) -> HeldObject:
    data = txn.get_raw(OBJECTS.name, tables.u64(object_id))
    if data is None:
        raise DataLoss(f"object {object_id} has no record", remedy="run: tierfs fsck")
    found = pb.ObjectRecord.FromString(data)
    if found.version > RECORD_VERSION or found.encoding:
        return held_object(OBJECTS.codec.decode(data))
    tier, location_id = _TIERS[found.tier], LocationId(found.location_id)
    return HeldObject(object_id, tier, location_id, found.name, found.length, found.etag)
