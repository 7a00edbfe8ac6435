"""One line of 200 MB between short ones, by name and in splits of several sizes: time, bytes and memory of its tasks.

Each size has a process of its own, which reads all partitions one after the other as a Python worker of Spark does.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow.compute as pc
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import StringType, StructType

from tests import verbs
from tests.verbs import fill
from tierfs.app import store as app
from tierfs.app.setup.create import init_store
from tierfs.engine.chunkstore.place import Place
from tierfs.pipeline.reader import task_reader
from tierfs.pipeline.spark.source import TierfsDataSource

_LINE_BYTES = 200_000_000
_PIECE = b"x" * 1_000_000
_SHORT = b"a short line\n" * 100_000
_SPLITS = ("1m", "8m", "64m", "128m", "1g")
_NAME = "long"


def bench_long_line(directory: Path) -> str:
    """A table."""
    path = directory / "store"
    (directory / "cold").mkdir()
    init_store(path, Place.parsed(f"local://{directory}/cold"))
    with app.open_store(path) as store:
        fill(store.engine, _NAME, _content())
        verbs.offload(store, _NAME)
        verbs.evict(store, _NAME, force=True)
    lines = [
        f"### One line of {_LINE_BYTES // 10**6} MB in a segment of {_total() // 10**6} MB, by name",
        "",
        "| `maxPartitionBytes` | tasks | s of all | of the longest | MB read | MiB of memory |",
        "|---|---|---|---|---|---|",
    ]
    for split in _SPLITS:
        program = [sys.executable, "-m", "tests.benchmarks.spark.long_line", str(path), split]
        done = json.loads(subprocess.run(program, check=True, capture_output=True).stdout)
        assert done["rows"] == 2 * _SHORT.count(b"\n") + 1
        assert done["longest"] == _LINE_BYTES
        shown = f"{done['s']:.2f} | {done['longest_s']:.2f} | {done['bytes'] / 1e6:.0f} | {done['peak_mib']}"
        lines.append(f"| {split} | {done['tasks']} | {shown} |")
    return "\n".join(lines) + "\n"


def _content() -> Iterator[bytes]:
    yield _SHORT
    for _ in range(_LINE_BYTES // len(_PIECE)):
        yield _PIECE
    yield b"\n" + _SHORT


def _total() -> int:
    return 2 * len(_SHORT) + _LINE_BYTES + 1


def _read(path: str, split: str) -> dict[str, float]:
    """Plan and read, in this process."""
    fetched = []
    fill_of = task_reader.TaskReader.fill

    def counted(self: task_reader.TaskReader, record: object, offset: int, view: memoryview) -> str | None:
        fetched.append(len(view))
        return fill_of(self, record, offset, view)  # type: ignore[arg-type]

    task_reader.TaskReader.fill = counted  # type: ignore[method-assign,assignment]
    given = {"store": path, "path": _NAME, "maxPartitionBytes": split, "maxLineBytes": "256m", "minPartitions": "1"}
    source = TierfsDataSource(CaseInsensitiveDict(given))  # type: ignore[arg-type]
    reader = source.reader(StructType().add("value", StringType()))
    rows = longest = 0
    taken = []
    partitions = reader.partitions()
    for partition in partitions:
        started = time.perf_counter()
        for batch in reader.read(partition):
            rows += batch.num_rows
            longest = max(longest, pc.max(pc.binary_length(batch.column(0))).as_py())
        taken.append(time.perf_counter() - started)
    peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "rows": rows,
        "longest": longest,
        "tasks": len(partitions),
        "s": sum(taken),
        "longest_s": max(taken),
        "bytes": sum(fetched),
        "peak_mib": peak_kib >> 10,
    }


if __name__ == "__main__":
    print(json.dumps(_read(*sys.argv[1:])))
