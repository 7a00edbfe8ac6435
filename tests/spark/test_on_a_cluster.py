"""Executors of two workers read segments under a mount by path, and by name, and compute what plain Python does."""

from __future__ import annotations

import os
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

from tests import verbs
from tests.ledgers import new_ledger
from tests.mount.conftest import Mount, append
from tests.mount.waiting import eventually
from tests.servers.spark_cluster import WORKERS, SparkCluster
from tests.spark.reading import Sums, frame, make_cold, text, truth
from tierfs.app import store as app

pytestmark = [pytest.mark.mount, pytest.mark.spark, pytest.mark.timeout(420, method="thread")]

MANY = 9000
"""Lines of about 400 kB: more splits than there are workers."""

GO_S = 180
PATH = "_metadata.file_name"


def by_executors(table: DataFrame, of: str, cluster: SparkCluster) -> dict[str, Sums]:
    """Return sums by the file or segment of a line; every worker had a share in them.

    Spark reads the lines, Python functions on the executors sum them up.
    """
    found: dict[str, Sums] = {}
    workers = set()
    for directory, name, count, crcs in table.selectExpr(of, "value").rdd.mapPartitions(summed).collect():
        workers.add(Path(directory).relative_to(cluster.directory).parts[0])
        before = found.get(name, (0, 0))
        found[name] = (before[0] + count, before[1] + crcs)
    assert workers == {f"worker{number}" for number in range(WORKERS)}
    return found


def summed(rows: Iterable[Any]) -> Iterator[tuple[str, str, int, int]]:
    """Runs on executors: where this one is, and its lines' sums by file."""
    found: dict[str, Sums] = {}
    for name, line in rows:
        count, crcs = found.get(name, (0, 0))
        found[name] = (count + 1, crcs + zlib.crc32(line.encode()))
    for name, (count, crcs) in found.items():
        yield os.getcwd(), name, count, crcs


def tiers(path: Path) -> tuple[int, int, bool]:
    """Local bytes, cold bytes, and whether the segment is sealed."""
    keys = ("local_bytes", "cold_bytes", "sealed")
    local, cold, sealed = (int(os.getxattr(path, f"user.tierfs.{key}")) for key in keys)
    return local, cold, bool(sealed)


def test_sealed_growing_and_ledger_segments(
    store: app.Store, mount: Mount, cluster_spark: SparkSession, spark_cluster: SparkCluster
) -> None:
    """More paths than the driver lists by itself; and by name from the store, and from its bucket alone."""
    sources = {f"logs/{name}": text(seed, MANY) for seed, name in enumerate(("sealed", "cold", "growing"))}
    half = len(sources["logs/growing"]) // 2
    append(store, "logs/sealed", sources["logs/sealed"], seal=True)
    append(store, "logs/cold", sources["logs/cold"], seal=True)
    append(store, "logs/growing", sources["logs/growing"][:half])
    make_cold(store, "logs/cold", "logs/growing")
    append(store, "logs/growing", sources["logs/growing"][half:])
    for number in range(34):
        sources[f"logs/small{number:02}"] = data = text(number, 20)
        append(store, f"logs/small{number:02}", data, seal=True)
    table = frame(cluster_spark, store.path, "logs", maxPartitionBytes="64k")
    assert by_executors(table, "segment", spark_cluster) == {name: truth(data) for name, data in sources.items()}
    verbs.settle(store)
    of_bucket = frame(cluster_spark, f"file://{store.paths.cold}", "logs/cold", "logs/growing", maxPartitionBytes="64k")
    cold = {"logs/cold": truth(sources["logs/cold"]), "logs/growing": truth(sources["logs/growing"][:half])}
    assert by_executors(of_bucket, "segment", spark_cluster) == cold, "the tail that is not cold is not there"
    for seed in (3, 4):  # entries are not lines: they end anywhere
        data = text(seed, MANY)
        name = new_ledger(store, [data[at : at + 1000] for at in range(0, len(data), 1000)])  # type: ignore[arg-type]
        sources[name] = data
    make_cold(store, name)
    mnt = mount("xattr").path
    length = {path: len(data) for path, data in sources.items()}
    wanted = {
        "logs/sealed": (length["logs/sealed"], 0, True),
        "logs/cold": (0, length["logs/cold"], True),
        "logs/growing": (length["logs/growing"] - half, half, False),
        name: (0, length[name], True),
    }
    assert {path: tiers(mnt / path) for path in wanted} == wanted
    context = cluster_spark.sparkContext
    context.setJobGroup("listing", "no action yet, so every job lists")
    table = cluster_spark.read.text([str(mnt / path) for path in sources])
    assert context.statusTracker().getJobIdsForGroup("listing"), "the driver listed the paths, not the executors"
    context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
    assert table.rdd.getNumPartitions() > 9, "no segment was split"
    assert by_executors(table, PATH, spark_cluster) == {Path(path).name: truth(data) for path, data in sources.items()}
    assert table.count() == sum(truth(data)[0] for data in sources.values())
    assert tiers(mnt / "logs/cold") == wanted["logs/cold"]


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
    cut_bytes: int, store: app.Store, mount: Mount, cluster_spark: SparkSession, tmp_path: Path
) -> None:
    """The job gets what was planned, and the line that crosses, or begins at, the planned end; the next gets all.

    Hadoop reads to a line's end, and the split after would leave out its first line: see docs/spark.md.
    """
    full = text(1, MANY) + text(2, MANY)
    length = len(text(1, MANY)) - cut_bytes
    append(store, "live", full[: length // 2])
    make_cold(store, "live")
    append(store, "live", full[length // 2 : length])
    path = mount("xattr").path / "live"
    assert tiers(path) == (length - length // 2, length // 2, False)
    planned = cluster_spark.read.text(str(path))
    assert planned.rdd.getNumPartitions() > WORKERS
    parts: list[tuple[str, str, int, int]] = []
    job = planned.selectExpr(PATH, "value").rdd.mapPartitions(partial(summed_in_steps, str(tmp_path)))
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
    crossing = truth(full[: full.index(b"\n", length) + 1])
    assert found == crossing
    assert (planned.count(), cluster_spark.read.text(str(path)).count()) == (crossing[0], truth(full)[0])
