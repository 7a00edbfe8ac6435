"""A holder at rest over 100,000 local and 1,000,000 cold chunks: what it costs, and what `status` and `doctor` do."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

from tests.benchmarks import scale
from tests.benchmarks.measuring import cpu_seconds, seconds, store_served
from tierfs.app import store as app
from tierfs.base.words.types import ObjectId, Tier
from tierfs.engine.metadata import directories, tables
from tierfs.engine.metadata.records import ChunkRecord, ObjectRecord, TierState
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.tables import CHUNKS, OBJECTS, SEGMENTS
from tierfs.engine.metadata.transaction import WriteTransaction
from tierfs.tiering.planner import Planner
from tierfs.tiering.policy import DiskView
from tierfs.tiering.snapshot import SLICE_S, Snapshots

LOCAL_BYTES = 4096
"""Of each local chunk: all together must not fill the disk, else the holder evicts instead of resting."""

_BATCH = 1000
_SETTLE_S = 1200.0
_REST_S = 60.0
_TICKS = 200
_COMMANDS = 5
ROOMY = DiskView(0, 0, high_used_bytes=1 << 60, high_local_bytes=1 << 60, high_unoffloaded_bytes=1 << 60)


def build(path: Path) -> None:
    """The store of `scale`, where each segment's last bytes are local too."""
    scale.build(path)
    with app.open_store(path) as store:
        for first in range(0, scale.SEGMENTS_COUNT, _BATCH):
            with store.metadata.write() as txn:
                for number in range(first, first + _BATCH):
                    _add_local(txn, f"d/s{number:06d}")


def _add_local(txn: WriteTransaction, name: str) -> None:
    segment = directories.segment_by_name(txn, name)
    start, size = segment.length - LOCAL_BYTES, LOCAL_BYTES
    object_id = ObjectId(txn.allocate_id())
    holder = ObjectRecord(
        id=object_id,
        tier=Tier.LOCAL,
        name=f"00/{segment.id:x}-{start:x}-{0:016x}",
        length=size,
        references=1,
        created_ms=txn.now_ms,
    )
    txn.put(OBJECTS, tables.u64(object_id), holder)
    txn.put(
        CHUNKS,
        tables.chunk(segment.id, Tier.LOCAL, start),
        ChunkRecord(start_offset=start, length=size, object_id=object_id),
    )
    state = TierState(first_chunk=start, last_chunk=start, count=1, bytes=size)
    txn.put(SEGMENTS, tables.u64(segment.id), replace(segment, local=state))


def bench_rest(directory: Path) -> str:
    """Everything this module says it measures, as markdown."""
    path, mnt = directory / "rest", directory / "mnt"
    built = seconds(lambda: build(path))
    chunks = scale.SEGMENTS_COUNT * scale.CHUNKS_PER_SEGMENT
    lines = [f"### A holder of {scale.SEGMENTS_COUNT:,} local and {chunks:,} cold chunks at rest", ""]
    lines.append(f"* built in {built:.0f} s")
    with app.open_store(path) as store:
        lines += _ticks(store.metadata)
    with store_served(path, mnt) as pid:
        lines += rest(pid)
        lines += [_command(path, "status"), _command(path, "doctor")]
    return "\n".join(lines) + "\n"


def _ticks(metadata: MetadataStore) -> list[str]:
    """The first look in slices, then looks at what one change left."""
    planner = Planner()
    snapshots = Snapshots(metadata, planner)
    slices: list[float] = []
    done = False
    while not done:
        started = time.perf_counter()
        done = snapshots.refresh(slice_s=SLICE_S)
        planner.next(ROOMY, metadata.clock.now_ms())
        slices.append(time.perf_counter() - started)
    lines = [
        f"* first look: {sum(slices):.1f} s of CPU in {len(slices):,} slices, p99 {_p99(slices) * 1000:.1f} ms, "
        f"longest {max(slices) * 1000:.1f} ms"
    ]
    ticks: list[float] = []
    for number in range(_TICKS):
        with metadata.write() as txn:
            segment = directories.segment_by_name(txn, f"d/s{number * 37:06d}")
            txn.touch(inode=segment.inode, segment_id=segment.id)
        started = time.perf_counter()
        snapshots.refresh(slice_s=SLICE_S)
        planner.next(ROOMY, metadata.clock.now_ms())
        planner.take_offloads()
        ticks.append(time.perf_counter() - started)
    median = statistics.median(ticks) * 1000
    return [*lines, f"* a look after one change: {median:.2f} ms, p99 {_p99(ticks) * 1000:.1f} ms"]


def rest(pid: int) -> list[str]:
    """How long a new holder is at work, and what it costs afterwards."""
    began, used = time.monotonic(), cpu_seconds(pid)
    while time.monotonic() - began < _SETTLE_S:
        time.sleep(5)
        before, used = used, cpu_seconds(pid)
        if used - before < 0.25:
            break
    settled, before = time.monotonic() - began, cpu_seconds(pid)
    time.sleep(_REST_S)
    share = (cpu_seconds(pid) - before) / _REST_S
    return [
        f"* a new holder comes to rest within {settled:.0f} s and {before:.0f} s of CPU",
        f"* at rest: {share * 100:.2f} % of a core",
    ]


def _command(path: Path, *words: str) -> str:
    command = [sys.executable, "-m", "tierfs", "--store", str(path), *words]
    taken = [seconds(lambda: subprocess.run(command, capture_output=True, check=False)) for _ in range(_COMMANDS)]
    return f"* `tierfs {' '.join(words)}` beside it: {statistics.median(taken):.2f} s"


def _p99(found: list[float]) -> float:
    return sorted(found)[int(len(found) * 0.99)]
