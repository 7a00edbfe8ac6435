"""Planning a read of 100,000 chunks of 64 MiB on the driver: pinned, cut and pickled as Spark does it."""

from __future__ import annotations

import pickle
import statistics
import time
from dataclasses import replace
from pathlib import Path

from tierfs import app
from tierfs.metadata import checksums, keys
from tierfs.metadata.records import ChunkRecord, ObjectRecord, TierState
from tierfs.metadata.tables import CHUNKS, OBJECTS, SEGMENTS
from tierfs.metadata.transaction import WriteTransaction
from tierfs.segments.create import create
from tierfs.spark.options import ReadOptions
from tierfs.spark.planning import plan_read
from tierfs.types import CRC_BLOCK_BYTES, MIB, LocationId, ObjectId, SegmentStatus, Tier

SEGMENTS_COUNT = 100
CHUNKS_PER_SEGMENT = 1000
CHUNK_BYTES = 64 * MIB
_CRCS = [0x12345678] * (CHUNK_BYTES // CRC_BLOCK_BYTES)


def build(path: Path) -> None:
    """A store of cold segments in chunks that no object backs, with all their checksums."""
    app.init_store(path, app.ColdChoice())
    with app.open_store(path) as store:
        for number in range(SEGMENTS_COUNT):
            with store.metadata.write() as txn:
                _cold_segment(txn, f"d/s{number:06d}")


def _cold_segment(txn: WriteTransaction, name: str) -> None:
    segment = create(txn, name)
    last = (CHUNKS_PER_SEGMENT - 1) * CHUNK_BYTES
    for start in range(0, last + 1, CHUNK_BYTES):
        object_id = ObjectId(txn.allocate_id())
        following = start + CHUNK_BYTES if start < last else 0
        chunk = ChunkRecord(start_offset=start, length=CHUNK_BYTES, next=following, object_id=object_id)
        txn.put(CHUNKS, keys.chunk(segment.id, Tier.COLD, start), chunk)
        holder = ObjectRecord(
            id=object_id,
            tier=Tier.COLD,
            location_id=LocationId(1),
            name=f"segments/{name}/{segment.id}/chunk-{start:020d}-{start + CHUNK_BYTES:020d}-e1-{object_id:032x}",
            length=CHUNK_BYTES,
            etag=f"{object_id:032x}",
            references=1,
            store_epoch=1,
            created_ms=txn.now_ms,
        )
        txn.put(OBJECTS, keys.u64(object_id), holder)
        for run in checksums.runs_of(object_id, _CRCS):
            checksums.put_run(txn, object_id, replace(run, object_id=0))
    length = CHUNKS_PER_SEGMENT * CHUNK_BYTES
    cold = TierState(first_chunk=0, last_chunk=last, count=CHUNKS_PER_SEGMENT, bytes=length)
    txn.put(SEGMENTS, keys.u64(segment.id), replace(segment, cold=cold, length=length, status=SegmentStatus.SEALED))


def bench_spark_planning(work: Path, repetitions: int) -> str:
    """Markdown: seconds until Spark has all partitions; the target is 5 s."""
    path = work / "planning"
    build(path)
    options = ReadOptions.of({"store": str(path), "path": "d"})
    planned: list[float] = []
    whole: list[float] = []
    for _ in range(repetitions):
        started = time.perf_counter()
        plan = plan_read(options)
        planned.append(time.perf_counter() - started)
        size_bytes = sum(len(pickle.dumps(one)) for one in plan.partitions)
        whole.append(time.perf_counter() - started)
    chunks = SEGMENTS_COUNT * CHUNKS_PER_SEGMENT
    return (
        f"### Planning {chunks} chunks for Spark\n\n{len(plan.partitions)} partitions, {size_bytes / MIB:.0f} MiB "
        f"pickled: {statistics.median(planned):.1f} s to plan, {statistics.median(whole):.1f} s with pickling\n"
    )
