"""The ways files are read: from end to end, many at once, at random, and just the first byte."""

from __future__ import annotations

import os
import random
import statistics
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.benchmarks.mounts import SubjectFailed
from tests.benchmarks.raw import Get, read_objects
from tests.benchmarks.reading.corpus import PIECE_BYTES, File
from tierfs.base.words.types import CRC_BLOCK_BYTES, MIB

Read = Callable[[int, int], bytes]
"""Bytes [start, start + length) of one open file or object."""

READ_BYTES = MIB
"""What one read of a sequential reader asks for."""


@dataclass(frozen=True)
class Pace:
    """How long readers that started together took."""

    seconds: float
    each_s: tuple[float, ...]

    @property
    def evenness(self) -> float:
        """The slowest reader's speed over the fastest one's, where all read as much."""
        return min(self.each_s) / max(self.each_s)


def dd(paths: Sequence[Path]) -> Pace:
    """One `dd bs=1M` for each path, all together."""
    return _together([partial(_run_dd, path) for path in paths])


def read_all(paths: Sequence[Path]) -> Pace:
    """One thread for each path; a process each would cost more than the short files."""
    return _together([partial(_read_to_end, path) for path in paths])


def get_all(get: Get, objects: Sequence[tuple[str, int]], range_bytes: int, threads_each: int) -> Pace:
    """Whole objects, given by key and size, in ranged GETs; as many readers as objects, of some threads each."""
    return _together([partial(read_objects, get, [one], range_bytes, threads_each) for one in objects])


def first_bytes(read: Read, size_bytes: int, block_bytes: int, count: int, seed: int) -> list[float]:
    """Seconds of reads of one block at `count` places spread over `size_bytes`, in random order."""
    chosen = random.Random(seed)
    stretch = size_bytes // count
    places = [
        (index * stretch + chosen.randrange(stretch - block_bytes + 1)) // block_bytes * block_bytes
        for index in range(count)
    ]
    chosen.shuffle(places)
    return [_timed(read, place, block_bytes) for place in places]


@dataclass(frozen=True)
class RandomReads:
    """What threads that read at random for a while found."""

    latencies_s: list[float]
    seconds: float

    @property
    def p50_ms(self) -> float:
        """Median latency."""
        return statistics.median(self.latencies_s) * 1e3

    @property
    def iops(self) -> float:
        """Reads per second, of all threads."""
        return len(self.latencies_s) / self.seconds


def random_reads(read: Read, size_bytes: int, block_bytes: int, threads: int, seconds: float, seed: int) -> RandomReads:
    """Aligned blocks at random until `seconds` are over; none comes twice, nor two from one block of a checksum.

    So no cache can help, however small the file; one that is read up ends the reads earlier.
    """
    places = _scattered_places(size_bytes, block_bytes, seed)
    started = time.perf_counter()

    def one(number: int) -> list[float]:
        found = []
        for place in places[number::threads]:
            if time.perf_counter() - started >= seconds:
                break
            found.append(_timed(read, place, block_bytes))
        return found

    with ThreadPoolExecutor(threads) as pool:
        found = [latency for one_found in pool.map(one, range(threads)) for latency in one_found]
    return RandomReads(found, time.perf_counter() - started)


def _scattered_places(size_bytes: int, block_bytes: int, seed: int) -> list[int]:
    chosen = random.Random(seed)
    stretch = max(block_bytes, CRC_BLOCK_BYTES)
    starts = list(range(0, size_bytes - stretch + 1, stretch))
    chosen.shuffle(starts)
    return [start + chosen.randrange(stretch // block_bytes) * block_bytes for start in starts]


@contextmanager
def opened_randomly(path: Path):  # type: ignore[no-untyped-def]
    """A Read of a file whose reader announced that it reads at random."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
        yield lambda start, length: os.pread(fd, length, start)
    finally:
        os.close(fd)


def open_and_read(path: Path) -> Read:
    """A Read that opens the file each time."""

    def read(start: int, length_bytes: int) -> bytes:
        fd = os.open(path, os.O_RDONLY)
        try:
            return os.pread(fd, length_bytes, start)
        finally:
            os.close(fd)

    return read


def verify(path: Path, file: File) -> None:
    """Compare every byte. Raises SubjectFailed for a wrong one."""
    with path.open("rb", buffering=0) as source:
        for start in range(0, file.size_bytes, PIECE_BYTES):
            if _filled(source.fileno(), start) != file.expected(start, PIECE_BYTES):
                raise SubjectFailed(f"{path} differs between bytes {start} and {start + PIECE_BYTES}")
        _require_length(path, os.fstat(source.fileno()).st_size, file.size_bytes)


def checked(read: Read, expected: Read) -> Read:
    """The same read; raises SubjectFailed when it gives other bytes."""

    def compare(start: int, length_bytes: int) -> bytes:
        data = read(start, length_bytes)
        if data != expected(start, length_bytes):
            raise SubjectFailed(f"bytes {start} to {start + length_bytes} differ")
        return data

    return compare


def _timed(read: Read, start: int, length_bytes: int) -> float:
    started = time.perf_counter()
    read(start, length_bytes)
    return time.perf_counter() - started


def _together(readers: Sequence[Callable[[], None]]) -> Pace:
    """Run them at the same time. Raises what one of them raised."""
    barrier = threading.Barrier(len(readers))

    def one(reader: Callable[[], None]) -> tuple[float, float]:
        barrier.wait()
        started = time.perf_counter()
        reader()
        return started, time.perf_counter()

    with ThreadPoolExecutor(len(readers)) as pool:
        spans = list(pool.map(one, readers))
    whole = max(end for _, end in spans) - min(start for start, _ in spans)
    return Pace(whole, tuple(end - start for start, end in spans))


def _run_dd(path: Path) -> None:
    command = ["dd", f"if={path}", "of=/dev/null", "bs=1M", "status=none"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SubjectFailed(done.stderr.strip())


def _read_to_end(path: Path) -> None:
    buffer = bytearray(READ_BYTES)
    with path.open("rb", buffering=0) as source:
        found = 0
        while received := source.readinto(buffer):
            found += received
        _require_length(path, found, os.fstat(source.fileno()).st_size)


def _filled(fd: int, start: int) -> bytes:
    """A whole piece: mounts past the page cache may answer with less than asked."""
    parts: list[bytes] = []
    at = start
    while at < start + PIECE_BYTES and (data := os.pread(fd, start + PIECE_BYTES - at, at)):
        parts.append(data)
        at += len(data)
    return b"".join(parts)


def _require_length(what: object, found: int, wanted: int) -> None:
    if found != wanted:
        raise SubjectFailed(f"{what} gave {found} bytes of {wanted}")
