"""Many small files on Ceph RGW: ingest, offload, a cold `grep -r`, and local reads while a mount offloads them."""

from __future__ import annotations

import json
import os
import random
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.benchmarks.measuring import seconds
from tests.benchmarks.mounts import Mount, MountCommand, mounted
from tierfs.app import store as app
from tierfs.base.words.types import MIB
from tierfs.engine.metadata import directories

FILES = 20_000
FILE_BYTES = 4096
FILES_PER_DIRECTORY = 500
LOCAL_BYTES = 64 * MIB
READ_EVERY_S = 0.005
"""200 local reads a second: a busy reader that leaves most of a core to others."""

_WAIT_S = 2.0
"""Between two looks whether all is cold: each costs the machine half a second."""
_LIMIT_S = 300


def bench_small_files(path: Path) -> Iterator[str]:
    """Rates in files per second, each of one run, with what they cost of a core; latencies of local reads in ms."""
    source = path.parent / "source"
    _make(source)
    yield f"### {FILES:,} files of {FILE_BYTES >> 10} KiB, Ceph RGW\n"
    yield _step("the disk: as many files written and synced one by one", lambda: _sync_each(source), time.process_time)
    yield _step("`tierfs ingest`", lambda: _tierfs(path, "ingest", source, "--into", "a", "--seal"), _children_cpu_s)
    done: list[str] = []
    offload = _step("`tierfs offload`", lambda: done.append(_tierfs(path, "--json", "offload", "a")), _children_cpu_s)
    yield f"{offload}, {json.loads(done[0])['objects']} objects"
    _tierfs(path, "evict", "a")
    with _mount(path) as mount:
        yield _step("`grep -r` of the cold files through a mount", lambda: _grep(mount.root / "a"), mount.cpu_s)
        yield _step("`grep -r` again", lambda: _grep(mount.root / "a"), mount.cpu_s)
    yield from _latencies(path, source)


def _step(name: str, work: Callable[[], object], cpu_s: Callable[[], float]) -> str:
    before = cpu_s()
    taken = seconds(work)
    used = cpu_s() - before
    return f"* {name}: {taken:.1f} s, {FILES / taken:,.0f} files/s; {1000 * used / FILES:.2f} ms of CPU a file"


def _children_cpu_s() -> float:
    """CPU time of all commands that ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _make(source: Path) -> None:
    """Lines of text that all differ, one of them in every file the same."""
    chosen = random.Random(7)
    for number in range(FILES):
        directory = source / f"d{number // FILES_PER_DIRECTORY:03d}"
        directory.mkdir(parents=True, exist_ok=True)
        text = b"needle\n" + chosen.randbytes(FILE_BYTES // 2).hex().encode()
        (directory / f"f{number:05d}.log").write_bytes(text[: FILE_BYTES - 1] + b"\n")


def _sync_each(source: Path) -> None:
    """What a file a segment costs at least: a new file, durable."""
    data, directory = (source / "d000" / "f00000.log").read_bytes(), source.parent / "raw"
    directory.mkdir()
    for number in range(FILES):
        fd = os.open(directory / str(number), os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        os.write(fd, data)
        os.fdatasync(fd)
        os.close(fd)


def _latencies(path: Path, source: Path) -> Iterator[str]:
    """Latency of random local reads of a growing segment, at rest and while the mount makes all files cold."""
    with app.open_store(path) as store:
        writer = store.engine.open_writer("local")
        writer.append(os.urandom(LOCAL_BYTES))
        store.engine.close_writer(writer)
    with _mount(path) as mount:
        _reads(mount.root / "local", lambda: False, at_most=500)  # every block is checked on its first touch
        rest = _reads(mount.root / "local", lambda: False, at_most=1000)
    yield f"* local reads of 4 KiB through a mount, ms (p50, p99, max): at rest {_figures(rest)}"
    _tierfs(path, "ingest", source, "--into", "b", "--seal")
    with _mount(path) as mount:
        yield _while_offloading(path, mount, "b", lambda: True)
        ingest = subprocess.Popen(_command(path, "ingest", source, "--into", "c", "--seal"))
        yield f"{_while_offloading(path, mount, 'c', lambda: ingest.poll() is not None)}, as they are ingested"


def _while_offloading(path: Path, mount: Mount, directory: str, ready: Callable[[], bool]) -> str:
    started = time.monotonic()
    busy = _reads(mount.root / "local", lambda: ready() and _is_cold(path, directory))
    taken = time.monotonic() - started
    return f"* while it makes {FILES:,} files cold ({taken:.1f} s in all): {_figures(busy)}"


def _reads(file: Path, ended: Callable[[], bool], at_most: int = 1 << 30) -> list[float]:
    """Seconds of each of many random reads."""
    chosen, found = random.Random(3), list[float]()
    fd = os.open(file, os.O_RDONLY)
    looked = started = time.monotonic()
    try:
        while len(found) < at_most and time.monotonic() - started < _LIMIT_S:
            at = chosen.randrange(LOCAL_BYTES // FILE_BYTES) * FILE_BYTES
            before = time.perf_counter()
            assert len(os.pread(fd, FILE_BYTES, at)) == FILE_BYTES
            found.append(time.perf_counter() - before)
            time.sleep(READ_EVERY_S)
            if time.monotonic() - looked > _WAIT_S:
                looked = time.monotonic()
                if ended():
                    break
    finally:
        os.close(fd)
    return found


def _is_cold(path: Path, directory: str) -> bool:
    """Whether all that was ingested into a directory is cold."""
    with app.open_store(path) as store, store.metadata.read() as txn:
        entry = directories.find(txn, directory)
        assert entry is not None
        segments = [segment for _, segment in directories.segments_below(txn, entry, directory)]
    return sum(segment.cold.bytes == segment.length for segment in segments) == FILES


def _figures(found: list[float]) -> str:
    ordered = sorted(found)
    p50, p99 = (ordered[int(len(ordered) * part)] for part in (0.5, 0.99))
    return ", ".join(f"{1000 * value:.1f}" for value in (p50, p99, ordered[-1]))


def _grep(directory: Path) -> None:
    done = subprocess.run(["grep", "-rc", "needle", directory], capture_output=True, text=True, check=True)
    assert done.stdout.count(":1\n") == FILES


@contextmanager
def _mount(path: Path) -> Iterator[Mount]:
    command = MountCommand(tuple(_command(path, "mount", "-f", path.parent / "mnt")), path.parent / "mount.log")
    with mounted(command, path.parent / "mnt") as mount:
        yield mount


def _command(path: Path, *words: object) -> list[str]:
    return [sys.executable, "-m", "tierfs", "-q", "--store", str(path), *map(str, words)]


def _tierfs(path: Path, *words: object) -> str:
    return subprocess.run(_command(path, *words), check=True, capture_output=True, text=True).stdout
