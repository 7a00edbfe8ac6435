"""Timing, hot memory, mounts that come and go, and the table that comes out."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryFile

GIB = 1 << 30
_HOT_BYTES = 3 * GIB
_MEMORY = Path("/dev/shm")


def heat(size_bytes: int = _HOT_BYTES) -> None:
    """Touch and free memory: the first touch of a page on a virtual machine costs a fault in its host.

    Call it right before what is measured: within seconds the free pages go back to the host.
    """
    block = bytes(1 << 20)
    with TemporaryFile(dir=_MEMORY) as file:
        for _ in range(size_bytes >> 20):
            file.write(block)


def seconds(work: Callable[[], object]) -> float:
    """How long `work` takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


@dataclass
class Series:
    """Repeated measurements of several subjects, interleaved, in bytes per second."""

    title: str
    size_bytes: int
    repetitions: int
    found: dict[str, list[float]] = field(default_factory=dict)

    def run(self, subjects: dict[str, Callable[[], float]]) -> Series:
        """Measure each subject in turn, as often as asked for; each returns seconds."""
        for _ in range(self.repetitions):
            for name, measure in subjects.items():
                self.found.setdefault(name, []).append(self.size_bytes / measure())
        return self

    def median(self, name: str) -> float:
        """The subject's median, in bytes per second."""
        return statistics.median(self.found[name])

    def table(self, limit: str) -> str:
        """Markdown, with each subject's ratio to `limit`."""
        lines = [f"### {self.title}", "", "| subject | MB/s (min, median, max) | ratio of medians |", "|---|---|---|"]
        for name, values in self.found.items():
            figures = ", ".join(f"{value / 1e6:.0f}" for value in (min(values), self.median(name), max(values)))
            lines.append(f"| {name} | {figures} | {self.median(name) / self.median(limit):.2f} |")
        return "\n".join(lines) + "\n"


@contextmanager
def served(command: list[str], mountpoint: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that mounts at `mountpoint` and prints `ready`; unmounted at the end."""
    mountpoint.mkdir(exist_ok=True)
    process = subprocess.Popen([sys.executable, "-m", *command], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            raise RuntimeError(f"{command} did not mount")
        yield process
    finally:
        subprocess.run(["umount", "-l", str(mountpoint)], check=False)
        process.terminate()
        process.communicate()


def dd(path: Path) -> float:
    """Seconds of one sequential `dd bs=1M`."""
    return seconds(lambda: subprocess.run(["dd", f"if={path}", "of=/dev/null", "bs=1M", "status=none"], check=True))


def peak_rss_bytes(pid: int) -> int:
    """Highest resident memory of a process so far."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def cpu_seconds(pid: int) -> float:
    """CPU time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
