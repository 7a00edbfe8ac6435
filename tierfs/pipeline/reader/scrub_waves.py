"""Plans a scrub: the pieces of a store are cut into tasks, a wave of tasks at a time.

The checksums of all copies do not fit into memory (32 MiB of them for a terabyte), so a wave is planned when the
previous one is done.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from tierfs.base.bytes import ranges
from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words.errors import DataLoss
from tierfs.base.words.types import MIB, ByteRange, ObjectId, PayloadEncoding, SegmentId, Tier
from tierfs.engine.frames.frame_map import FrameMap
from tierfs.engine.metadata import entries, frame_rows
from tierfs.engine.metadata.layout import PlacedChunk
from tierfs.engine.metadata.ledger_records import EntryRun
from tierfs.engine.metadata.records import ObjectRecord
from tierfs.engine.metadata.store import MetadataStore
from tierfs.pipeline.reader.extents import read_for
from tierfs.pipeline.reader.scrubbing import CopyFault, CopyPiece
from tierfs.pipeline.reader.selection import Selection, select
from tierfs.reading.verified import own_sum
from tierfs.upkeep.check.scrub.copy_reader import Fault
from tierfs.upkeep.check.scrub.pieces import ScrubPiece, pieces

PARTITION_BYTES = 128 * MIB

# 32 GiB and a MiB of checksums (a guess).
WAVE_PARTITIONS = 256

# Cost of a piece beside its bytes: a wave has at most 131,072 of them, 200 MB of memory (a guess).
_OPEN_COST_BYTES = MIB // 4

_NO_OBJECT = ObjectRecord(id=ObjectId(0), tier=Tier.COLD, name="", length=0)


@dataclass(frozen=True, slots=True)
class Wanted:
    """A segment to be checked."""

    id: SegmentId
    name: str


@dataclass(frozen=True, slots=True)
class Wave:
    """Tasks that run together."""

    partitions: list[tuple[CopyPiece, ...]]
    faults: tuple[CopyFault, ...]
    """Faults that the metadata show without any reading."""


def wanted_segments(metadata: MetadataStore, paths: Sequence[str]) -> tuple[list[Wanted], int]:
    """Return the segments at and below paths, and the bytes of all their copies. Raises NotFound for a path."""
    with metadata.read() as txn:
        segments: list[Wanted] = []
        size_bytes = 0
        for name, segment in select(txn, Selection(tuple(paths) or ("",), recursive=True)):
            segments.append(Wanted(segment.id, name))
            size_bytes += segment.readable_bytes(Tier.LOCAL) + segment.readable_bytes(Tier.COLD)
    return segments, size_bytes


def waves(
    metadata: MetadataStore,
    segments: Iterable[Wanted],
    partition_bytes: int = PARTITION_BYTES,
    partitions: int = WAVE_PARTITIONS,
) -> Iterator[Wave]:
    """Yield waves with all copies of all bytes of the segments, except extents recorded as lost."""
    waiting: list[CopyPiece] = []
    faults: list[CopyFault] = []
    size_bytes = 0
    for item in _copies(metadata, segments):
        if isinstance(item, CopyFault):
            faults.append(item)
            continue
        waiting.append(item)
        size_bytes += _cost(item)
        if size_bytes >= partition_bytes * partitions:
            yield Wave(_packed(waiting, partition_bytes), tuple(faults))
            waiting, faults, size_bytes = [], [], 0
    if waiting or faults:
        yield Wave(_packed(waiting, partition_bytes), tuple(faults))


def _copies(metadata: MetadataStore, segments: Iterable[Wanted]) -> Iterator[CopyPiece | CopyFault]:
    for segment in segments:
        lean = _Lean()
        try:
            for piece in pieces(metadata, segment.id):
                if piece.placed is None:
                    yield _fault(segment, piece.range, Fault.MISSING, "no tier has these bytes")
                elif not piece.placed.chunk.lost:
                    yield _copy(metadata, segment, piece, lean.of(piece.placed))
        except DataLoss as exc:
            yield _fault(segment, ByteRange(0, 0), Fault.DAMAGED, f"{exc}; run: tierfs check")


def _copy(metadata: MetadataStore, segment: Wanted, piece: ScrubPiece, placed: PlacedChunk) -> CopyPiece:
    runs = tuple(_runs(metadata, placed.object, piece)) if placed.object.encoding.is_ledger else ()
    return CopyPiece(segment.name, replace(piece, placed=placed), placed, runs, _frames(metadata, piece, placed))


def _frames(metadata: MetadataStore, piece: ScrubPiece, placed: PlacedChunk) -> tuple[FrameMap, ...]:
    """Return the frames of a compressed object with the bytes that checking a piece reads."""
    if piece.grid is None or placed.object.encoding is not PayloadEncoding.ZSTD_FRAMES:
        return ()
    with metadata.read() as txn:
        return frame_rows.frames_holding(txn, placed.object, read_for(piece.grid, own_sum(placed)))


def _runs(metadata: MetadataStore, record: ObjectRecord, piece: ScrubPiece) -> Iterator[EntryRun]:
    """Return the rows of entries that intersect the blocks of a piece in a ledger's object."""
    blocks = piece.in_object if piece.grid is None else piece.grid.range
    at, end = record.payload_start + blocks.start, record.payload_start + blocks.end
    with metadata.read() as txn:
        while at < end:
            run = entries.run_holding(txn, SegmentId(record.segment_id), at)
            if run is None:
                return  # reading reports that the place of the payload is unknown
            yield replace(run, stored=b"")
            at = run.payload_end


class _Lean:
    """Records without the bytes they were read from, one for all pieces of a chunk: pickle keeps it once."""

    def __init__(self) -> None:
        self._last: dict[Tier, tuple[PlacedChunk, PlacedChunk]] = {}

    def of(self, placed: PlacedChunk) -> PlacedChunk:
        known = self._last.get(placed.object.tier)
        if known is not None and known[0] == placed:
            return known[1]
        lean = PlacedChunk(replace(placed.chunk, stored=b""), replace(placed.object, stored=b""))
        self._last[placed.object.tier] = (placed, lean)
        return lean


def _packed(waiting: list[CopyPiece], partition_bytes: int) -> list[tuple[CopyPiece, ...]]:
    """Return tasks of about so many bytes, which read each object from one end to the other."""
    pieces = sorted(waiting, key=lambda piece: piece.place)
    return [tuple(task) for task in ranges.groups(pieces, _cost, partition_bytes)]


def _cost(piece: CopyPiece) -> int:
    return piece.piece.range.length_bytes + _OPEN_COST_BYTES


def _fault(segment: Wanted, bad: ByteRange, fault: Fault, why: str) -> CopyFault:
    return CopyFault(segment.name, Tier.COLD, _NO_OBJECT, bad, fault, why)
