"""What there is to check of a store, cut into tasks, a wave of tasks at a time.

The checksums of all copies do not fit into memory (32 MiB of them for a terabyte), so a wave is planned when the one
before it is done.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from tierfs.errors import DataLoss
from tierfs.fsck.copy_reader import Fault
from tierfs.fsck.pieces import Piece, pieces
from tierfs.metadata import entries
from tierfs.metadata.layout import PlacedChunk
from tierfs.metadata.ledger_records import EntryRun
from tierfs.metadata.records import ObjectRecord
from tierfs.metadata.store import MetadataStore
from tierfs.scan.scrubbing import CopyFault, CopyPiece
from tierfs.scan.selection import Selection, select
from tierfs.types import MIB, ByteRange, ObjectId, PayloadEncoding, SegmentId, Tier

PARTITION_BYTES = 128 * MIB
WAVE_PARTITIONS = 256
"""32 GiB and a MiB of checksums (a guess)."""

_OPEN_COST_BYTES = MIB // 4
"""What a piece costs beside its bytes: a wave has at most 131,072 of them, 200 MB of memory (a guess)."""

_NO_OBJECT = ObjectRecord(id=ObjectId(0), tier=Tier.COLD, name="", length=0)


@dataclass(frozen=True, slots=True)
class Wanted:
    """A segment that is to be checked."""

    id: SegmentId
    name: str


@dataclass(frozen=True, slots=True)
class Wave:
    """Tasks that run together."""

    partitions: list[tuple[CopyPiece, ...]]
    faults: tuple[CopyFault, ...]
    """What the metadata tell without any reading."""


def wanted_segments(metadata: MetadataStore, paths: Sequence[str]) -> tuple[list[Wanted], int]:
    """The segments at and below paths, and the bytes of all their copies. Raises NotFound for a path."""
    with metadata.read() as txn:
        found: list[Wanted] = []
        size_bytes = 0
        for name, segment in select(txn, Selection(tuple(paths) or ("",), recursive=True)):
            found.append(Wanted(segment.id, name))
            size_bytes += segment.readable_bytes(Tier.LOCAL) + segment.readable_bytes(Tier.COLD)
    return found, size_bytes


def waves(
    metadata: MetadataStore,
    segments: Iterable[Wanted],
    partition_bytes: int = PARTITION_BYTES,
    partitions: int = WAVE_PARTITIONS,
) -> Iterator[Wave]:
    """All copies of all bytes of the segments. Extents that are recorded as lost are left out."""
    waiting: list[CopyPiece] = []
    faults: list[CopyFault] = []
    size_bytes = 0
    for found in _found(metadata, segments):
        if isinstance(found, CopyFault):
            faults.append(found)
            continue
        waiting.append(found)
        size_bytes += _cost(found)
        if size_bytes >= partition_bytes * partitions:
            yield Wave(list(_packed(waiting, partition_bytes)), tuple(faults))
            waiting, faults, size_bytes = [], [], 0
    if waiting or faults:
        yield Wave(list(_packed(waiting, partition_bytes)), tuple(faults))


def _found(metadata: MetadataStore, segments: Iterable[Wanted]) -> Iterator[CopyPiece | CopyFault]:
    for segment in segments:
        lean = _Lean()
        try:
            for piece in pieces(metadata, segment.id):
                if piece.placed is None:
                    yield _fault(segment, piece.range, Fault.MISSING, "no tier holds these bytes")
                elif not piece.placed.chunk.lost:
                    yield _copy(metadata, segment, piece, lean.of(piece.placed))
        except DataLoss as exc:
            yield _fault(segment, ByteRange(0, 0), Fault.DAMAGED, f"{exc}; run: tierfs fsck")


def _copy(metadata: MetadataStore, segment: Wanted, piece: Piece, placed: PlacedChunk) -> CopyPiece:
    framed = placed.object.encoding is not PayloadEncoding.RAW
    runs = tuple(_runs(metadata, placed.object, piece)) if framed else ()
    return CopyPiece(segment.name, replace(piece, placed=placed), placed, runs)


def _runs(metadata: MetadataStore, holder: ObjectRecord, piece: Piece) -> Iterator[EntryRun]:
    """The rows of entries that touch the blocks of a piece in a ledger's object."""
    blocks = piece.in_object if piece.grid is None else piece.grid.range
    at, end = holder.payload_start + blocks.start, holder.payload_start + blocks.end
    with metadata.read() as txn:
        while at < end:
            run = entries.run_holding(txn, SegmentId(holder.segment_id), at)
            if run is None:
                return  # reading tells that nobody knows where the payload lies
            yield replace(run, stored=b"")
            at = run.payload_end


class _Lean:
    """Records without the bytes that they were read from, one for all pieces of a chunk: pickle keeps it once."""

    def __init__(self) -> None:
        self._last: dict[Tier, tuple[PlacedChunk, PlacedChunk]] = {}

    def of(self, placed: PlacedChunk) -> PlacedChunk:
        known = self._last.get(placed.object.tier)
        if known is not None and known[0] == placed:
            return known[1]
        lean = PlacedChunk(replace(placed.chunk, stored=b""), replace(placed.object, stored=b""))
        self._last[placed.object.tier] = (placed, lean)
        return lean


def _packed(waiting: list[CopyPiece], partition_bytes: int) -> Iterator[tuple[CopyPiece, ...]]:
    """Tasks of about so many bytes, which read each object from one end to the other."""
    task: list[CopyPiece] = []
    size_bytes = 0
    for one in sorted(waiting, key=lambda one: one.place):
        if task and size_bytes + _cost(one) > partition_bytes:
            yield tuple(task)
            task, size_bytes = [], 0
        task.append(one)
        size_bytes += _cost(one)
    if task:
        yield tuple(task)


def _cost(one: CopyPiece) -> int:
    return one.piece.range.length_bytes + _OPEN_COST_BYTES


def _fault(segment: Wanted, span: ByteRange, fault: Fault, why: str) -> CopyFault:
    return CopyFault(segment.name, Tier.COLD, _NO_OBJECT, span, fault, why)
