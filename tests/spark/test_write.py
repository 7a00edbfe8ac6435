"""`df.write.format("tierfs")` and the streaming sink: what Spark writes is there once, and reads back equal."""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, DataFrameWriter, SparkSession
from pyspark.sql import functions as F

from tests import verbs
from tests.commands import tierfs
from tests.docs.blocks import ROOT, Reader
from tests.mount.conftest import Mount
from tierfs.app import batch_write, store
from tierfs.metadata import directories
from tierfs.metadata.tables import INTENTS
from tierfs.spark import register
from tierfs.tiering.batch_job import is_about_job

pytestmark = [pytest.mark.spark, pytest.mark.timeout(420, method="thread")]

LINES = [f"line {number} größe {'x' * (number % 50)}" for number in range(20_000)]
BYTES = "".join(f"{line}\n" for line in LINES).encode()


def lines(spark: SparkSession, values: list[str] | None = None, parts: int = 3) -> DataFrame:
    rows = LINES if values is None else values
    return spark.createDataFrame(spark.sparkContext.parallelize([(one,) for one in rows], parts), "value string")


def writer(table: DataFrame, store: store.Store, **options: str) -> DataFrameWriter:
    return table.write.format("tierfs").mode("append").option("store", str(store.path)).options(**options)


def segments(store: store.Store) -> dict[str, bytes]:
    """Return every segment with its bytes, as `tierfs cat` writes them."""
    with store.metadata.read() as txn:
        root = directories.find(txn, "")
        assert root is not None
        names = [name for name, _ in directories.segments_below(txn, root, "")]
    return {name: tierfs("cat", name, store=store.path).out.encode() for name in sorted(names)}


def uploads(store: store.Store) -> set[str]:
    """Objects of tasks, once garbage is gone."""
    tierfs("-q", "gc", "--delete", "--grace", "0s", "--yes", store=store.path)
    location_id = store.cold_location_id
    assert location_id is not None
    return {one.name for one in store.storage_of(location_id).list("uploads/") if not is_about_job(one.name)}


def test_what_is_written_reads_back_equal_by_every_way(spark: SparkSession, store: store.Store, mount: Mount) -> None:
    writer(lines(spark), store).save("out/lines")
    found = segments(store)
    names = "|".join(found)
    assert re.fullmatch(r"out/lines/part-00000-(\w{12})\|out/lines/part-00001-\1\|out/lines/part-00002-\1", names)
    assert b"".join(found.values()) == BYTES
    mounted = mount().path
    assert {name: (mounted / name).read_bytes() for name in found} == found
    by_name = spark.read.format("tierfs").option("store", str(store.path)).load("out/lines")
    assert sorted(row.value for row in by_name.collect()) == sorted(LINES)
    by_path = spark.read.text(str(mounted / "out/lines"))
    assert sorted(row.value for row in by_path.collect()) == sorted(LINES)
    assert tierfs("info", next(iter(found)), "--json", store=store.path).json["sealed"]


def test_empty_partitions_make_no_segment(spark: SparkSession, store: store.Store) -> None:
    writer(lines(spark, ["a"], parts=4), store, into="out").save()
    writer(lines(spark, []), store, into="out").save()
    assert list(segments(store).values()) == [b"a\n"]


def test_blocks_of_bytes_go_as_they_are_into_an_open_segment(spark: SparkSession, store: store.Store) -> None:
    table = lines(spark, ["a", "b\r\n", ""], parts=1).select(F.col("value").cast("binary").alias("content"))
    writer(table, store, type="bytes", seal="false").save("raw")
    ((name, data),) = segments(store).items()
    assert data == b"ab\r\n"
    assert tierfs("append", name, store=store.path, stdin=b"more")
    assert segments(store)[name] == b"ab\r\nmore"


