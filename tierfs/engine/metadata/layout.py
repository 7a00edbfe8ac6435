"""Layout snapshots: where the bytes of one window of a segment live, at one instant.

A snapshot is immutable and belongs to one generation of the segment. It covers a window of the segment, so opening a
file of a million chunks loads only the chunks around the offset being read.

`placements` reads chunks with their objects and checksums in one walk, for plans of whole stores. Measured: a third of
the time of single records, as messages are read as stored, and of an object only a reader's fields.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words.errors import DataLoss
from tierfs.base.words.types import ByteRange, ChunkState, LocationId, ObjectId, PayloadEncoding, SegmentId, Tier
from tierfs.engine.metadata import chains, checksums, tables
from tierfs.engine.metadata import records_pb2 as pb
from tierfs.engine.metadata.records import RECORD_VERSION, ChunkRecord, ObjectRecord, SegmentRecord
from tierfs.engine.metadata.tables import CHUNKS, OBJECTS
from tierfs.engine.metadata.transaction import ReadTransaction

# Most chunks of each tier loaded at once: 4 GiB of 64 MiB chunks, about 0.5 ms of decoding.
WINDOW_CHUNKS = 64


@dataclass(frozen=True, slots=True)
class PlacedChunk:
    """A chunk together with its object."""

    chunk: ChunkRecord
    object: ObjectRecord

    @property
    def range(self) -> ByteRange:
        """Bytes of the segment that it holds."""
        return self.chunk.range


@dataclass(frozen=True, slots=True)
class Layout:
    """One window of a segment: chunks of each tier in offset order, complete inside `window`.

    Lost extents without an object are left out; one that keeps its object is tried last, and may verify.
    """

    segment: SegmentRecord
    window: ByteRange
    local: tuple[PlacedChunk, ...]
    cold: tuple[PlacedChunk, ...]
    transaction_id: int

    def chunks(self, tier: Tier) -> tuple[PlacedChunk, ...]:
        """Return the window's chunks in one tier."""
        return self.local if tier is Tier.LOCAL else self.cold

    def holds(self, offset: int) -> bool:
        """Return whether a chunk of either tier has the byte at `offset`, which is not before the window's start."""
        return any(placed.range.start <= offset < placed.range.end for placed in (*self.local, *self.cold))

    @property
    def readable(self) -> ByteRange:
        """The part of the window that holds bytes."""
        return self.window.intersect(self.segment.range)


def load(txn: ReadTransaction, segment: SegmentRecord, offset: int, chunks: int = WINDOW_CHUNKS) -> Layout:
    """Return the layout around `offset`, and from there for up to `chunks` chunks of each tier."""
    at = min(max(offset, segment.start_offset), segment.length)
    start, end = segment.start_offset, segment.length
    loaded: list[tuple[PlacedChunk, ...]] = []
    for tier in (Tier.LOCAL, Tier.COLD):
        records = tuple(islice(chains.chunks(txn, segment.id, tier, at), chunks))
        if len(records) == chunks:
            end = min(end, records[-1].end_offset)
        if segment.tier_state(tier).count:
            # Chunks before its first one, or in a gap, may exist and were not loaded.
            start = max(start, min(at, records[0].start_offset) if records else at)
        placed = (PlacedChunk(chunk, chains.object_of(txn, chunk)) for chunk in records if chunk.object_id)
        loaded.append(tuple(placed))
    return Layout(segment, ByteRange(start, max(start, end)), loaded[0], loaded[1], txn.id)


_TIERS = {tier.value: tier for tier in Tier}


class HeldObject(NamedTuple):
    """The fields of an object that a reader needs. Measured: made in a tenth of the time of its record."""

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
        """The object as a record, as storage reads it."""
        return ObjectRecord(**self._asdict())


def held_object(record: ObjectRecord) -> HeldObject:
    """Return a reader's fields of an object's record."""
    return HeldObject(*(getattr(record, name) for name in HeldObject._fields))


class Placement(NamedTuple):
    """One chunk of a segment and its place in its object."""

    range: ByteRange
    """Bytes of the segment."""
    object: HeldObject
    held: ByteRange
    """Bytes of the object."""
    crc32c: int | None
    """CRC32C of the chunk's own bytes, where it is known."""
    grid_start: int
    crcs: bytes
    """Checksums of the object's blocks, from `grid_start` on, that cover the chunk; packed."""


def placements(txn: ReadTransaction, segment_id: SegmentId, tier: Tier, start: int) -> Iterator[Placement]:
    """Yield chunks of one tier in order, from the one that holds `start` on, up to the first that is not good.

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
        raise DataLoss(f"object {object_id} has no record", remedy="run: tierfs check")
    message = pb.ObjectRecord.FromString(data)
    if message.version > RECORD_VERSION or message.encoding:
        return held_object(OBJECTS.codec.decode(data))
    tier, location_id = _TIERS[message.tier], LocationId(message.location_id)
    return HeldObject(object_id, tier, location_id, message.name, message.length, message.etag)
