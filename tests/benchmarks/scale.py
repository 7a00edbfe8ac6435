"""A million chunks in 100,000 segments of one directory: opening, resolving, listing, and what records cost."""

from __future__ import annotations

import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.benchmarks.cold_records import put_cold_segment
from tests.benchmarks.measuring import seconds, store_served
from tierfs.app import store as app
from tierfs.app.setup.create import init_store
from tierfs.base.system.clock import SystemClock
from tierfs.base.words.types import MIB, ByteRange, ReadPriority
from tierfs.engine.metadata import directories
from tierfs.engine.metadata.environment import open_environment
from tierfs.engine.metadata.layout import load
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.tables import CHUNKS, DIRENTS, OBJECTS, SEGMENTS
from tierfs.reading.view import resolve

SEGMENTS_COUNT = 100_000
CHUNKS_PER_SEGMENT = 10
CHUNK_BYTES = 64 * MIB
_BATCH = 1000
_SAMPLES = 2000
_COMMANDS = 15


def build(path: Path) -> None:
    """The store: every segment cold, in chunks of 64 MiB that no object backs."""
    init_store(path)
    with app.open_store(path) as store:
        for first in range(0, SEGMENTS_COUNT, _BATCH):
            with store.metadata.write() as txn:
                for number in range(first, first + _BATCH):
                    put_cold_segment(txn, f"d/s{number:06d}", CHUNKS_PER_SEGMENT, CHUNK_BYTES)


def bytes_per_chunk(path: Path) -> float:
    """Pages of every database but the list of changes, per chunk."""
    environment = open_environment(path.resolve())
    total = 0
    with environment.lmdb.begin() as txn:
        for table in (CHUNKS, OBJECTS, SEGMENTS, DIRENTS):
            stat = txn.stat(db=environment.databases[table.name])
            total += stat["psize"] * (stat["branch_pages"] + stat["leaf_pages"] + stat["overflow_pages"])
    return total / (SEGMENTS_COUNT * CHUNKS_PER_SEGMENT)


def median_us(work: Callable[[int], object]) -> float:
    """Median duration of `work` on random numbers of segments."""
    chosen = random.Random(2)
    found = []
    for _ in range(_SAMPLES):
        number = chosen.randrange(SEGMENTS_COUNT)
        started = time.perf_counter()
        work(number)
        found.append(time.perf_counter() - started)
    return statistics.median(found) * 1e6


def command_s(path: Path, *words: str) -> float:
    """Median seconds of a command, with a warm file cache."""
    command = [sys.executable, "-m", "tierfs", "--store", str(path), *words]

    def once() -> float:
        return seconds(lambda: subprocess.run(command, check=True, capture_output=True, input=b"x"))

    return statistics.median(once() for _ in range(_COMMANDS))


def bench_scale(directory: Path) -> str:
    """Everything this module says it measures, as markdown."""
    path, mnt = directory / "scale", directory / "mnt"
    built = seconds(lambda: build(path))
    lines = [f"### {SEGMENTS_COUNT:,} segments in one directory, {SEGMENTS_COUNT * CHUNKS_PER_SEGMENT:,} chunks", ""]
    with app.open_store(path) as store:
        store.close()
        opened = seconds(lambda: MetadataStore(path / "metadata", SystemClock()))
        metadata = store.metadata

        def opening(number: int) -> object:
            with metadata.read() as txn:
                return load(txn, directories.segment_by_name(txn, f"d/s{number:06d}"), 0)

        with metadata.read() as txn:
            layout = load(txn, directories.segment_by_name(txn, "d/s000001"), 0)
        tiers = ReadPriority.LOCAL_FIRST.tiers
        span = ByteRange(5 * CHUNK_BYTES - MIB, 5 * CHUNK_BYTES)
        lines += [
            f"* built in {built:.0f} s; metadata opens in {opened * 1000:.1f} ms",
            f"* records per chunk: {bytes_per_chunk(path / 'metadata'):.0f} bytes",
            f"* name to layout (three gets and the chunks): {median_us(opening):.0f} µs",
            f"* resolve 1 MiB in a layout: {median_us(lambda _: tuple(resolve(layout, span, tiers))):.0f} µs",
        ]
    for words in (("info", "d/s000007"), ("ls", "empty"), ("append", "small")):
        if words[0] == "ls":
            subprocess.run(
                [sys.executable, "-m", "tierfs", "--store", path, "append", "empty/x"], input=b"", check=True
            )
        lines.append(f"* `tierfs {words[0]}`: {command_s(path, *words) * 1000:.0f} ms")
    with store_served(path, mnt):
        lines.append(f"* `ls` through the mount: {seconds(lambda: _run('ls', mnt / 'd')):.1f} s, cold")
        lines.append(f"* `ls -l`: {seconds(lambda: _run('ls', '-l', mnt / 'd')):.1f} s, after it")
    with store_served(path, mnt):
        lookup = median_us(lambda number: os.stat(mnt / f"d/s{number:06d}"))
        lines.append(f"* first `stat` of a name through the mount: {lookup:.0f} µs")
    return "\n".join(lines) + "\n"


def _run(*command: object) -> None:
    done = subprocess.run([str(word) for word in command], check=True, capture_output=True)
    assert done.stdout.count(b"\n") >= SEGMENTS_COUNT
