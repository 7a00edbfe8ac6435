"""A writer that never rests: 40 MB/s into 50 segments above a 1 GiB high watermark, and a thousand small writers."""

from __future__ import annotations

import os
import random
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.benchmarks.measuring import cpu_seconds, store_served
from tests.reality.reference import REFERENCE
from tierfs.app import store as app
from tierfs.app.setup.create import init_store
from tierfs.base.bytes.checksum import crc32c
from tierfs.base.words.types import MIB, ROOT_DIRECTORY
from tierfs.engine.metadata import policies

SEGMENTS = 50
RATE_BYTES_PER_S = 40_000_000
HIGH_WATERMARK_BYTES = 1024 * MIB
CHUNK_BYTES = 16 * MIB
APPEND_BYTES = MIB
MANY = 1000
SMALL_BYTES = 4096
ROUNDS = 20


@dataclass
class Observed:
    """What the store and its holder used, sampled once a second."""

    local_bytes: list[int] = field(default_factory=list)
    rss_bytes: list[int] = field(default_factory=list)
    descriptors: list[int] = field(default_factory=list)

    def sample(self, store: app.Store, pid: int) -> None:
        used = sum(file.stat().st_size for name in store.files.names() if (file := store.files.root / name).exists())
        self.local_bytes.append(used)
        self.rss_bytes.append(resident_bytes(pid))
        self.descriptors.append(len(os.listdir(f"/proc/{pid}/fd")))


def resident_bytes(pid: int | str) -> int:
    """Resident memory of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def bench_sustained(path: Path, label: str, duration_s: int) -> str:
    """Append at the rate while a mount holds the store; then compare every byte."""
    os.environ["TIERFS_BACKGROUND__HIGH_WATERMARK_BYTES"] = str(HIGH_WATERMARK_BYTES)
    mnt = path.parent / "mnt"
    with app.open_store(path) as store, store_served(path, mnt) as pid:
        with store.metadata.write() as txn:
            policies.put(txn, ROOT_DIRECTORY, {"chunk_bytes": str(CHUNK_BYTES), "read_priority": "local-first"})
        seen = Observed()
        crcs, written, late_s = _write(store, pid, duration_s, seen)
        equal = all(_crc_of(mnt / name) == crc for name, crc in crcs.items())
        cpu = cpu_seconds(pid)
    half = len(seen.rss_bytes) // 2
    bound = HIGH_WATERMARK_BYTES + SEGMENTS * CHUNK_BYTES
    lines = [
        f"### {RATE_BYTES_PER_S / 1e6:.0f} MB/s into {SEGMENTS} segments for {duration_s} s, {label}",
        "",
        f"* appended {written / 1e9:.2f} GB, at most {late_s:.1f} s behind the rate",
        f"* local bytes: at most {max(seen.local_bytes) / MIB:.0f} MiB"
        f" (watermark plus a chunk per segment: {bound / MIB:.0f} MiB)",
        f"* RSS of the holder: {max(seen.rss_bytes[:half]) / MIB:.0f} MiB at most in the first half,"
        f" {max(seen.rss_bytes[half:]) / MIB:.0f} MiB in the second",
        f"* descriptors: at most {max(seen.descriptors[:half])} and {max(seen.descriptors[half:])}",
        f"* every byte equal: {'yes' if equal else 'NO'}; CPU of the holder: {cpu:.0f} s",
    ]
    return "\n".join(lines) + "\n"


def _write(store: app.Store, pid: int, duration_s: int, seen: Observed) -> tuple[dict[str, int], int, float]:
    """Append in turn at the rate; returns each segment's CRC, the bytes in all, and how late it got."""
    names = [f"w/s{number:02d}" for number in range(SEGMENTS)]
    writers = [store.engine.open_writer(name) for name in names]
    crcs = dict.fromkeys(names, 0)
    chosen, written, late_s = random.Random(1), 0, 0.0
    started = sampled = time.monotonic()
    while time.monotonic() - started < duration_s:
        index = (written // APPEND_BYTES) % SEGMENTS
        shift = chosen.randrange(len(REFERENCE))
        block = REFERENCE[shift:] + REFERENCE[:shift]
        writers[index].append(block)
        crcs[names[index]] = crc32c(block, crcs[names[index]])
        written += len(block)
        ahead_s = written / RATE_BYTES_PER_S - (time.monotonic() - started)
        late_s = max(late_s, -ahead_s)
        if ahead_s > 0:
            time.sleep(ahead_s)
        if time.monotonic() - sampled >= 1:
            seen.sample(store, pid)
            sampled = time.monotonic()
    for writer in writers:
        store.engine.close_writer(writer)
    return crcs, written, late_s


def _crc_of(path: Path) -> int:
    crc = 0
    with path.open("rb", buffering=0) as file:
        while block := file.read(4 * MIB):
            crc = crc32c(block, crc)
    return crc


def bench_many_writers(directory: Path) -> str:
    """A thousand segments open for append at once, 4 KiB at a time in turn, in this process."""
    init_store(directory / "many", None)
    with app.open_store(directory / "many") as store:
        before = resident_bytes("self")
        writers = [store.engine.open_writer(f"m/s{number:04d}") for number in range(MANY)]
        started, most = time.monotonic(), 0
        for turn in range(ROUNDS):
            for writer in writers:
                writer.append(REFERENCE[turn * SMALL_BYTES : (turn + 1) * SMALL_BYTES])
            most = max(most, len(os.listdir("/proc/self/fd")))
        taken = time.monotonic() - started
        rss = resident_bytes("self")
        for writer in writers:
            store.engine.close_writer(writer)
    lines = [
        f"### {MANY:,} segments open for append, {SMALL_BYTES} bytes at a time in turn",
        "",
        f"* {MANY * ROUNDS / taken:.0f} durable appends per second in one thread",
        f"* RSS {rss / MIB:.0f} MiB ({before / MIB:.0f} before), descriptors at most {most}",
    ]
    return "\n".join(lines) + "\n"
