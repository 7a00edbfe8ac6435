"""Planning a read of 100,000 chunks of 64 MiB on the driver: pinned, cut and pickled as Spark does it."""

from __future__ import annotations

import pickle
import statistics
import time
from pathlib import Path

from tests.benchmarks.cold_records import put_cold_segment
from tierfs.app import store as app
from tierfs.app.setup.create import init_store
from tierfs.base.words.types import CRC_BLOCK_BYTES, MIB, SegmentStatus
from tierfs.pipeline.spark.options import ReadOptions
from tierfs.pipeline.spark.planning import plan_read

SEGMENTS_COUNT = 100
CHUNKS_PER_SEGMENT = 1000
CHUNK_BYTES = 64 * MIB
_CRCS = [0x12345678] * (CHUNK_BYTES // CRC_BLOCK_BYTES)


def build(path: Path) -> None:
    """A store of cold segments in chunks that no object backs, with all their checksums."""
    init_store(path)
    with app.open_store(path) as store:
        for number in range(SEGMENTS_COUNT):
            with store.metadata.write() as txn:
                put_cold_segment(
                    txn,
                    f"d/s{number:06d}",
                    CHUNKS_PER_SEGMENT,
                    CHUNK_BYTES,
                    status=SegmentStatus.SEALED,
                    crcs=_CRCS,
                )


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
