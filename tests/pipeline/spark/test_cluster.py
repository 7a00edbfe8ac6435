"""Executors on two workers: each is asked by the doctor, all read a store by name and by path, and some are killed."""

from __future__ import annotations

import os
import subprocess
import sys
import zlib
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests import verbs
from tests.conftest import Bucket
from tests.ledgers import new_ledger
from tests.mount.conftest import Mount, append
from tests.mount.waiting import eventually
from tests.pipeline.spark.conftest import KeptJvm
from tests.pipeline.spark.reading import Sums, frame, make_cold, text, truth
from tests.pipeline.spark.write_jobs import GO_S, Gate, freeze_executor, kill_executor, line, rows_that_wait
from tests.pipeline.spark.written import assert_nothing_else_is_there, bucket_store, contents, garbage, named, uploads
from tests.servers.process import ServerError
from tests.servers.spark_cluster import ROOT, WORKERS, SparkCluster, processes_in
from tests.servers.spark_within import ClusterWithin
from tierfs.app import store as app
from tierfs.base.words.errors import Unavailable
from tierfs.faces.doctor.cluster import Cluster
from tierfs.pipeline.doctor import check_cluster, known_store
from tierfs.pipeline.spark import executors, register
from tierfs.pipeline.spark.jobs import session

pytestmark = [pytest.mark.mount, pytest.mark.spark, pytest.mark.timeout(420, method="thread")]

MANY = 9000
"""Lines of about 400 kB: more splits than there are workers, and long enough that each has a share."""

READS = 20
"""Attempts to see every worker at work."""

ROWS = 4_000
"""Of a task of a write: 4 MB, in objects of 1 MiB."""