def test_what_was_read_by_segment_is_written_by_segment(spark: SparkSession, store: store.Store) -> None:
    table = lines(spark).withColumn("segment", F.concat(F.lit("s"), F.length("value") % 7))
    writer(table.repartition(2, "segment"), store).save("once")
    copied = spark.read.format("tierfs").option("store", str(store.path)).load("once").drop("offset")
    writer(copied.repartition(2, "segment"), store).save("twice")
    found = segments(store)
    assert len(found) == 14
    for name in (one for one in found if one.startswith("once/")):
        assert sorted(found[f"twice/{name}"].splitlines()) == sorted(found[name].splitlines())


def test_a_segment_in_several_tasks_is_refused(spark: SparkSession, store: store.Store) -> None:
    table = lines(spark).withColumn("segment", F.lit("web"))
    with pytest.raises(PySparkException, match=r"several tasks have rows of segment out/web, .*repartition\('segment'"):
        writer(table, store).save("out")
    assert segments(store) == {}
    assert uploads(store) == set()


def test_a_version_is_written_once(spark: SparkSession, store: store.Store) -> None:
    for version in ("7", "8", "7"):
        writer(lines(spark, ["a", "b"], 2), store, txnAppId="nightly", txnVersion=version).save("out")
    found = segments(store)
    assert sorted(found.values()) == [b"a\n", b"a\n", b"b\n", b"b\n"]
    assert len(uploads(store)) == len(found)


def test_a_task_that_fails_leaves_nothing(spark: SparkSession, store: store.Store) -> None:
    failing = lines(spark).select(F.when(F.col("value") == LINES[-1], F.raise_error(F.lit("bad row"))).otherwise("x"))
    with pytest.raises(PySparkException, match="bad row"):
        writer(failing.toDF("value"), store).save("out")
    assert segments(store) == {}
    assert uploads(store) == set()
    with store.metadata.read() as txn:
        assert list(txn.scan(INTENTS)) == []


def test_a_thread_of_its_own_writes_once_the_format_is_registered_there(
    spark: SparkSession, store: store.Store
) -> None:
    table = lines(spark, ["a"], parts=1)

    def write() -> None:
        register(spark)
        writer(table, store).save("out")

    with ThreadPoolExecutor(1) as pool:
        pool.submit(write).result()
    assert list(segments(store).values()) == [b"a\n"]


def replica(store: store.Store, tmp_path: Path) -> Path:
    assert verbs.settle(store) is None
    tierfs("-q", "replica", "--cold-dir", store.path / "cold", store=tmp_path / "other")
    return tmp_path / "other"


def superseded(store: store.Store, tmp_path: Path) -> Path:
    assert verbs.settle(store) is None
    tierfs("-q", "recover", "--cold-dir", store.path / "cold", store=tmp_path / "new")
    return store.path


def without_cold_tier(_: store.Store, tmp_path: Path) -> Path:
    tierfs("-q", "init", "--cold", "none", store=tmp_path / "local")
    return tmp_path / "local"


def that_is_none(_: store.Store, tmp_path: Path) -> Path:
    return tmp_path


@pytest.mark.parametrize(
    ("kind", "refusal"),
    [
        (replica, "replica"),
        (superseded, "another store owns the bucket"),
        (without_cold_tier, "needs a cold tier"),
        (that_is_none, "is not a tierfs store"),
    ],
)
def test_a_store_that_takes_nothing_says_so_before_tasks_start(
    kind: Callable[[store.Store, Path], Path], refusal: str, spark: SparkSession, store: store.Store, tmp_path: Path
) -> None:
    where = kind(store, tmp_path)
    never = lines(spark).select(F.raise_error(F.lit("a task ran")).cast("string").alias("value"))
    with pytest.raises(PySparkException) as caught:
        never.write.format("tierfs").mode("append").option("store", str(where)).save("out")
    told = next(line for line in str(caught.value).splitlines() if "TierfsException: " in line)
    assert refusal in told
    assert "a task ran" not in str(caught.value)


@pytest.mark.parametrize("mode", ["overwrite", "errorifexists", "ignore"])
def test_only_append_is_a_mode(mode: str, spark: SparkSession, store: store.Store) -> None:
    with pytest.raises(PySparkException, match=r"tierfs only appends|cannot be written in the"):
        writer(lines(spark), store).mode(mode).save("out")


