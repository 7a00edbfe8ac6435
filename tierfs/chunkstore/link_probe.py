"""Measure the link to a cold tier by reading objects that are there. Nothing is written."""

from __future__ import annotations

import queue
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path

from tierfs.chunkstore.link import RANGE_BYTES, Link
from tierfs.chunkstore.link_limit import LinkMeasurement, LinkRates
from tierfs.chunkstore.protocol import ChunkStorage
from tierfs.parallel import Pool
from tierfs.types import CRC_BLOCK_BYTES, MIB

_SMALL_READS = 5
"""Their median is not that of one slow answer."""

_SINGLE_READS = 2
"""TCP has not reached its rate in the first of a connection."""

_LEAST_FLOWING = 0.5
"""Of the time of a large read, so much is taken for its bytes even if small reads answer as late (a guess)."""

_ENOUGH_S = 1.0
"""No further read begins after so long: a rate has settled by then, and nobody waits long for a slow link."""

LEAST_RANGE_BYTES = MIB
"""Shorter reads say nothing about a connection's rate."""

_OPENING_BYTES = 4096
"""Enough to open a connection, and little beside what is measured."""

_PROCESSOR_TIMES = Path("/proc/stat")
_IDLE_FIELDS = slice(3, 5)
"""idle and iowait; see proc_stat(5)."""

_ALL_FIELDS = slice(0, 8)
"""Without the time of guests, which counts as user already."""


@dataclass(frozen=True, slots=True)
class ReadRange:
    """A range of one object."""

    name: str
    offset: int
    length_bytes: int


def measure_link(
    storage: ChunkStorage, ranges: Sequence[ReadRange], *, most_streams: int, most_bytes: int
) -> LinkMeasurement:
    """Measure with ranges of objects; `most_bytes` are read at most, some of them again where there are fewer.

    `storage` is without retries. `ranges` is not empty. Raises what the storage raises.
    """
    link = Link()
    first_byte_s, small_bytes = _small_reads(storage, ranges, link)
    if max(piece.length_bytes for piece in ranges) < LEAST_RANGE_BYTES:
        return LinkMeasurement(first_byte_s, small_bytes, None)
    alone, alone_bytes = _single_reads(storage, ranges, link, first_byte_s)
    streams = min(most_streams, link.streams)
    burst = _Burst(storage, ranges, streams, most_bytes - small_bytes - alone_bytes - streams * _OPENING_BYTES)
    opening_bytes = burst.open_connections()
    taken_s, own_cores, busy_share = burst.timed()
    rates = LinkRates(
        connection_bytes_per_s=alone,
        bytes_per_s=burst.done_bytes / taken_s,
        range_bytes=burst.range_bytes,
        streams=streams,
        link_streams=link.streams,
        own_cores=own_cores,
        busy_share=busy_share,
    )
    read_bytes = small_bytes + alone_bytes + opening_bytes + burst.done_bytes
    return LinkMeasurement(first_byte_s, read_bytes, rates)


def pieces(ranges: Sequence[ReadRange], length_bytes: int) -> Iterator[ReadRange]:
    """Yield ranges of that length for ever, each once before the first comes again.

    Where none is as long, the longest are yielded.
    """
    length = min(length_bytes, max(piece.length_bytes for piece in ranges))
    return cycle(
        ReadRange(piece.name, offset, length)
        for piece in ranges
        for offset in range(piece.offset, piece.offset + piece.length_bytes - length + 1, length)
    )


def _small_reads(storage: ChunkStorage, ranges: Sequence[ReadRange], link: Link) -> tuple[float, int]:
    """Return the median seconds of a small read, and the bytes of all; the first one opens the connection."""
    taken_s = []
    done_bytes = 0
    for piece in islice(pieces(ranges, CRC_BLOCK_BYTES), 1 + _SMALL_READS):
        taken_s.append(_timed_read(storage, piece, link))
        done_bytes += piece.length_bytes
    return statistics.median(taken_s[1:]), done_bytes


