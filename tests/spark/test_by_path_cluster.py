"""Executors of two workers read segments under a mount by path, and compute what plain Python does."""

from __future__ import annotations

import os
import random
import re
import threading
import time
import zlib
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests import verbs
from tests.ledgers import new_ledger
from tests.mount.conftest import Mount, append
from tests.mount.waiting import eventually
from tests.servers.spark_cluster import WORKERS, SparkCluster
from tierfs.app import store
from tierfs.metadata import policies
from tierfs.types import ROOT_DIRECTORY

pytestmark = [pytest.mark.mount, pytest.mark.spark, pytest.mark.timeout(420, method="thread")]

MANY = 30_000
"""Lines of about 1.4 MB: three splits, and chunks of both tiers."""

GO_S = 180
WORDS = ("tier", "größe", "log, or not", "", "日誌", "𝄞 x", "y" * 60)
LINE_END = re.compile(rb"\r\n|\r|\n")

Sums = tuple[int, int]
"""Number of lines, sum of their CRC32: one lost, double or changed line shows."""


def text(seed: int, count: int = MANY, end: str = "\n") -> bytes:
    """So many lines."""
    chosen = random.Random(seed)
    return b"".join(f"{chosen.choice(WORDS)} {chosen.randbytes(12).hex()}{end}".encode() for _ in range(count))


def truth(data: bytes) -> Sums:
    """Sums of what Spark takes for lines: they end with LF, CRLF or CR, the last one with nothing too."""
    found = LINE_END.split(data)
    if not found[-1]:
        found.pop()
    return len(found), sum(map(zlib.crc32, found))


def by_executors(table: DataFrame, cluster: SparkCluster) -> dict[str, Sums]:
    """Return sums by the name of a line's file; every worker had a share in them.

    Spark reads the lines, Python functions on the executors sum them up.
    """
    found: dict[str, Sums] = {}
    workers = set()
    for directory, name, count, crcs in named(table).rdd.mapPartitions(summed).collect():
        workers.add(Path(directory).relative_to(cluster.directory).parts[0])
        before = found.get(name, (0, 0))
        found[name] = (before[0] + count, before[1] + crcs)
    assert workers == {f"worker{number}" for number in range(WORKERS)}
    return found


def named(table: DataFrame) -> DataFrame:
    return table.select(F.col("_metadata.file_name"), "value")


def summed(rows: Iterable[Any]) -> Iterator[tuple[str, str, int, int]]:
    """Runs on executors: where this one is, and its lines' sums by file."""
    found: dict[str, Sums] = {}
    for name, line in rows:
        count, crcs = found.get(name, (0, 0))
        found[name] = (count + 1, crcs + zlib.crc32(line.encode()))
    for name, (count, crcs) in found.items():
        yield os.getcwd(), name, count, crcs


def make_cold(store: store.Store, *names: str) -> None:
    for name in names:
        verbs.offload(store, name)
        verbs.evict(store, name)


def tiers(path: Path) -> tuple[int, int, bool]:
    """Local bytes, cold bytes, and whether the segment is sealed."""
    keys = ("local_bytes", "cold_bytes", "sealed")
    local, cold, sealed = (int(os.getxattr(path, f"user.tierfs.{key}")) for key in keys)
    return local, cold, bool(sealed)


def test_sealed_growing_and_ledger_segments(
    store: store.Store, mount: Mount, cluster_spark: SparkSession, spark_cluster: SparkCluster
) -> None:
    sources = {f"logs/{name}": text(seed) for seed, name in enumerate(("sealed", "cold", "growing"))}
    append(store, "logs/sealed", sources["logs/sealed"], seal=True)
    append(store, "logs/cold", sources["logs/cold"], seal=True)
    half = len(sources["logs/growing"]) // 2
    append(store, "logs/growing", sources["logs/growing"][:half])
    make_cold(store, "logs/cold", "logs/growing")
    append(store, "logs/growing", sources["logs/growing"][half:])
    for seed in (3, 4):  # entries are not lines: they end anywhere
        data = text(seed)
        name = new_ledger(store, [data[at : at + 1000] for at in range(0, len(data), 1000)])  # type: ignore[arg-type]
        sources[name] = data
    make_cold(store, name)
    length = {path: len(data) for path, data in sources.items()}
    mnt = mount("xattr").path
    assert {path: tiers(mnt / path) for path in sources} == {
        "logs/sealed": (length["logs/sealed"], 0, True),
        "logs/cold": (0, length["logs/cold"], True),
        "logs/growing": (length["logs/growing"] - half, half, False),
        **{ledger: (length[ledger], 0, True) for ledger in list(sources)[3:4]},
        name: (0, length[name], True),
    }
    table = cluster_spark.read.text([str(mnt / path) for path in sources])
    assert table.rdd.getNumPartitions() > len(sources), "no segment was split"
    assert by_executors(table, spark_cluster) == {Path(path).name: truth(data) for path, data in sources.items()}
    assert table.count() == sum(truth(data)[0] for data in sources.values())
    assert tiers(mnt / "logs/cold") == (0, length["logs/cold"], True)


