"""Which bytes a warm-up fetches: those that the cold tier serves, cut where the cache is full."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from tierfs.base.bytes.frozen import dataclass, field
from tierfs.base.options.precedence import Effective
from tierfs.base.words.types import CRC_BLOCK_BYTES, ByteRange, ObjectId, ReadPriority, SegmentId, Tier
from tierfs.engine.metadata import directories
from tierfs.engine.metadata.layout import Layout, load
from tierfs.engine.metadata.records import ObjectRecord
from tierfs.engine.metadata.store import MetadataStore
from tierfs.reading.view import Piece, in_object, resolve

# Whether a cache holds the block that begins at an offset of an object.
Holds = Callable[[ObjectId, int], bool]


@dataclass(frozen=True, slots=True)
class Target:
    """One segment to warm up, and which tier serves what both have."""

    name: str
    segment_id: SegmentId
    priority: Effective[ReadPriority]


@dataclass(frozen=True, slots=True)
class WantedBytes:
    """Bytes of one segment that lie in one object; `start` is the segment's offset of the first one."""

    name: str
    segment_id: SegmentId
    start: int
    record: ObjectRecord
    held: ByteRange

    @property
    def end(self) -> int:
        """The segment's offset after the last one."""
        return self.start + self.held.length_bytes


@dataclass(slots=True)
class FillPlan:
    """Bytes to fetch, in order, and bytes that are left out."""

    wanted: list[WantedBytes] = field(default_factory=list)
    local_bytes: int = 0
    """Served by the local disk."""
    left_out_bytes: int = 0
    """Behind what fits into the cache."""
    lost_bytes: int = 0
    """No tier has a copy."""

    @property
    def wanted_bytes(self) -> int:
        """Bytes that are to be in the cache in the end."""
        return sum(wanted.held.length_bytes for wanted in self.wanted)

    @property
    def cold_bytes(self) -> int:
        """All that the cold tier serves."""
        return self.wanted_bytes + self.left_out_bytes


def plan(metadata: MetadataStore, targets: Iterable[Target], room_bytes: int) -> FillPlan:
    """Return what to fetch for a cache with room for so many bytes of blocks: the targets' beginning if that is less.

    A target that was deleted meanwhile is left out.
    """
    planning = _Planning(room_bytes // CRC_BLOCK_BYTES)
    for target in targets:
        tiers = target.priority.value.tiers
        for layout in _layouts(metadata, target.segment_id):
            if Tier.COLD not in tiers:
                planning.plan.local_bytes += layout.window.length_bytes
                continue
            order = (Tier.COLD, Tier.LOCAL) if tiers[0] is Tier.COLD else (Tier.LOCAL, Tier.COLD)
            for piece in resolve(layout, layout.window, order):
                planning.add(target, piece)
    return planning.plan


def held_bytes(wanted: Iterable[WantedBytes], holds: Holds) -> int:
    """Return how many of the bytes lie in blocks that a cache holds."""
    return sum(
        block.intersect(part.held).length_bytes
        for part in wanted
        for block in _blocks(part.held)
        if holds(part.record.id, block.start)
    )


class _Planning:
    """A plan that grows; a block counts once where neighbouring pieces share it."""

    def __init__(self, room_blocks: int) -> None:
        self.plan = FillPlan()
        self._room_blocks = room_blocks
        self._last_block: tuple[ObjectId, int] | None = None

    def add(self, target: Target, piece: Piece) -> None:
        """Take in what of a piece is to be fetched and fits."""
        length = piece.range.length_bytes
        if piece.lost:
            self.plan.lost_bytes += length
            return
        record = piece.candidates[0].object
        if record.tier is Tier.LOCAL:
            self.plan.local_bytes += length
            return
        held = self._fitting(record.id, in_object(piece.range, piece.candidates[0]))
        self.plan.left_out_bytes += length - held.length_bytes
        if held:
            self._append(WantedBytes(target.name, target.segment_id, piece.range.start, record, held))

    def _fitting(self, object_id: ObjectId, held: ByteRange) -> ByteRange:
        first, end = held.start // CRC_BLOCK_BYTES, -(-held.end // CRC_BLOCK_BYTES)
        if self._last_block == (object_id, first):
            first += 1
        taken = min(end - first, self._room_blocks)
        self._room_blocks -= taken
        if taken < end - first:
            self._room_blocks = 0
        self._last_block = (object_id, first + taken - 1)
        return ByteRange(held.start, max(held.start, min(held.end, (first + taken) * CRC_BLOCK_BYTES)))

    def _append(self, new: WantedBytes) -> None:
        """Add bytes, joined with the last ones if they are neighbours in segment and object."""
        last = self.plan.wanted[-1] if self.plan.wanted else None
        if last is not None and (last.name, last.end, last.record.id, last.held.end) == (
            new.name,
            new.start,
            new.record.id,
            new.held.start,
        ):
            self.plan.wanted[-1] = replace(last, held=ByteRange(last.held.start, new.held.end))
        else:
            self.plan.wanted.append(new)


def _layouts(metadata: MetadataStore, segment_id: SegmentId) -> Iterator[Layout]:
    """Yield the windows of a segment in order, each by its own snapshot: one over all would hold up the writers."""
    offset = 0
    while True:
        with metadata.read() as txn:
            segment = directories.segment(txn, segment_id)
            if segment is None:
                return
            layout = load(txn, segment, offset)
        yield layout
        offset = layout.window.end
        if offset >= segment.length:
            return


def _blocks(held: ByteRange) -> Iterator[ByteRange]:
    for start in range(held.start - held.start % CRC_BLOCK_BYTES, held.end, CRC_BLOCK_BYTES):
        yield ByteRange(start, start + CRC_BLOCK_BYTES)
