"""Spreads the limit of a stream's batch over the segments that have unread records. Pure.

Logs that were written side by side are read side by side: a watermark drops what is read much later than its
neighbours. So all of them advance by the same part of what they have not read, as Spark's Kafka source does with
maxOffsetsPerTrigger (KafkaMicroBatchStream.rateLimit), but by positions of a whole round: shares of single records, or
smaller ones, add up exactly. Segments that were written one after the other are read one after the other.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from fractions import Fraction
from heapq import heapify, heappop, heappush
from itertools import count
from math import ceil
from typing import NamedTuple

from tierfs.base.bytes.frozen import dataclass
from tierfs.pipeline.reader.stream_plan import Cutter, ListedSegment, StreamOffset, StreamStep, cut_around, unfinished

# A segment written for so long has the times of its records; a shorter one may have been loaded at once (a guess).
_LIVE_MS = 60_000

# Segments that share a batch: at least so many, and one more for each part of the limit. Each costs the driver a read
# for the end of a line, and the offset a position (guesses).
_LEAST_AT_ONCE, _MOST_AT_ONCE = 16, 256
_PART_BYTES = 64 * 1024

_ALL = Fraction(1)


class Unread(NamedTuple):
    """A segment that has unread bytes or entries, and the position where they begin."""

    segment: ListedSegment
    position: int


class _Span(NamedTuple):
    """What a segment had unread as its round began."""

    start: int
    end: int
    size_bytes: int

    def part(self, position: int) -> Fraction:
        """Return the part that was read."""
        return Fraction(position - self.start, self.end - self.start)


@dataclass(frozen=True, slots=True)
class Limits:
    """The most of a batch: bytes, and segments. A batch of N segments has as many bytes as N of those that wait."""

    size_bytes: int | Fraction | None = None
    segments: int | Fraction | None = None

    @property
    def exist(self) -> bool:
        """Return whether there is any."""
        return self.size_bytes is not None or self.segments is not None

    @property
    def at_once(self) -> int:
        """Return the number of segments that share a batch."""
        size_bytes = _MOST_AT_ONCE if self.size_bytes is None else self.size_bytes // _PART_BYTES
        wanted = size_bytes if self.segments is None else min(size_bytes, self.segments)
        return int(max(_LEAST_AT_ONCE, min(_MOST_AT_ONCE, wanted)))

    @property
    def used_up(self) -> bool:
        """Return whether nothing more fits into the batch."""
        return any(limit is not None and limit <= 0 for limit in (self.size_bytes, self.segments))

    def part_of(self, spans: Mapping[int, _Span]) -> Fraction:
        """Return the part of the spans that fits; it may be more than all."""
        parts = [] if self.segments is None else [Fraction(self.segments, len(spans))]
        if self.size_bytes is not None and (size_bytes := _size_bytes(spans)):
            parts.append(Fraction(self.size_bytes, size_bytes))
        return min(parts, default=_ALL)

    def less(self, spans: Mapping[int, _Span], part: Fraction) -> Limits:
        """Return what is left after a part of the spans."""
        return Limits(
            None if self.size_bytes is None else self.size_bytes - part * _size_bytes(spans),
            None if self.segments is None else self.segments - part * len(spans),
        )


def _size_bytes(spans: Mapping[int, _Span]) -> int:
    return sum(span.size_bytes for span in spans.values())


NO_LIMIT = Limits()


class Rounds:
    """The unread parts that shares are counted by, until something else is to be read. Lives as long as its process.

    Another process begins a new round where the offset is: no segment is then more than a record ahead of its share.
    """

    def __init__(self) -> None:
        self._spans: dict[int, _Span] = {}
        self.after = 0
        """Birth of the last of the segments that shared the last batch, while others waited for one; else 0."""

    def spans(self, side_by_side: Sequence[Unread], cutter: Cutter) -> Mapping[int, _Span]:
        """Return the spans of the round, and of segments that it has ended. A segment that grew begins a new one."""
        if not all(self._has(*unread) for unread in side_by_side):
            self._spans = {
                segment.birth: _Span(position, segment.end, cutter.size_bytes(segment, position, segment.end))
                for segment, position in side_by_side
            }
        return self._spans

    def _has(self, segment: ListedSegment, position: int) -> bool:
        span = self._spans.get(segment.birth)
        return span is not None and span.end == segment.end and position >= span.start


def advance_fairly(
    start: StreamOffset, listed: Sequence[ListedSegment], cutter: Cutter, limits: Limits, rounds: Rounds
) -> StreamOffset:
    """Return the offset after the next batch; `start` itself if there is nothing to read and nothing ended.

    Every segment that shares the batch, and is not ahead of the others, advances by a record at least. A record that is
    larger than the limit is read by itself.
    """
    waiting = [(segment, start.open.get(segment.birth, segment.start)) for segment in unfinished(start, listed)]
    unread = [Unread(segment, position) for segment, position in waiting if segment.end > position]
    step, queue = StreamStep(start), _Queue(unread, rounds.after)
    left = limits
    while not left.used_up and (side_by_side := queue.take(limits.at_once)):
        spans = rounds.spans(side_by_side, cutter)
        part = left.part_of(spans)
        advanced = _share(step, side_by_side, spans, cutter, part, limits.size_bytes)
        if advanced is None:
            rounds.after = side_by_side[-1].segment.birth if queue.has_more else 0
            break
        # Half-written records use up nothing: those that wait for a turn would never have one.
        used = {birth: spans[birth] for birth in advanced}
        least = min((spans[unread.segment.birth].part(unread.position) for unread in advanced.values()), default=_ALL)
        left = left.less(used, _ALL - least)
        queue.finish(side_by_side)
    step.pass_by(waiting, all_of_them=not queue.has_more)
    return step.offset(listed)


def _share(
    step: StreamStep,
    side_by_side: Sequence[Unread],
    spans: Mapping[int, _Span],
    cutter: Cutter,
    part: Fraction,
    limit_bytes: int | Fraction | None,
) -> dict[int, Unread] | None:
    """Advance segments by a part of their spans from the one that is least far.

    Return those that advanced, by their births, or None if something is left.
    """
    moved: dict[int, Unread] = {}
    behind = sorted(
        ((spans[unread.segment.birth].part(unread.position), unread) for unread in side_by_side),
        key=lambda pair: (pair[0], pair[1].segment.birth),
    )
    while behind:
        until, ends, advanced, is_left = behind[0][0] + part, [], False, False
        for done, unread in behind:
            segment, position = unread
            if done >= until:
                is_left = True
                continue
            span = spans[segment.birth]
            budget = None if until >= _ALL else max(1, ceil((until - done) * span.size_bytes))
            cut = cut_around(step.start, segment, position, cutter, budget, crossing=True)
            alone = False
            if limit_bytes is not None and cut.size_bytes > limit_bytes and budget is not None:
                before = cut_around(step.start, segment, position, cutter, budget, crossing=False)
                if cut.size_bytes - before.size_bytes > limit_bytes:
                    cut, alone = (before, False) if before.size_bytes else (cut, True)
            if alone and step.size_bytes:
                is_left = True
                continue
            step.take(segment, position, cut)
            if cut.end > position:
                advanced = True
                moved[segment.birth] = unread
            is_left = is_left or not cut.all
            ends += [] if cut.end > position or not cut.all else [(done, unread)]
            if alone:
                return None
        if advanced or not ends or len(ends) == len(behind):
            return None if is_left else moved
        behind = [pair for pair in behind if pair not in ends]  # half-written records: the others do not wait for them
    return moved


class _Queue:
    """Segments in the order of their reading: those side by side that were, or may have been, written so."""

    def __init__(self, unread: Sequence[Unread], after: int) -> None:
        """`after`: the birth of the last one that had its turn, while others waited."""
        self._after = after
        self._ties = count()
        self._sequences: dict[str, deque[Unread]] = defaultdict(deque)
        for item in sorted(unread, key=lambda item: (item.segment.place, item.segment.birth)):
            self._sequences[_sequence_of(item)].append(item)
        self._ends = [(item.segment.ended_ms, item.segment.birth) for item in unread if _is_live(item.segment)]
        heapify(self._ends)
        self._finished = set[int]()
        self._later: list[tuple[int, int, Unread]] = []
        self._ready: list[tuple[bool, int, Unread]] = []
        for sequence in self._sequences.values():
            self._offer(sequence[0])

    @property
    def has_more(self) -> bool:
        """Return whether some wait that were not taken."""
        return bool(self._ready or self._later)

    def take(self, most: int) -> list[Unread]:
        """Take the next ones that are read side by side."""
        horizon = self._horizon()
        # One at least: where a clock was set back, what ends first may wait behind what seems to begin after that end.
        while self._later and (not self._ready or horizon is None or self._later[0][0] < horizon):
            self._put(heappop(self._later)[2])
        return [heappop(self._ready)[2] for _ in range(min(most, len(self._ready)))]

    def finish(self, taken: Sequence[Unread]) -> None:
        """Let those follow that come after segments that were read to their ends."""
        for item in taken:
            self._finished.add(item.segment.birth)
            sequence = self._sequences[_sequence_of(item)]
            sequence.popleft()
            if sequence:
                self._offer(sequence[0])

    def _offer(self, item: Unread) -> None:
        heappush(self._later, (item.segment.began_ms, next(self._ties), item))

    def _put(self, item: Unread) -> None:
        birth = item.segment.birth
        heappush(self._ready, (birth <= self._after, birth, item))

    def _horizon(self) -> int | None:
        """Return the time at which the first of the segments had been written: what begins later waits for its end."""
        while self._ends and self._ends[0][1] in self._finished:
            heappop(self._ends)
        return self._ends[0][0] - _LIVE_MS if self._ends else None


def _sequence_of(item: Unread) -> str:
    return item.segment.sequence or str(item.segment.birth)


def _is_live(segment: ListedSegment) -> bool:
    """Return whether a segment was written over a time that is known, and has ended."""
    return segment.complete and segment.ended_ms - segment.began_ms > _LIVE_MS
