"""Timing, hot memory, mounts that come and go, and the table that comes out."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from statistics import median
from tempfile import TemporaryFile

from tests.benchmarks.children import served

GIB = 1 << 30
_BYTES_PER_MB = 1_000_000
_HOT_BYTES = 3 * GIB
MEMORY = Path("/dev/shm")
_CPU_FIELDS = range(11, 15)
"""utime, stime and the same of children that ended, behind the name in /proc/PID/stat."""


def heat(size_bytes: int = _HOT_BYTES) -> None:
    """Touch and free memory: the first touch of a page on a virtual machine costs a fault in its host.

    Call it right before what is measured: within seconds the free pages go back to the host.
    """
    block = bytes(1 << 20)
    with TemporaryFile(dir=MEMORY) as file:
        for _ in range(size_bytes >> 20):
            file.write(block)


def seconds(work: Callable[[], object]) -> float:
    """How long `work` takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def compared(title: str, size_bytes: int, repetitions: int, subjects: Mapping[str, Callable[[], float]]) -> str:
    """Measure subjects in turn, as often as asked for, and tell in Markdown how near each comes to the first.

    Each returns the seconds that it took to move `size_bytes`.
    """
    rates: dict[str, list[float]] = {name: [] for name in subjects}
    for _ in range(repetitions):
        for name, measure in subjects.items():
            rates[name].append(size_bytes / measure() / _BYTES_PER_MB)
    limit = median(rates[next(iter(subjects))])
    lines = [f"### {title}", "", "| subject | MB/s (min, median, max) | ratio of medians |", "|---|---|---|"]
    for name, found in rates.items():
        shown = ", ".join(f"{rate:.0f}" for rate in (min(found), median(found), max(found)))
        lines.append(f"| {name} | {shown} | {median(found) / limit:.2f} |")
    return "\n".join(lines) + "\n"


def store_served(store: Path, mountpoint: Path, options: str = "") -> AbstractContextManager[int]:
    """A mount of a store in a process of its own; the block is given its id."""
    mountpoint.mkdir(exist_ok=True)
    return served(mountpoint, "tests.mount.runner", str(store), str(mountpoint), options)


def peak_rss_bytes(pid: int) -> int:
    """Highest resident memory of a process so far; 0 when it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


def cpu_seconds(pid: int) -> float:
    """CPU time of a process so far, and of its children that ended; 0 when it has ended: its parent counts it."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return 0
    return sum(int(fields[index]) for index in _CPU_FIELDS) / os.sysconf("SC_CLK_TCK")


def cpu_below(pid: int) -> float:
    """CPU time of all that a process started, directly or not, without its own; see `cpu_seconds`."""
    parents = {int(each.name): parent_of(each) for each in Path("/proc").iterdir() if each.name.isdecimal()}
    below, found = {pid}, set[int]()
    while below:
        below = {child for child, parent in parents.items() if parent in below}
        found |= below
    return sum(map(cpu_seconds, found))


def parent_of(process: Path) -> int:
    """Return the id of a process's parent; 0 when it has ended."""
    try:
        return int((process / "stat").read_text().rsplit(")", 1)[1].split()[1])
    except OSError:
        return 0
