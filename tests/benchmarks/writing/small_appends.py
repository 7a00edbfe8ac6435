"""Small durable appends of many threads, beside plain writes, syncs and metadata commits of the same batches."""

from __future__ import annotations

import os
import random
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import lmdb

from tierfs.app import store as app
from tierfs.app.setup.create import init_store
from tierfs.base.words.types import MIB
from tierfs.engine.segments.writer import SegmentWriter

SMALLEST_BYTES = 100
LARGEST_BYTES = 1024
MEASURED_S = 3.0
WARM_S = 0.5
"""Before it, uncounted: the first appends create the files."""

COMMANDS_S = 10.0
COMMANDS = 8
"""Loops of short `tierfs append` commands beside the threads."""

_PAYLOADS = 512
_SYNC_THREADS = 8
"""Of the limit: more gained nothing on two cores."""

_ROWS = 4
"""Rows that an append changes: segment, chunk, object, checksums."""

_ROW_BYTES = 120
_MAP_BYTES = 64 * MIB


@dataclass(frozen=True)
class Load:
    """So many threads in turn on so many segments."""

    threads: int
    segments: int

    def __str__(self) -> str:
        return f"{self.threads} threads, {self.segments} segment{'s' * (self.segments > 1)}"


LOADS = (Load(256, 32), Load(32, 32), Load(32, 1), Load(1, 1))


def bench_small_appends(directory: Path, repetitions: int) -> str:
    """Return a table of appends per second; the limit of each load runs right before it."""
    init_store(directory / "appends", None)
    lines = [
        f"### Durable appends of {SMALLEST_BYTES} to {LARGEST_BYTES} bytes",
        "",
        "| load | limit, appends/s | tierfs append/s (min, median, max) | ratio | p50, p99 ms |",
        "|---|---|---|---|---|",
    ]
    data = payloads()
    for load in LOADS:
        limits, ours, delays = list[float](), list[float](), list[float]()
        for turn in range(repetitions):
            limits.append(limit(directory / f"limit-{load.threads}-{load.segments}-{turn}", load, data))
            with app.open_store(directory / "appends") as store, writers_of(store, load, turn) as writers:
                ours.append(rate(writers, load.threads, MEASURED_S, delays, data))
        limited, middle = statistics.median(limits), statistics.median(ours)
        rates = ", ".join(f"{value:,.0f}" for value in (min(ours), middle, max(ours)))
        cuts = statistics.quantiles(delays, n=100)
        lines.append(f"| {load} | {limited:,.0f} | {rates} | {middle / limited:.2f} | {cuts[49]:.1f}, {cuts[98]:.1f} |")
    lines.append("")
    lines.append(_beside_commands(directory / "appends"))
    return "\n".join(lines) + "\n"


def payloads() -> list[bytes]:
    """Return records of all sizes, in a random but constant order."""
    chosen = random.Random(17)
    return [os.urandom(chosen.randint(SMALLEST_BYTES, LARGEST_BYTES)) for _ in range(_PAYLOADS)]


def limit(directory: Path, load: Load, data: Sequence[bytes]) -> float:
    """Write one batch after the other: every file once, all synced side by side, then one commit of their rows."""
    directory.mkdir()
    fds = [os.open(directory / f"f{number}", os.O_WRONLY | os.O_CREAT | os.O_EXCL) for number in range(load.segments)]
    batch = [
        b"".join(data[at % len(data)] for at in range(first, load.threads, load.segments))
        for first in range(load.segments)
    ]
    database = lmdb.open(str(directory / "db"), map_size=_MAP_BYTES)
    written = 0
    with ThreadPoolExecutor(_SYNC_THREADS) as pool, database:
        started = time.monotonic()
        while (taken := time.monotonic() - started) < MEASURED_S:
            for fd, block in zip(fds, batch, strict=True):
                os.write(fd, block)
            list(pool.map(os.fdatasync, fds))
            with database.begin(write=True) as txn:
                for key in range(load.segments * _ROWS):
                    txn.put(key.to_bytes(8, "big"), os.urandom(_ROW_BYTES))
            written += load.threads
    for fd in fds:
        os.close(fd)
    return written / taken


@contextmanager
def writers_of(store: app.Store, load: Load, turn: int) -> Iterator[list[SegmentWriter]]:
    prefix = f"t{load.threads}-{load.segments}-{turn}"
    writers = [store.engine.open_writer(f"{prefix}/s{number:02d}") for number in range(load.segments)]
    yield writers
    for writer in writers:
        store.engine.close_writer(writer)


def rate(
    writers: list[SegmentWriter], threads: int, measured_s: float, delays: list[float], data: Sequence[bytes]
) -> float:
    """Append from all threads; return appends per second, and add how long each took, in ms."""
    starts = time.monotonic() + WARM_S
    ends = starts + measured_s

    def work(number: int) -> list[float]:
        writer, taken, turn = writers[number % len(writers)], list[float](), number
        while (began := time.monotonic()) < ends:
            writer.append(data[turn % len(data)])
            if began >= starts:
                taken.append((time.monotonic() - began) * 1e3)
            turn += 1
        return taken

    with ThreadPoolExecutor(threads) as pool:
        found = [delay for part in pool.map(work, range(threads)) for delay in part]
    delays.extend(found)
    return len(found) / measured_s


def _beside_commands(path: Path) -> str:
    """Count short commands in a loop, and the appends of 32 threads of this process beside them."""
    done: list[int] = []
    over = threading.Event()

    def commands(number: int) -> None:
        words = [sys.executable, "-m", "tierfs", "-q", "--store", str(path), "append", f"commands/s{number}"]
        while not over.is_set():
            subprocess.run(words, input=b"x" * LARGEST_BYTES, check=True, stdout=subprocess.DEVNULL)
            done.append(number)

    load = Load(32, 32)
    with app.open_store(path) as store:
        alone = _with_commands(commands, over, done, lambda: time.sleep(COMMANDS_S))
        over.clear()
        with writers_of(store, load, -1) as writers:
            rates: list[float] = []
            beside = _with_commands(
                commands, over, done, lambda: rates.append(rate(writers, load.threads, COMMANDS_S, [], payloads()))
            )
    return (
        f"{COMMANDS} loops of `tierfs append`, a process for each append of {LARGEST_BYTES} bytes: "
        f"{alone:.1f} appends/s; beside {load} of another process {beside:.1f}, and those {rates[0]:,.0f}."
    )


def _with_commands(
    commands: Callable[[int], None], over: threading.Event, done: list[int], work: Callable[[], object]
) -> float:
    """Return how many commands ended per second while `work` ran."""
    with ThreadPoolExecutor(COMMANDS) as pool:
        running = [pool.submit(commands, number) for number in range(COMMANDS)]
        before, started = len(done), time.monotonic()
        try:
            work()
        finally:
            rate = (len(done) - before) / (time.monotonic() - started)
            over.set()
        for future in running:
            future.result()
    return rate
