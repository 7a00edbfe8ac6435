"""Cuts a snapshot into partitions: large segments at the ends of their objects, small ones together. Pure.

Sizes follow Spark's own for files: a partition has up to `max_partition_bytes`, less if that gives fewer
partitions than wanted, and each segment costs as much as some bytes to open.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

from tierfs.base.bytes import ranges
from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words.types import MIB, ByteRange, ReadPriority
from tierfs.pipeline.reader.extents import Extent, Flat, clip, from_flat, with_blocks
from tierfs.pipeline.reader.fetching import ScannedLedger, ScanSource
from tierfs.pipeline.reader.selection import PinnedSegment

# Fraction by which a split may be longer or shorter than wanted, to end at an object's end.
_SLACK = 0.25

# Small segments share requests, and a task costs Spark more than hundreds of them: with 1 MiB, 10,000 made 79 tasks and
# took 2.7 times as long (measured: 4.9 s and 1.8 s on two threads; 64 KiB gains nothing).
_OPEN_COST_BYTES = MIB // 8

# Other splits end at multiples of this, as reads do.
_STEP_BYTES = 8 * MIB


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of partitions."""

    max_partition_bytes: int = 128 * MIB
    open_cost_bytes: int = _OPEN_COST_BYTES
    """Cost of opening a segment, in bytes read meanwhile."""
    min_partitions: int = 1

    def split_bytes(self, total_bytes: int, segments: int) -> int:
        """Return the length of one split, by Spark's rule for files."""
        per_partition = (total_bytes + segments * self.open_cost_bytes) // max(1, self.min_partitions)
        return max(1, min(self.max_partition_bytes, max(self.open_cost_bytes, per_partition)))


@dataclass(frozen=True, slots=True)
class Reach:
    """Bytes a reader needs beside its own: the end of the separator before them, and the end of its last record."""

    before_bytes: int = 0
    behind_bytes: int = 0
    splits: bool = True
    """Whether segments may be cut at all."""
    cuts_at_entries: bool = False
    """Whether ledgers are cut only at the beginning of an entry."""
    uncut: tuple[str, ...] = ()
    """Ends of the names of segments that are read from their beginning only."""


@dataclass(frozen=True, slots=True)
class Part:
    """One segment, or a stretch of it, as a task reads it."""

    source: ScanSource
    owned: ByteRange
    """The part owns the records that begin here."""
    pinned: ByteRange
    """The segment's bytes in the snapshot."""
    extents: tuple[Extent, ...]
    """Of the owned bytes and those needed beside them."""

    def flat(self) -> tuple[Any, ...]:
        """Return the argument of `_part_from_flat`."""
        read = self.source
        source = (read.segment_id, read.name, read.priority.value, read.ledger, read.facts)
        ends = (self.owned.start, self.owned.end, self.pinned.start, self.pinned.end)
        return source, ends, [extent.flat() for extent in self.extents]


@dataclass(frozen=True, slots=True)
class Partition:
    """The parts that one task reads."""

    parts: tuple[Part, ...]

    @property
    def length_bytes(self) -> int:
        """Number of owned bytes."""
        return sum(part.owned.length_bytes for part in self.parts)

    def __reduce__(self) -> tuple[Any, ...]:
        return _from_flat_parts, ([part.flat() for part in self.parts],)


def _from_flat_parts(parts: Iterable[tuple[Any, ...]]) -> Partition:
    return Partition(tuple(_part_from_flat(*part) for part in parts))


def _part_from_flat(source: tuple[Any, ...], ends: tuple[int, int, int, int], extents: Iterable[Flat]) -> Part:
    segment_id, name, priority, ledger, facts = source
    start, end, first, last = ends
    read = ScanSource(segment_id, name, ReadPriority(priority), ledger, facts)
    return Part(read, ByteRange(start, end), ByteRange(first, last), tuple(map(from_flat, extents)))


def plan(pinned: Sequence[PinnedSegment], sizes: Sizes, reach: Reach) -> list[Partition]:
    """Return partitions that together own every byte of the snapshot once, the largest first."""
    total = sum(segment.owned.length_bytes for segment in pinned)
    split_bytes = sizes.split_bytes(total, len(pinned))
    parts = [part for segment in pinned for part in _parts(segment, split_bytes, reach)]
    return list(_packed(parts, split_bytes, sizes.open_cost_bytes))


