"""Two versions of tierfs in turn: the cost of one large file, and of small appends."""

from __future__ import annotations

import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp

from tests.benchmarks.measuring import MEMORY, cpu_seconds, heat, seconds
from tests.benchmarks.workloads import dd

SIZE_BYTES = 512 << 20

_HERE, _OTHER = "this", "other"
_BLOCK_BYTES = 1 << 24
_MOUNTED_S = 120.0

Cost = tuple[float, float]
"""Seconds of time and of CPU."""

_SMALL = """
import json, sys, time
import tierfs

def cpu_us(work, times):
    started = time.process_time()
    for number in range(times):
        work(number)
    return (time.process_time() - started) / times * 1e6

block, times = bytes(4096), int(sys.argv[2])
with tierfs.open_store(sys.argv[1]) as store:
    with store.open_writer("warm") as writer:
        writer.append(block)
        append = cpu_us(lambda number: writer.append(block), times)
    opened = cpu_us(lambda number: store.append(f"new/{number}", block), times)
    seal = cpu_us(lambda number: store.segment(f"new/{number}").seal(), times)
print(json.dumps({"append of 4 KiB by a writer": append, "append that opens a segment": opened, "seal": seal}))
"""
"""Through the Python face, which both versions have; the CPU of the process, as the disk decides about its time."""
_SMALL_TIMES = 1000


class Version:
    """A checkout with a Python of its own; commands are whole processes, start included."""

    def __init__(self, python: Path, checkout: Path) -> None:
        self.python = python
        self.checkout = checkout

    def command(self, store: Path, *words: str | Path) -> list[str]:
        """A command line."""
        return [str(self.python), "-m", "tierfs", "-q", "--store", str(store), *map(str, words)]

    def run(self, store: Path, *words: str | Path) -> Cost:
        """What a command took."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = self.command(store, *words)
        taken = seconds(lambda: subprocess.run(command, check=True, cwd=self.checkout, stdout=subprocess.DEVNULL))
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return taken, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    def small(self, store: Path) -> dict[str, float]:
        """CPU microseconds of each small operation."""
        command = [str(self.python), "-c", _SMALL, str(store), str(_SMALL_TIMES)]
        done = subprocess.run(command, check=True, cwd=self.checkout, stdout=subprocess.PIPE)
        costs: dict[str, float] = json.loads(done.stdout)
        return costs

    @contextmanager
    def mounted(self, store: Path, mountpoint: Path) -> Iterator[int]:
        """The process of a mount."""
        mountpoint.mkdir(exist_ok=True)
        process = subprocess.Popen(self.command(store, "mount", "-f", mountpoint), cwd=self.checkout)
        try:
            end_s = time.monotonic() + _MOUNTED_S
            while not mountpoint.is_mount():
                if process.poll() is not None or time.monotonic() > end_s:
                    raise RuntimeError(f"{self.checkout} did not mount")
                time.sleep(0.05)
            yield process.pid
        finally:
            subprocess.run(["umount", "-l", str(mountpoint)], check=False)
            process.terminate()
            process.wait()


def bench_versus(directory: Path, other: Path, repetitions: int) -> str:
    """A table: this version's costs as parts of those of the checkout `other`, which has its own `.venv`."""
    versions = _versions(other)
    source = directory / "source"
    with source.open("wb") as file:
        for _ in range(SIZE_BYTES // _BLOCK_BYTES):
            file.write(os.urandom(_BLOCK_BYTES))
    found: dict[str, dict[str, list[Cost]]] = {}
    for number in range(repetitions):
        for name in (_OTHER, _HERE) if number % 2 else (_HERE, _OTHER):
            for what, cost in _one_way(versions[name], source, Path(mkdtemp(dir=directory))):
                found.setdefault(what, {}).setdefault(name, []).append(cost)
    lines = [
        f"### A file of {SIZE_BYTES >> 20} MiB through this version and another, {repetitions} times in turn",
        "",
        "| | time, of the other's | CPU, of the other's | MB/s |",
        "|---|---|---|---|",
        *(_row(what, costs[_HERE], costs[_OTHER]) for what, costs in found.items()),
    ]
    return "\n".join(lines) + "\n"


def bench_versus_small(other: Path, repetitions: int) -> str:
    """Return a table of the CPU of small operations of both versions, in memory: a disk would only add waits."""
    versions = _versions(other)
    costs: dict[str, dict[str, list[float]]] = {}
    for number in range(repetitions):
        for name in (_OTHER, _HERE) if number % 2 else (_HERE, _OTHER):
            with TemporaryDirectory(dir=MEMORY) as work:
                versions[name].run(Path(work) / "store", "init", "--cold", "none")
                for what, cpu_us in versions[name].small(Path(work) / "store").items():
                    costs.setdefault(what, {}).setdefault(name, []).append(cpu_us)
    lines = [f"### Small operations of this version and another, {repetitions} times in turn", ""]
    lines += ["| CPU microseconds (min, median) | this | other | ratio |", "|---|---|---|---|"]
    for what, values in costs.items():
        (least, ours), (their_least, theirs) = (
            (min(values[name]), statistics.median(values[name])) for name in (_HERE, _OTHER)
        )
        ratios = f"{least / their_least:.3f}, {ours / theirs:.3f}"
        lines.append(f"| {what} | {least:.0f}, {ours:.0f} | {their_least:.0f}, {theirs:.0f} | {ratios} |")
    return "\n".join(lines) + "\n"


def _versions(other: Path) -> dict[str, Version]:
    python = other / ".venv" / "bin" / "python"
    if not python.exists():
        raise SystemExit(f"{python} is missing: run `make test-deps` in {other}, the checkout to compare with")
    return {_OTHER: Version(python, other), _HERE: Version(Path(sys.executable), Path.cwd())}


def _one_way(version: Version, source: Path, work: Path) -> Iterator[tuple[str, Cost]]:
    """Append, offload, read locally, evict, read from the cold tier; what each but the eviction took."""
    store, mountpoint = work / "store", work / "mnt"
    (work / "cold").mkdir()
    version.run(store, "init", "--cold-dir", work / "cold")
    source.read_bytes()
    os.sync()
    heat()
    yield "`append FILE`", version.run(store, "append", "s", source, "--seal")
    os.sync()
    heat()
    yield "`offload`", version.run(store, "offload", "/")
    yield "`dd` of the local file through a mount", _read(version, store, mountpoint)
    version.run(store, "evict", "/")
    yield "`dd` of the cold file through a mount", _read(version, store, mountpoint)
    shutil.rmtree(work)


def _read(version: Version, store: Path, mountpoint: Path) -> Cost:
    with version.mounted(store, mountpoint) as pid:
        heat()
        before = cpu_seconds(pid)
        return dd([mountpoint / "s"]).seconds, cpu_seconds(pid) - before


def _row(what: str, ours: list[Cost], theirs: list[Cost]) -> str:
    time_s, cpu_s = (statistics.median(column) for column in zip(*ours, strict=True))
    their_time_s, their_cpu_s = (statistics.median(column) for column in zip(*theirs, strict=True))
    rate = SIZE_BYTES / time_s / 1e6
    return f"| {what} | {time_s / their_time_s:.2f} | {cpu_s / their_cpu_s:.2f} | {rate:.0f} |"
