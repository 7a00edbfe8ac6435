"""Very many small segments, two sizes of a store: time, CPU and memory of each verb; appends beside an eviction.

`TIERFS_BENCH_SEGMENTS` is another size in place of both.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.benchmarks.measuring import seconds
from tierfs.app import store as app
from tierfs.base.bytes.progress import unseen
from tierfs.upkeep.holder.perform import holding

COUNTS = tuple(map(int, os.environ.get("TIERFS_BENCH_SEGMENTS", "20000 60000").split()))
FILE_BYTES = 340
FILES_PER_DIRECTORY = 1000
MIB = 1 << 20
DUMP = "DUMP"
VERBS = (
    ("ls", "-R"),
    ("status",),
    ("du",),
    ("report",),
    ("offload", "/"),
    ("check",),
    ("check", "--repair"),
    ("gc",),
    ("backup", DUMP),
    ("consolidate", "/"),
    ("evict", "/"),
    ("check",),
    ("offload", "/"),
)
"""In this order: `check` and `offload` of all on the local disk, and of evicted ones."""

_POLL_S = 0.02
_APPEND_EVERY_S = 0.005
_QUIET_S = 3.0


@dataclass(frozen=True)
class Cost:
    """What a command took."""

    wall_s: float
    cpu_s: float
    heap_mib: float
    """Peak of the memory that is its own: without pages of files, which the kernel takes back."""
    rss_mib: float


def bench_many_small(directory: Path) -> Iterator[str]:
    """A line for each verb and size, and the latency of appends."""
    for count in COUNTS:
        yield f"### {count:,} segments of {FILE_BYTES} bytes, a directory as the cold tier\n"
        store, source = directory / f"store{count}", directory / f"source{count}"
        _make(source, count)
        copied_s = seconds(partial(shutil.copytree, source, directory / "copy"))
        deleted_s = seconds(partial(shutil.rmtree, directory / "copy"))
        (directory / f"cold{count}").mkdir()
        command_cost(store, "init", "--cold-dir", str(directory / f"cold{count}"))
        yield _line("ingest", count, command_cost(store, "ingest", str(source), "--into", "logs", "--seal"))
        for words in VERBS:
            called = (str(directory / f"dump{count}") if word == DUMP else word for word in words)
            yield _line(" ".join(words), count, command_cost(store, *called))
        yield f"* the same files copied by one process: {copied_s:.1f} s, and deleted: {deleted_s:.1f} s"
    yield from _appends_beside(directory)


def _make(source: Path, count: int) -> None:
    for number in range(count):
        path = source / f"{number // FILES_PER_DIRECTORY:04}" / f"{number:06}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"%08d" % number + bytes(FILE_BYTES - 8))


def _line(verb: str, count: int, cost: Cost) -> str:
    rate, cpu_us = count / cost.wall_s, 1e6 * cost.cpu_s / count
    memory = f"heap {cost.heap_mib:.0f} MiB, resident {cost.rss_mib:.0f} MiB"
    return f"* `{verb}`: {cost.wall_s:.1f} s, {rate:,.0f} a second; {cpu_us:.0f} µs of CPU each; {memory}"


def command_cost(store: Path, *words: str) -> Cost:
    """Run a command on a store. Raises RuntimeError if it fails."""
    command = [sys.executable, "-m", "tierfs", "-q", "--store", str(store), *words]
    started = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    peaks = {"RssAnon:": 0, "VmHWM:": 0}
    watch = threading.Thread(target=watch_memory, args=(process.pid, peaks))
    watch.start()
    _, status, used = os.wait4(process.pid, 0)
    watch.join()
    if status:
        raise RuntimeError(f"{words}: {status}")
    cpu_s = used.ru_utime + used.ru_stime
    return Cost(time.monotonic() - started, cpu_s, peaks["RssAnon:"] / 1024, peaks["VmHWM:"] / 1024)


def watch_memory(pid: int, peaks: dict[str, int]) -> None:
    """Keep the largest values, until the process has ended. Not ru_maxrss: it begins with that of its parent."""
    while True:
        try:
            lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        except OSError:
            return
        values = {words[0]: int(words[1]) for words in map(str.split, lines) if words[0] in peaks}
        if not values:  # a zombie
            return
        for name, value in values.items():
            peaks[name] = max(peaks[name], value)
        time.sleep(_POLL_S)


def _appends_beside(directory: Path) -> Iterator[str]:
    """The latency of appends by another process before, and while all segments are evicted."""
    count = COUNTS[0]
    path = directory / "beside"
    (directory / "coldbeside").mkdir()
    command_cost(path, "init", "--cold-dir", str(directory / "coldbeside"))
    command_cost(path, "ingest", str(directory / f"source{count}"), "--into", "logs", "--seal")
    command_cost(path, "offload", "/")
    with app.open_store(path) as store, holding(store, "a benchmark") as work:
        for beside in (False, True):
            with subprocess.Popen(
                [sys.executable, "-m", __name__, str(path), str(_QUIET_S)], stdout=subprocess.PIPE, text=True
            ) as appender:
                assert appender.stdout is not None
                appender.stdout.readline()
                taken = seconds(lambda: work.evict("", force=False, dry_run=False, report=unseen)) if beside else 0.0
                told = appender.stdout.read().strip()
            yield f"* appends {f'beside an eviction of {taken:.1f} s' if beside else 'alone'}: {told}"


def _append(path: Path, for_s: float) -> None:
    with app.open_store(path) as store:
        writer = store.engine.open_writer("other/appends")
        print("ready", flush=True)
        taken = []
        end_s = time.monotonic() + for_s
        while time.monotonic() < end_s:
            taken.append(1000 * seconds(lambda: writer.append(bytes(FILE_BYTES))))
            time.sleep(_APPEND_EVERY_S)
        store.engine.close_writer(writer)
    p99 = statistics.quantiles(taken, n=100)[98]
    print(f"median {statistics.median(taken):.1f} ms, p99 {p99:.1f} ms, longest {max(taken):.1f} ms of {len(taken)}")


if __name__ == "__main__":
    _append(Path(sys.argv[1]), float(sys.argv[2]))