class Stream:
    """A query from text files to a store; each `run` ends when everything present is written."""

    def __init__(self, spark: SparkSession, store: store.Store, work: Path) -> None:
        self._spark = spark
        self._store = store
        self.files = work / "files"
        self.checkpoint = work / "checkpoint"
        self.files.mkdir()

    def add(self, name: str, text: str) -> None:
        """A file appears whole."""
        (self.files / f".{name}").write_text(text)
        (self.files / f".{name}").rename(self.files / name)

    def run(self, **options: str) -> None:
        """Start from the checkpoint, and end."""
        table = self._spark.readStream.text(str(self.files))
        sink = table.writeStream.format("tierfs").option("store", str(self._store.path)).options(**options)
        sink = sink.option("checkpointLocation", str(self.checkpoint)).trigger(availableNow=True)
        sink.start("out").awaitTermination()

    def forget_last_commit(self) -> None:
        """As if the driver had died after the sink's commit, and before Spark noted it."""
        commits = [int(path.name) for path in (self.checkpoint / "commits").iterdir() if path.name.isdigit()]
        for path in (self.checkpoint / "commits").glob(f"*{max(commits)}*"):
            path.unlink()


@pytest.fixture
def stream(spark: SparkSession, store: store.Store, tmp_path: Path) -> Stream:
    return Stream(spark, store, tmp_path)


def test_batches_of_a_stream_are_written_once(stream: Stream, store: store.Store) -> None:
    stream.add("1", "a\nb\n")
    stream.run()
    stream.add("2", "c\n")
    stream.run()
    found = segments(store)
    assert sorted(found.values()) == [b"a\nb\n", b"c\n"]
    stream.forget_last_commit()
    stream.run()
    assert segments(store) == found
    assert len(uploads(store)) == len(found)
    stream.add("3", "d\n")
    stream.run()
    assert sorted(segments(store).values()) == [b"a\nb\n", b"c\n", b"d\n"]


def test_a_new_checkpoint_is_a_new_stream_unless_it_has_the_name_of_the_old_one(
    stream: Stream, store: store.Store, tmp_path: Path
) -> None:
    for text in ("a\n", "b\n"):
        stream.add(text[0], text)
        stream.run(txnAppId="web")
    stream.checkpoint = tmp_path / "new"
    with pytest.raises(PySparkException, match="the checkpoint is a new or an older one"):
        stream.run(txnAppId="web")
    assert batch_write.is_committed(store, "web", 1)
    assert not batch_write.is_committed(store, "web", 2)
    stream.run(txnAppId="web again")
    assert sorted(segments(store).values()) == [b"a\n", b"a\n", b"b\n", b"b\n"]


def test_the_examples(spark: SparkSession, store: store.Store, tmp_path: Path) -> None:
    """Every example on writing, in docs/spark.md."""
    text = (ROOT / "docs/spark.md").read_text()
    (tmp_path / "spark.md").write_text(text[text.index("## Writing") : text.index("# Jobs")])
    (tmp_path / "incoming").mkdir()
    (tmp_path / "incoming/1").write_text("a\nb\n")
    replace = {
        "/srv/store": str(store.path),
        "/srv/checkpoints": str(tmp_path / "checkpoints"),
        "/var/log/incoming": str(tmp_path / "incoming"),
    }
    names = {"spark": spark, "lines": lines(spark, ["x", "y"], 1)}
    assert Reader(tmp_path / "spark.md", tmp_path, replace=replace, names=names).run() == 5
    found = {re.sub(r"part-0000\d-\w{12}", "part", name): data for name, data in segments(store).items()}
    assert found == {
        "by-day/day=3/part": b"one\ntwo\n",
        "by-name/app/part": b"two\n",
        "by-name/web/part": b"one\n",
        "copies/web/part": b"x\ny\n",
        "incoming/part": b"a\nb\n",
        "named/app": b"two\n",
        "named/web": b"one\n",
        "nightly/2031-01-30/part": b"x\ny\n",
    }
