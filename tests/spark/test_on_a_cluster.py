"""Executors of two workers read segments under a mount by path, and by name, and compute what plain Python does."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests import verbs
from tests.ledgers import new_ledger
from tests.mount.conftest import Mount, append
from tests.servers.process import ServerError
from tests.servers.spark_cluster import WORKERS, SparkCluster, processes_in
from tests.spark.conftest import KeptJvm
from tests.spark.reading import Sums, frame, make_cold, text, truth
from tierfs.app import store as app

pytestmark = [pytest.mark.mount, pytest.mark.spark, pytest.mark.timeout(420, method="thread")]

MANY = 9000
"""Lines of about 400 kB: more splits than there are workers, and long enough that each has a share."""

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
    assert table.rdd.getNumPartitions() > len(sources), "no segment was split"
    assert by_executors(table, PATH, spark_cluster) == {Path(path).name: truth(data) for path, data in sources.items()}
    assert table.count() == sum(truth(data)[0] for data in sources.values())
    assert tiers(mnt / "logs/cold") == wanted["logs/cold"]


@pytest.mark.skipif("PYTEST_XDIST_WORKER" not in os.environ, reason="there is only one process")
def test_one_process_has_every_test_of_a_session(request: pytest.FixtureRequest, kept_jvm: KeptJvm) -> None:
    assert request.node.nodeid.endswith("@spark"), "each process would have JVMs; see setup.py for pytest's version"


def test_a_failing_start_names_the_daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "none"))
    with pytest.raises(ServerError, match=r"^spark-cluster: master ended with 1:"):
        SparkCluster(tmp_path / "cluster").start()
    assert processes_in(tmp_path) == []