def _single_reads(
    storage: ChunkStorage, ranges: Sequence[ReadRange], link: Link, first_byte_s: float
) -> tuple[float, int]:
    """Return the rate of a connection in bytes per second, and the bytes that were read.

    From whole reads: bytes that have waited for a busy processor arrive faster than the link is.
    """
    rate, done_bytes = 0.0, 0
    for piece in islice(pieces(ranges, RANGE_BYTES), _SINGLE_READS):
        taken_s = _timed_read(storage, piece, link)
        done_bytes += piece.length_bytes
        rate = max(rate, piece.length_bytes / max(taken_s - first_byte_s, taken_s * _LEAST_FLOWING))
        if taken_s > _ENOUGH_S:
            break
    return rate, done_bytes


def _timed_read(storage: ChunkStorage, piece: ReadRange, link: Link) -> float:
    """Return the seconds of one read, which the link sees."""
    buffer = _touched(piece.length_bytes)
    started_s = time.perf_counter()
    with link.begin() as timer:
        storage.read_into(piece.name, piece.offset, buffer, progress=timer.watching(None))
        timer.received(piece.length_bytes)
    return time.perf_counter() - started_s


class _Burst:
    """As many reads at once as the link takes, for a short while."""

    def __init__(self, storage: ChunkStorage, ranges: Sequence[ReadRange], streams: int, most_bytes: int) -> None:
        self._storage = storage
        self._streams = streams
        share = max(most_bytes // streams // CRC_BLOCK_BYTES * CRC_BLOCK_BYTES, CRC_BLOCK_BYTES)
        endless = pieces(ranges, min(RANGE_BYTES, share))
        first = next(endless)
        self.range_bytes = first.length_bytes
        rounds = max(1, most_bytes // (streams * self.range_bytes))  # whole ones: no stream ends before the others
        self._wanted = [first, *islice(endless, rounds * streams - 1)]
        self._buffers: queue.SimpleQueue[memoryview] = queue.SimpleQueue()
        for _ in range(streams):
            self._buffers.put(_touched(self.range_bytes))
        self._ends_s = 0.0
        self.done_bytes = 0

    def open_connections(self) -> int:
        """Open a connection for each stream, which is no part of its rate; return the bytes read."""
        first = self._wanted[: self._streams]
        with Pool(self._streams, "tierfs-link") as pool:
            return sum(pool.run(lambda piece: self._read(ReadRange(piece.name, piece.offset, _OPENING_BYTES)), first))

    def timed(self) -> tuple[float, float, float]:
        """Read; return the seconds, this process's busy cores, and the busy part of the machine's processor."""
        machine, own_s, started_s = _Processor.now(), time.process_time(), time.perf_counter()
        self._ends_s = started_s + _ENOUGH_S
        with Pool(self._streams, "tierfs-link") as pool:
            self.done_bytes = sum(pool.run(self._read_in_time, self._wanted))
            taken_s = time.perf_counter() - started_s
        return taken_s, (time.process_time() - own_s) / taken_s, _Processor.now().busy_since(machine)

    def _read_in_time(self, piece: ReadRange) -> int:
        """Return the bytes read: none after the end."""
        return self._read(piece) if time.perf_counter() < self._ends_s else 0

    def _read(self, piece: ReadRange) -> int:
        buffer = self._buffers.get()
        try:
            self._storage.read_into(piece.name, piece.offset, buffer[: piece.length_bytes])
        finally:
            self._buffers.put(buffer)
        return piece.length_bytes


@dataclass(frozen=True, slots=True)
class _Processor:
    """The time of all cores since the machine started, in the kernel's ticks."""

    idle: int
    total: int

    @classmethod
    def now(cls) -> _Processor:
        """Return the present count; a machine that does not tell it is idle."""
        try:
            with _PROCESSOR_TIMES.open() as file:
                ticks = [int(word) for word in file.readline().split()[1:]][_ALL_FIELDS]
        except (OSError, ValueError):
            return cls(0, 0)
        return cls(sum(ticks[_IDLE_FIELDS]), sum(ticks))

    def busy_since(self, before: _Processor) -> float:
        """Return the busy part since then; 0 if no tick has passed."""
        total = self.total - before.total
        return 1 - (self.idle - before.idle) / total if total > 0 else 0.0


def _touched(length_bytes: int) -> memoryview:
    """Return memory that the kernel need not give out any more while a read is timed."""
    return memoryview(bytearray(1) * length_bytes)