def test_more_paths_than_the_driver_lists_by_itself(
    store: store.Store, mount: Mount, cluster_spark: SparkSession, spark_cluster: SparkCluster
) -> None:
    sources = {f"many/{number:02}": text(number, count=200) for number in range(40)}
    for name, data in sources.items():
        append(store, name, data, seal=True)
    make_cold(store, *list(sources)[::2])
    mnt = mount("xattr").path
    context = cluster_spark.sparkContext
    context.setJobGroup("listing", "no action yet, so every job lists")
    table = cluster_spark.read.text([str(mnt / name) for name in sources])
    assert context.statusTracker().getJobIdsForGroup("listing"), "the driver listed the paths, not the executors"
    assert by_executors(table, spark_cluster) == {Path(name).name: truth(data) for name, data in sources.items()}


ENDS = {
    "crlf": text(1, 60, "\r\n"),
    "cr": text(2, 60, "\r"),
    "mixed": text(3, 20, "\r\n") + b"\n\n" + text(4, 20) + text(5, 20, "\r") + b"\r\n",
    "no_end": text(6, 60).rstrip(b"\n"),
    "empty": b"",
    "only_ends": b"\r\n" * 100,
    "multi_byte": "日誌𝄞ü\n".encode() * 100,
    "one_line": "größe".encode() * 300,
}


def test_line_ends_at_every_place(
    store: store.Store, mount: Mount, cluster_spark: SparkSession, spark_cluster: SparkCluster
) -> None:
    """Chunks of 7 bytes end within characters and CRLF, and splits of 61 and 64 bytes begin there."""
    with store.metadata.write() as txn:
        policies.put(txn, ROOT_DIRECTORY, {"chunk_bytes": "7", "object_bytes": "70"})
    for name, data in ENDS.items():
        append(store, f"ends/{name}", data, seal=True)
    make_cold(store, *(f"ends/{name}" for name in list(ENDS)[::2]))
    path = str(mount("xattr").path / "ends")
    expected = {name: truth(data) for name, data in ENDS.items() if data}
    session = cluster_spark.newSession()
    session.conf.set("spark.sql.files.openCostInBytes", "0")
    session.conf.set("spark.sql.leafNodeDefaultParallelism", "1")
    for size in ("61b", "64b"):
        session.conf.set("spark.sql.files.maxPartitionBytes", size)
        table = session.read.text(path)
        assert table.rdd.getNumPartitions() > 100
        assert by_executors(table.coalesce(8), spark_cluster) == expected


def summed_in_steps(signs: str, rows: Iterable[Any]) -> Iterator[tuple[str, str, int, int]]:
    """Report the first line from an executor, and continue when released."""
    context = TaskContext.get()
    assert context is not None
    Path(signs, f"began{context.partitionId()}").touch()
    deadline_s = time.monotonic() + GO_S
    while not Path(signs, "go").exists():
        assert time.monotonic() < deadline_s, "never told to go on"
        time.sleep(0.01)
    return summed(rows)


@pytest.mark.parametrize("cut_bytes", [0, 5], ids=["at a line's end", "within a line"])
def test_an_append_while_a_job_runs(
    cut_bytes: int, store: store.Store, mount: Mount, cluster_spark: SparkSession, tmp_path: Path
) -> None:
    """The job gets what was planned, and the line that crosses, or begins at, the planned end; the next gets all."""
    full = text(1) + text(2)
    length = len(text(1)) - cut_bytes
    append(store, "live", full[:length])
    path = mount("xattr").path / "live"
    planned = cluster_spark.read.text(str(path))
    assert planned.rdd.getNumPartitions() > WORKERS
    parts: list[tuple[str, str, int, int]] = []
    job = named(planned).rdd.mapPartitions(partial(summed_in_steps, str(tmp_path)))
    thread = threading.Thread(target=lambda: parts.extend(job.collect()))
    thread.start()
    try:
        assert eventually(lambda: len(list(tmp_path.glob("began*"))) == WORKERS, GO_S)
        append(store, "live", full[length:])
        assert eventually(lambda: path.stat().st_size == len(full))
    finally:
        (tmp_path / "go").touch()
        thread.join()
    found = sum(part[2] for part in parts), sum(part[3] for part in parts)
    assert found == truth(full[: full.index(b"\n", length) + 1])
    assert cluster_spark.read.text(str(path)).count() == truth(full)[0]
