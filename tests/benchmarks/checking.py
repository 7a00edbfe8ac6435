"""A check of a million chunks in 100,000 segments, all with local files: seconds and memory."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from tests.benchmarks.scale import SEGMENTS_COUNT
from tierfs.app import store as app
from tierfs.app.setup.create import init_store
from tierfs.base.words.types import CRC_BLOCK_BYTES, AttemptId, ObjectId, Tier
from tierfs.engine.chunkstore.local_files import file_name
from tierfs.engine.metadata import checksums, tables
from tierfs.engine.metadata.records import ChunkRecord, ObjectRecord, SegmentRecord, TierState
from tierfs.engine.metadata.tables import CHUNKS, OBJECTS, SEGMENTS
from tierfs.engine.metadata.transaction import WriteTransaction
from tierfs.engine.segments.create import create

CHUNKS_PER_SEGMENT = 10
CHUNK_BYTES = 4096
"""Sparse, so that the files cost no room; one checksum each."""
_BATCH = 1000
_SEALED_MODE = 0o440
MAX_S = 60


def build(path: Path) -> None:
    """The store: every segment local, in sparse chunk files."""
    init_store(path)
    with app.open_store(path) as store:
        for first in range(0, SEGMENTS_COUNT, _BATCH):
            with store.metadata.write() as txn:
                for number in range(first, first + _BATCH):
                    for name in _local_segment(txn, f"d/s{number:06d}"):
                        _sparse_file(store.files.root / name)


def _sparse_file(path: Path) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _SEALED_MODE)
    os.ftruncate(fd, CHUNK_BYTES)
    os.close(fd)


def _local_segment(txn: WriteTransaction, name: str) -> list[str]:
    segment = create(txn, name)
    made = []
    last = (CHUNKS_PER_SEGMENT - 1) * CHUNK_BYTES
    for start in range(0, last + 1, CHUNK_BYTES):
        object_id = ObjectId(txn.allocate_id())
        following = start + CHUNK_BYTES if start < last else 0
        chunk = ChunkRecord(start_offset=start, length=CHUNK_BYTES, next=following, object_id=object_id)
        txn.put(CHUNKS, tables.chunk(segment.id, Tier.LOCAL, start), chunk)
        attempt = AttemptId(f"{object_id:032x}"[::-1])
        made.append(file_name(segment.id, start, attempt))
        holder = ObjectRecord(
            id=object_id, tier=Tier.LOCAL, name=made[-1], length=CHUNK_BYTES, references=1, crc32c=1, attempt=attempt
        )
        txn.put(OBJECTS, tables.u64(object_id), holder)
        checksums.put_grid(txn, object_id, [object_id] * -(-CHUNK_BYTES // CRC_BLOCK_BYTES))
    state = TierState(first_chunk=0, last_chunk=last, count=CHUNKS_PER_SEGMENT, bytes=CHUNKS_PER_SEGMENT * CHUNK_BYTES)
    fields = {name: getattr(segment, name) for name in segment.__dataclass_fields__}
    txn.put(SEGMENTS, tables.u64(segment.id), SegmentRecord(**{**fields, "local": state, "length": state.bytes}))
    return made


def bench_check(directory: Path) -> str:
    """Build the store once and check it three times, as markdown."""
    path = directory / "check"
    started = time.perf_counter()
    build(path)
    lines = [f"### check of {SEGMENTS_COUNT * CHUNKS_PER_SEGMENT:,} chunks", ""]
    lines.append(f"* built in {time.perf_counter() - started:.0f} s")
    for _ in range(3):
        started = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, "-m", "tierfs", "--store", str(path), "check"], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        said = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        taken = time.perf_counter() - started
        cpu_s = usage.ru_utime + usage.ru_stime
        lines.append(
            f"* {taken:.1f} s (limit {MAX_S}), {cpu_s:.1f} s of CPU, RSS {usage.ru_maxrss >> 10} MiB: {said.strip()}"
        )
        assert os.waitstatus_to_exitcode(status) == 0, said
    return "\n".join(lines) + "\n"