def _parts(pinned: PinnedSegment, split_bytes: int, reach: Reach) -> Iterator[Part]:
    whole, mine = pinned.range, pinned.owned
    splits = reach.splits and not pinned.path.lower().endswith(reach.uncut)
    cuts = list(_cuts(pinned, split_bytes)) if splits else []
    if reach.cuts_at_entries and pinned.ledger is not None:
        cuts = sorted({_entry_start(pinned.ledger, cut) for cut in cuts} - {mine.start})
    starts = [extent.range.start for extent in pinned.extents]
    start = mine.start
    for end in [*cuts, mine.end]:
        owned = ByteRange(start, end)
        needed = ByteRange(max(whole.start, start - reach.before_bytes), min(whole.end, end + reach.behind_bytes))
        extents = _touching(pinned.extents, starts, needed)
        ledger = None if pinned.ledger is None else _clipped(pinned.ledger, with_blocks(needed, extents))
        source = ScanSource(pinned.segment.id, pinned.path, pinned.priority.value, ledger, pinned.facts)
        yield Part(source, owned, whole, extents)
        start = end


def _cuts(pinned: PinnedSegment, split_bytes: int) -> Iterator[int]:
    """Yield the ends of a segment's splits, except the last."""
    object_ends = [extent.range.end for extent in pinned.extents]
    at, end = pinned.owned.start, pinned.owned.end
    while end - at > split_bytes * (1 + _SLACK):
        at = _cut_near(at, split_bytes, object_ends)
        if at >= end:
            return
        yield at


def _entry_start(ledger: ScannedLedger, offset: int) -> int:
    """Return the beginning of the entry that holds the byte at `offset`."""
    run = ledger.runs[bisect_right(ledger.runs, offset, key=lambda run: run.payload_start) - 1]
    starts = list(accumulate(run.lengths, initial=run.payload_start))
    return starts[bisect_right(starts, offset) - 1]


def _cut_near(start: int, split_bytes: int, object_ends: Sequence[int]) -> int:
    """Return the last object's end within the slack around the wanted one, else a multiple of the step."""
    wanted = start + split_bytes
    slack = int(split_bytes * _SLACK)
    index = bisect_right(object_ends, wanted + slack) - 1
    candidates = [end for end in object_ends[max(0, index - 1) : index + 1] if abs(end - wanted) <= slack]
    if candidates:
        return min(candidates, key=lambda end: abs(end - wanted))
    stepped = wanted - wanted % _STEP_BYTES
    return stepped if stepped > start else wanted


def _packed(parts: Iterable[Part], split_bytes: int, open_cost_bytes: int) -> Iterator[Partition]:
    """Pack large parts alone and first, and small ones together, adjacent if they are adjacent in their objects."""
    large = [part for part in parts if part.owned.length_bytes >= split_bytes]
    small = [part for part in parts if part.owned.length_bytes < split_bytes]
    for part in large:
        yield Partition((part,))

    def cost(part: Part) -> int:
        return part.owned.length_bytes + open_cost_bytes

    for some in ranges.groups(sorted(small, key=_place), cost, split_bytes + open_cost_bytes):
        yield Partition(tuple(some))


def _place(part: Part) -> tuple[int, int]:
    if not part.extents:
        return (0, 0)
    first = part.extents[0].copies[0]
    return (int(first.object.id), first.range.start)


def _touching(extents: Sequence[Extent], starts: Sequence[int], wanted: ByteRange) -> tuple[Extent, ...]:
    first = max(0, bisect_right(starts, wanted.start) - 1)
    last = bisect_right(starts, wanted.end - 1)
    return clip(extents[first:last], wanted)


def _clipped(ledger: ScannedLedger, wanted: ByteRange) -> ScannedLedger:
    runs = tuple(run for run in ledger.runs if run.payload_start <= wanted.end and run.payload_end >= wanted.start)
    return replace(ledger, runs=runs)
