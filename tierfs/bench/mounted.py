"""Measuring a mount that is there: nothing is written to its store, and no cache but the file's own is dropped.

Reading files of a mount as programs do.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tierfs.app.store import Store, open_store
from tierfs.bench import raw
from tierfs.bench.children import null_mount, signals_interrupt
from tierfs.bench.figures import Results, Series
from tierfs.bench.raw import MOUNT_COLD, MOUNT_LOCAL, NULL, RAW, Tell
from tierfs.chunkstore.link_limit import LinkMeasurement
from tierfs.chunkstore.link_probe import ReadRange
from tierfs.errors import DataLoss, NotFound
from tierfs.metadata import directories
from tierfs.metadata.records import SegmentRecord
from tierfs.names import printable
from tierfs.system.mounts import Mount
from tierfs.types import MIB, ByteRange

_BLOCK_BYTES = MIB
"""As `dd bs=1M`."""

SMALL_BYTES = 4096


def sequential_s(path: Path, wanted: ByteRange) -> float:
    """Seconds of reading a range of a file from its start to its end. Raises DataLoss when it is shorter."""
    block = memoryview(bytearray(_BLOCK_BYTES))
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        started, at = time.perf_counter(), wanted.start
        while at < wanted.end:
            done = os.preadv(fd, [block[: wanted.end - at]], at)
            if not done:
                raise DataLoss(f"{path} ends at {at}, before {wanted.end}")
            at += done
        return time.perf_counter() - started
    finally:
        os.close(fd)


def random_s(path: Path, length_bytes: int, count: int, chosen: random.Random) -> float:
    """Median seconds of `count` reads of 4 KiB at random."""
    block = memoryview(bytearray(SMALL_BYTES))
    taken = []
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        for _ in range(count):
            at = chosen.randrange(max(1, length_bytes // SMALL_BYTES)) * SMALL_BYTES
            started = time.perf_counter()
            os.preadv(fd, [block], at)
            taken.append(time.perf_counter() - started)
    finally:
        os.close(fd)
    return statistics.median(taken)


_STATS = ".tierfs/stats"


@dataclass(frozen=True, slots=True)
class _Target:
    """The file that is read, and the segment it shows."""

    mountpoint: Path
    path: Path
    segment: SegmentRecord

    def cold_bytes_read(self) -> int:
        """Return the bytes that the mount has read from the cold tier so far, for all readers."""
        read: int = json.loads((self.mountpoint / _STATS).read_bytes())["reads"]["cold"]["bytes"]
        return read


def windows(length_bytes: int, size_bytes: int, repetitions: int) -> list[ByteRange]:
    """Ranges of the file, one for each repetition, that share no byte, as long as there are enough.

    The last comes first: what a mount has read ahead of one is never part of the next.
    """
    share = length_bytes // repetitions // MIB * MIB or min(length_bytes, MIB)
    size = min(size_bytes, share)
    last = max(0, length_bytes - size) // MIB * MIB
    starts = [max(0, last - number * size) for number in range(repetitions)]
    return [ByteRange(start, start + size) for start in starts]


def bench_mount(mount: Mount, name: str, size_bytes: int, repetitions: int, tell: Tell) -> Results:
    """Read the largest sealed segment below `name` of a mount. Raises NotFound where there is none."""
    with open_store(mount.store) as store, signals_interrupt():
        found, segment = _largest(store, name)
        target = _Target(mount.mountpoint, mount.mountpoint / found, segment)
        chosen = windows(segment.range.length_bytes, size_bytes, repetitions)
        tell(f"reading {chosen[0].length_bytes / MIB:.1f} MiB of {printable(str(target.path))} in each repetition")
        series, what, link = Series(), MOUNT_LOCAL, None
        for number, window in enumerate(chosen, 1):
            tell(f"repetition {number} of {repetitions}")
            what = _measure(store, target, window, series)
        if what == MOUNT_COLD:  # at the end: what it reads may stay in memory
            link = _measured_link(store, target, chosen)
    limits = [one for one in ((NULL,) if what == MOUNT_LOCAL else (RAW, NULL)) if one in series]
    figures = (*(series.figure(limit) for limit in limits), series.figure(what, limits))
    return Results(str(target.path), chosen[0].length_bytes, figures, link)


def _largest(store: Store, name: str) -> tuple[str, SegmentRecord]:
    with store.metadata.read() as txn:
        sealed = [
            (path, segment)
            for path, segment in directories.segments_at(txn, name)
            if segment.sealed and segment.range.length_bytes
        ]
    if not sealed:
        raise NotFound(
            f"there is no sealed segment with bytes below {printable(name) or '/'}",
            remedy="seal one: tierfs seal SEGMENT",
        )
    return max(sealed, key=lambda one: one[1].range.length_bytes)


def _measured_link(store: Store, target: _Target, windows: Sequence[ByteRange]) -> LinkMeasurement | None:
    """Measure by the cold bytes of the windows; None without any."""
    wanted = [piece for window in windows for piece in _pieces(store, target, window)]
    if not wanted:
        return None
    with raw.bare_storage(store) as storage:
        return raw.link(storage, wanted, store.settings.read.streams)


def _pieces(store: Store, target: _Target, window: ByteRange) -> list[ReadRange]:
    first = target.segment.start_offset
    return raw.pieces(store, target.segment, ByteRange(first + window.start, first + window.end))


def _measure(store: Store, target: _Target, window: ByteRange, series: Series) -> str:
    """One repetition; returns which tier the mount read."""
    raw.forget_file(target.path)
    wanted = _pieces(store, target, window)
    size = window.length_bytes
    if sum(piece.length_bytes for piece in wanted) == size:
        with raw.bare_storage(store) as storage:
            series.add_rate(RAW, size, raw.parallel_s(storage, wanted))
            raw.forget(storage, wanted)
    before = target.cold_bytes_read()
    taken_s = sequential_s(target.path, window)
    what = MOUNT_COLD if target.cold_bytes_read() > before else MOUNT_LOCAL
    series.add_rate(what, size, taken_s)
    with tempfile.TemporaryDirectory(prefix="tierfs-bench-") as mountpoint, null_mount(Path(mountpoint), size) as file:
        series.add_rate(NULL, size, sequential_s(file, ByteRange(0, size)))
    return what
