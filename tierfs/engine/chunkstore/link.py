"""The link to a storage, as its transfers measure it, and the number of streams that fills it.

A server far away answers late and gives each connection a part of what the link carries: bandwidth-delay says how many
transfers in flight fill it. Near servers are limited by the processor, and more streams only delay each other.
Measurements and rejected ways: docs/design/0026-links.md.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import TracebackType
from typing import Protocol, runtime_checkable

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.system.clock import Clock, SystemClock
from tierfs.base.words.types import MIB, LocationId
from tierfs.engine.chunkstore.protocol import ChunkStorage, OnReceived

# Enough for any near server: 3 to 8 make no difference on two cores, 1 costs a quarter (measured).
LEAST_STREAMS = 4

# The range of one stream of a far link: long against its first byte, short enough for memory (measured best of 2 to 16
# MiB).
RANGE_BYTES = 4 * MIB

# A server that answers faster is near: on one machine 1 to 5 ms, in another building 10 to 40.
NEAR_S = 0.008

# Half more than one process takes in (measured: 760 MB/s of raw GETs on two cores): a busy server answers later than at
# its best.
_AIM_BYTES_PER_S = 1200e6

# A connection's rate until it is measured: that of large object stores.
_USUAL_BYTES_PER_S = 90e6

# Shorter transfers say nothing about a connection's rate.
_LEAST_SAMPLE_BYTES = MIB // 2

_RATES = 16
# After one to two of these a way that has become longer is believed.
_FIRST_BYTES_FOR_S = 30.0


@dataclass(frozen=True, slots=True)
class LinkFigures:
    """The link at one instant."""

    first_byte_s: float | None
    """The shortest recent time from a request to the first bytes of its answer; None before the first answer."""
    connection_bytes_per_s: float | None
    """The usual recent rate of one transfer beside few others; None before the first large one."""
    streams: int


class Link:
    """Measures the transfers of one storage in one direction. Thread-safe."""

    def __init__(self, clock: Clock | None = None, *, most_streams: int | None = None) -> None:
        """`most_streams` bounds the streams, for a storage that gains nothing by more; None: nothing does."""
        self._most_streams = most_streams
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._first_byte = _Least(_FIRST_BYTES_FOR_S)
        self._rates: deque[float] = deque(maxlen=_RATES)
        self._in_flight = 0
        self._streams = LEAST_STREAMS

    @property
    def streams(self) -> int:
        """Large transfers at once that fill the link, `LEAST_STREAMS` or more; the caller bounds them."""
        return self._streams

    @property
    def first_byte_s(self) -> float:
        """The shortest recent time to a first byte, 0 before the first one."""
        return self._first_byte.value or 0.0

    @property
    def figures(self) -> LinkFigures:
        """The present knowledge."""
        with self._lock:
            return LinkFigures(self._first_byte.value, self._usual_rate, self._streams)

    def begin(self) -> LinkTimer:
        """Note that a transfer begins; use it as a context manager."""
        return LinkTimer(self, self._clock)

    def answered(self, seconds: float) -> None:
        """Note a small request: its answer was complete after so many seconds."""
        with self._lock:
            self._first_byte.note(seconds, self._clock.monotonic_s())
            self._streams = self._fitting()

    def _began(self) -> bool:
        """Count one more; return whether it runs beside few others, so that its rate is the connection's own."""
        with self._lock:
            self._in_flight += 1
            return self._in_flight <= LEAST_STREAMS

    def _ended(self) -> None:
        with self._lock:
            self._in_flight -= 1

    def _flowed(self, bytes_per_s: float) -> None:
        with self._lock:
            self._rates.append(bytes_per_s)
            self._streams = self._fitting()

    @property
    def _usual_rate(self) -> float | None:
        """The median: the highest are of bytes that had waited for a busy processor."""
        return sorted(self._rates)[len(self._rates) // 2] if self._rates else None

    def _fitting(self) -> int:
        """Return the streams that carry the most that a process takes in, by bandwidth-delay."""
        first_byte_s = self._first_byte.value or 0.0
        if first_byte_s < NEAR_S:
            return LEAST_STREAMS
        of_one = RANGE_BYTES / (first_byte_s + RANGE_BYTES / (self._usual_rate or _USUAL_BYTES_PER_S))
        fitting = max(LEAST_STREAMS, math.ceil(_AIM_BYTES_PER_S / of_one))
        return fitting if self._most_streams is None else min(self._most_streams, fitting)


class LinkTimer:
    """Measures one transfer. For one thread."""

    __slots__ = ("_clock", "_few", "_first", "_link", "_started_s")

    def __init__(self, link: Link, clock: Clock) -> None:
        self._link = link
        self._clock = clock
        self._few = False
        self._started_s = 0.0
        self._first: tuple[float, int] | None = None

    def __enter__(self) -> LinkTimer:
        self._few = self._link._began()
        self._started_s = self._clock.monotonic_s()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._link._ended()

    def watching(self, progress: OnReceived | None) -> OnReceived:
        """Return a callback that notes the first bytes, and passes all calls on."""

        def received(done: int) -> None:
            if self._first is None:
                self._first = (self._clock.monotonic_s(), done)
                self._link.answered(self._first[0] - self._started_s)
            if progress is not None:
                progress(done)

        return received

    def received(self, length_bytes: int) -> None:
        """Note that a download ended well: all bytes have arrived."""
        if self._first is not None:
            self._note(length_bytes - self._first[1], self._first[0])

    def answered(self) -> None:
        """Note that a small request was answered."""
        self._link.answered(self._clock.monotonic_s() - self._started_s)

    def sent(self, length_bytes: int) -> None:
        """Note that an upload ended well: the server has answered."""
        self._note(length_bytes, self._started_s + self._link.first_byte_s)

    def _note(self, length_bytes: int, since_s: float) -> None:
        seconds = self._clock.monotonic_s() - since_s
        if self._few and seconds > 0 and length_bytes >= _LEAST_SAMPLE_BYTES:
            self._link._flowed(length_bytes / seconds)


class Slots:
    """Bounds things at once by a number that may change. Thread-safe."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._busy = 0

    @contextmanager
    def one_of(self, most: Callable[[], int]) -> Iterator[None]:
        """Wait until fewer than `most`, which is asked again after each end, are busy; one may always be."""
        with self._changed:
            while self._busy and self._busy >= most():
                self._changed.wait()
            self._busy += 1
        try:
            yield
        finally:
            with self._changed:
                self._busy -= 1
                self._changed.notify_all()  # the bound may have grown meanwhile


class _Least:
    """The least of recent values: of the current period and the one before."""

    __slots__ = ("_current", "_ends_s", "_period_s", "value")

    def __init__(self, period_s: float) -> None:
        self._period_s = period_s
        self._ends_s = 0.0
        self._current = math.inf
        self.value: float | None = None

    def note(self, value: float, now_s: float) -> None:
        """Note one more value."""
        if now_s >= self._ends_s:
            before, self._current = self._current, math.inf
            self._ends_s = now_s + self._period_s
            self.value = None if math.isinf(before) else before
        self._current = min(self._current, value)
        self.value = self._current if self.value is None else min(self.value, value)


@runtime_checkable
class Linked(Protocol):
    """A storage that measures its link."""

    @property
    def link(self) -> Link:
        """The link, of reads."""
        ...


def streams_to(storage: ChunkStorage, most: int) -> int:
    """Return the large transfers at once that fill the link to a storage, at most so many."""
    return min(most, storage.link.streams if isinstance(storage, Linked) else LEAST_STREAMS)


class Links:
    """The links of the locations that a process reads, bounded by a setting. Thread-safe."""

    def __init__(self, most_streams: int) -> None:
        self._most_streams = most_streams
        self._lock = threading.Lock()
        self._links: dict[LocationId, Link] = {}

    def add(self, location_id: LocationId, storage: ChunkStorage) -> None:
        """Take in the link of a location, if its storage measures one; instead of that of a storage before it."""
        if isinstance(storage, Linked) and self._links.get(location_id) is not storage.link:
            with self._lock:
                self._links = {**self._links, location_id: storage.link}

    def get(self, location_id: LocationId) -> Link | None:
        """Return the link of a location, None if it is not known."""
        return self._links.get(location_id)

    @property
    def streams(self) -> int:
        """Large transfers at once that fill the farthest link."""
        streams = max((link.streams for link in self._links.values()), default=LEAST_STREAMS)
        return min(self._most_streams, streams)

    @property
    def first_byte_s(self) -> float:
        """The first byte's time of the slowest to answer; 0 while none is known."""
        return max((link.first_byte_s for link in self._links.values()), default=0.0)

    @property
    def figures(self) -> LinkFigures:
        """The figures of the link that takes the most streams."""
        unknown = LinkFigures(None, None, LEAST_STREAMS)
        most = max((link.figures for link in self._links.values()), key=lambda way: way.streams, default=unknown)
        return replace(most, streams=min(self._most_streams, most.streams))