def test_the_doctor_asks_each_executor_for_itself(
    store: app.Store,
    mount: Mount,
    cluster_spark: SparkSession,
    spark_cluster: ClusterWithin,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One has all it needs and a mount, and a path that is none; the Python of the other is without any package.

    They are asked in the session of the tests, whose executors have all cores.
    """
    append(store, "logs/a", b"x\n")
    verbs.offload(store)
    mnt, chosen = mount().path, tmp_path / "python"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True)
    without_tests = f"export PYTHONPATH=$(tr : '\\n' <<< $PYTHONPATH | grep -vx {ROOT} | paste -sd:)"
    bare = f'*/worker1/*) {without_tests}; exec {tmp_path}/bare/bin/python "$@"'
    chosen.write_text(f'#!/bin/bash\ncase $PWD in {bare};; esac\nexec {sys.executable} "$@"\n')
    chosen.chmod(0o755)
    monkeypatch.setattr(cluster_spark.sparkContext, "pythonExec", str(chosen))
    monkeypatch.setattr(executors, "SETTLED_S", 0.0)
    monkeypatch.setattr(session, "job_session", lambda *_: nullcontext(cluster_spark))
    asked = check_cluster(Cluster(spark_cluster.master, (str(mnt), str(tmp_path))), known_store(store))
    host = os.uname().nodename
    found = {one.name.replace(f" ({host})", ""): (one.level.name, one.text, one.remedy or "") for one in asked}
    assert found.pop("executors")[1] == f"2 of {spark_cluster.master}, on {host}"
    without, whole = sorted(("executor 0", "executor 1"), key=lambda name: found[name][0])
    assert "has no tierfs: No module named 'tierfs'" in found[without][1]
    assert found[without][2].startswith(f"there: {tmp_path}/bare/bin/python -m pip install 'tierfs-")
    assert f"({sys.executable}), tierfs " in found[whole][1]
    place = f"store {store.metadata.store_id}, journal slot {verbs.status(store).journal.slot}"
    assert found[f"{whole}: {mnt}"][:2] == found[f"driver: {mnt}"][:2] == ("OK", place)
    missing = ("FAIL", "no tierfs mount there (no mount)")
    assert found[f"{whole}: {tmp_path}"][:2] == found[f"driver: {tmp_path}"][:2] == missing
    assert (found[without][0], found[whole][0], found[f"{whole}: cold tier"][0]) == ("FAIL", "OK", "OK")
    assert len(found) == 1 + 4 + 2


def by_executors(table: DataFrame, of: str, cluster: ClusterWithin) -> dict[str, Sums]:
    """Return sums by the file or segment of a line; every worker had a share in them.

    Spark reads the lines, Python functions on the executors sum them up.
    """
    workers: set[str] = set()
    for _ in range(READS):  # a busy machine may start one executor's tasks after the other has done them all
        found: dict[str, Sums] = {}
        for directory, name, count, crcs in table.selectExpr(of, "value").rdd.mapPartitions(summed).collect():
            workers.add(Path(directory).relative_to(cluster.directory).parts[0])
            before = found.get(name, (0, 0))
            found[name] = (before[0] + count, before[1] + crcs)
        if len(workers) == WORKERS:
            break
    assert workers == {f"worker{number}" for number in range(WORKERS)}
    return found


def summed(rows: Iterable[Any]) -> Iterator[tuple[str, str, int, int]]:
    """Runs on executors: where this one is, and its lines' sums by file."""
    found: dict[str, Sums] = {}
    for name, value in rows:
        count, crcs = found.get(name, (0, 0))
        found[name] = (count + 1, crcs + zlib.crc32(value.encode()))
    for name, (count, crcs) in found.items():
        yield os.getcwd(), name, count, crcs


def test_sealed_growing_and_ledger_segments(
    store: app.Store, mount: Mount, cluster_spark: SparkSession, spark_cluster: ClusterWithin
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
    by_name = frame(cluster_spark, store.path, "logs", maxPartitionBytes="64k")
    assert by_executors(by_name, "segment", spark_cluster) == {name: truth(data) for name, data in sources.items()}
    verbs.settle(store)
    of_bucket = frame(cluster_spark, f"file://{store.paths.cold}", "logs/cold", "logs/growing", maxPartitionBytes="64k")
    cold = {"logs/cold": truth(sources["logs/cold"]), "logs/growing": truth(sources["logs/growing"][:half])}
    assert by_executors(of_bucket, "segment", spark_cluster) == cold, "the tail that is not cold is not there"
    data = text(3, MANY)
    entries = [data[at : at + 1000] for at in range(0, len(data), 1000)]  # no lines: they end anywhere
    ledger = new_ledger(store, entries)  # type: ignore[arg-type]
    sources[ledger] = data
    make_cold(store, ledger)
    mnt = mount("xattr").path
    context = cluster_spark.sparkContext
    context.setJobGroup("listing", "no action yet, so every job lists")
    by_path = cluster_spark.read.text([str(mnt / path) for path in sources])
    assert context.statusTracker().getJobIdsForGroup("listing"), "the driver listed the paths, not the executors"
    context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
    assert by_path.rdd.getNumPartitions() > len(sources), "no segment was split"
    found = by_executors(by_path, "_metadata.file_name", spark_cluster)
    assert found == {Path(path).name: truth(data) for path, data in sources.items()}
    tiers = [int(os.getxattr(mnt / "logs/cold", f"user.tierfs.{tier}_bytes")) for tier in ("local", "cold")]
    assert tiers == [0, len(sources["logs/cold"])], "reading keeps nothing"


@pytest.fixture
def s3_store(tmp_path: Path, rgw_bucket: Bucket) -> Iterator[app.Store]:
    with bucket_store(tmp_path / "in-s3", rgw_bucket) as opened:
        yield opened


class Write:
    """Two partitions on their way into a store; the first waits at a gate."""

    def __init__(self, spark: SparkSession, pool: ThreadPoolExecutor, store: app.Store, gate: Gate) -> None:
        self._store, self._gate = store, gate
        self._saving = pool.submit(self._save, spark)

    def _save(self, spark: SparkSession) -> None:
        register(spark)
        # Objects are sent while the task still waits for rows.
        spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "100")
        rows = spark.sparkContext.parallelize(range(2), 2).flatMap(partial(rows_that_wait, self._gate, count=ROWS))
        table = spark.createDataFrame(rows, "value string")
        to_store = table.write.format("tierfs").mode("append").option("store", str(self._store.path))
        to_store.save(self._gate.directory.name)

    def attempts(self) -> set[str]:
        """Attempts of the first partition that have objects in the bucket, besides those of earlier writes."""
        names = (name.rpartition("/")[2] for name in uploads(self._store) - named(self._store))
        return {name.split("-")[1] for name in names if name.startswith("00000000-")}

    def until(self, attempt: int) -> set[str]:
        """Wait until this attempt has sent objects; return all that did."""

        def is_there() -> bool:
            return self._gate.has(f"waiting-{attempt}") and len(self.attempts()) > attempt

        assert eventually(lambda: self._saving.done() or is_there(), GO_S)
        assert not self._saving.done(), self._saving.exception()
        return self.attempts()

    def end(self) -> None:
        """Wait for the commit: both tasks' bytes are there once, and what else was uploaded is garbage."""
        self._saving.result(GO_S)
        assert uploads(self._store) - named(self._store) <= garbage(self._store)
        assert contents(self._store, self._gate.directory.name) == [
            b"".join(f"{line(part, number)}\n".encode() for number in range(ROWS)) for part in range(2)
        ]


def test_each_row_is_written_once_though_executors_are_killed_or_hang(
    cluster_spark: SparkSession, s3_store: app.Store, tmp_path: Path
) -> None:
    """One is lost in the middle with its whole machine, so that nothing of it cleans up; the task is repeated.

    Another hangs with objects in the bucket when the second attempt, as the first is slow, ends. It is frozen, not
    only waiting: when Spark kills it, its input ends, and it may send its rest after the commit.
    """
    with ThreadPoolExecutor(1) as pool:
        gate = Gate(tmp_path / "killed")
        write = Write(cluster_spark, pool, s3_store, gate)
        assert len(write.until(0)) == 1
        kill_executor(gate.executor("waiting-0"))
        gate.arrive("go")
        gate.arrive("go-1")
        write.end()
        gate = Gate(tmp_path / "hung")
        gate.arrive("go")
        write = Write(cluster_spark, pool, s3_store, gate)
        write.until(1)
        freeze_executor(gate.executor("waiting-0"))
        gate.arrive("go-1")
        write.end()
        kill_executor(gate.executor("waiting-0"))
    assert_nothing_else_is_there(s3_store)


@pytest.mark.skipif("PYTEST_XDIST_WORKER" not in os.environ, reason="there is only one process")
def test_every_test_of_a_session_is_in_one_process(request: pytest.FixtureRequest, kept_jvm: KeptJvm) -> None:
    assert request.node.nodeid.endswith("@spark"), "each process would have JVMs; see setup.py for pytest's version"


def test_a_failing_start_names_the_daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "none"))
    with pytest.raises(ServerError, match=r"^spark-cluster: master ended with 1:"):
        SparkCluster(tmp_path / "cluster").start()
    assert processes_in(tmp_path) == []


def test_executors_whose_python_is_not_there(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark.sparkContext, "pythonExec", "/none/python")
    monkeypatch.setattr(session, "job_session", lambda *_: nullcontext(spark))
    with pytest.raises(Unavailable, match=r"^its Python /none/python cannot be started$") as caught:
        executors.check_executors("local[2]", (), None)
    assert "PYSPARK_PYTHON" in (caught.value.remedy or "")


def test_a_master_that_gives_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    context: Any = object()
    monkeypatch.setattr(executors, "concurrent_tasks", lambda _: 0)
    with pytest.raises(Unavailable, match="started no executor within 0 s") as caught:
        executors.await_slots(context, "spark://h:1", 0)
    assert "spark.executor.memory" in (caught.value.remedy or "")
