"""The lag of a stream behind its store, and the rates of both, for the progress of a query. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from time import monotonic

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words.errors import DataLoss
from tierfs.pipeline.reader.stream_plan import Cutter, ListedSegment, StreamOffset, read_before, unfinished

# Rates are those of the last minute, from a sample a second: short enough to see a change, and long enough for a
# trigger of some seconds (guesses).
_WINDOW_S = 60.0
_SAMPLE_S = 1.0


@dataclass(frozen=True, slots=True)
class Lag:
    """Bytes and entries that exist and were not read, with records that are half written."""

    size_bytes: int = 0
    entries: int = 0
    """Of ledgers, where entries are read; else 0."""
    segments: int = 0
    """Segments that have such bytes."""
    largest: str = ""
    """The one that has most of them."""
    largest_bytes: int = 0


def lag_of(since: StreamOffset, listed: Sequence[ListedSegment], cutter: Cutter, *, of_entries: bool) -> Lag:
    """Return what a stream at an offset has not read of the segments."""
    size_bytes = entries = segments = largest_bytes = 0
    largest = ""
    for segment in unfinished(since, listed):
        position = since.open.get(segment.birth, segment.start)
        if segment.end <= position:
            continue
        unread_bytes = cutter.size_bytes(segment, position, segment.end) - _read_elsewhere(since, segment, position)
        if unread_bytes <= 0 and not of_entries:
            continue
        size_bytes += unread_bytes
        entries += segment.end - position if of_entries else 0
        segments += 1
        if unread_bytes > largest_bytes:
            largest, largest_bytes = segment.path, unread_bytes
    return Lag(size_bytes, entries, segments, largest, largest_bytes)


def _read_elsewhere(since: StreamOffset, segment: ListedSegment, position: int) -> int:
    """Return the bytes that were read in segments which were concatenated to this one since."""
    if not segment.joins:
        return 0
    try:
        ranges = read_before(since, segment, position)
    except DataLoss:
        return 0  # the next batch raises it
    return sum(max(0, min(held.end, segment.end) - held.start) for held in ranges)


@dataclass(frozen=True, slots=True)
class _Sample:
    at_s: float
    end_bytes: int
    read_bytes: int


@dataclass(frozen=True, slots=True)
class StreamRate:
    """Bytes per second over some seconds."""

    over_s: float
    appended: float
    read: float


class StreamRates:
    """The rates of the last minute. Used by one thread at a time."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._samples: deque[_Sample] = deque()

    def note(self, end_bytes: int, read_bytes: int) -> StreamRate:
        """Take in the bytes of a stream until the store's end, and those of them that it read; return the rates."""
        now = _Sample(self._clock(), end_bytes, read_bytes)
        if not self._samples or now.at_s - self._samples[-1].at_s >= _SAMPLE_S:
            self._samples.append(now)
        while len(self._samples) > 1 and now.at_s - self._samples[1].at_s >= _WINDOW_S:
            self._samples.popleft()
        first = self._samples[0]
        over_s = now.at_s - first.at_s
        if over_s <= 0:
            return StreamRate(0.0, 0.0, 0.0)
        # What was deleted unread makes the end smaller.
        return StreamRate(
            over_s,
            max(0, end_bytes - first.end_bytes) / over_s,
            max(0, read_bytes - first.read_bytes) / over_s,
        )
