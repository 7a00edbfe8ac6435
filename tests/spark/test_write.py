"""`df.write.format("tierfs")` and the streaming sink: what Spark writes is there once, and reads back equal."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, DataFrameWriter, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from tests import verbs
from tests.commands import tierfs
from tests.mount.conftest import Mount
from tests.spark import written
from tests.spark.reading import told
from tests.spark.written import read
from tierfs.app import batch_write, store
from tierfs.metadata.tables import INTENTS
from tierfs.spark import register
from tierfs.spark.errors import TierfsException
from tierfs.spark.source import TierfsDataSource

pytestmark = [pytest.mark.spark, pytest.mark.timeout(420, method="thread")]

LINE = StructType().add("value", "string")
LINES = [f"line {number} größe {'x' * (number % 50)}" for number in range(5000)]
BYTES = "".join(f"{line}\n" for line in LINES).encode()


def lines(spark: SparkSession, values: list[str] | None = None, parts: int = 3) -> DataFrame:
    rows = LINES if values is None else values
    return spark.createDataFrame(spark.sparkContext.parallelize([(one,) for one in rows], parts), "value string")


def writer(table: DataFrame, store: store.Store, **options: str) -> DataFrameWriter:
    return table.write.format("tierfs").mode("append").option("store", str(store.path)).options(**options)


def segments(store: store.Store) -> dict[str, bytes]:
    """Return every segment with its bytes."""
    return {name: read(store, name) for name in written.segments(store)}


def objects(store: store.Store) -> set[str]:
    """Objects of tasks, once garbage is gone."""
    verbs.collect(store, grace_s=0)
    return written.uploads(store)


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
    """Also in a thread of its own, once the format is registered there."""
    table = lines(spark, ["a"], parts=4)

    def write() -> None:
        register(spark)
        writer(table, store).save("out")

    with ThreadPoolExecutor(1) as pool:
        pool.submit(write).result()
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


def test_a_version_is_written_once(spark: SparkSession, store: store.Store) -> None:
    for version in ("7", "8", "7"):
        writer(lines(spark, ["a", "b"], 2), store, txnAppId="nightly", txnVersion=version).save("out")
    found = segments(store)
    assert sorted(found.values()) == [b"a\n", b"a\n", b"b\n", b"b\n"]
    assert len(objects(store)) == len(found)


def test_a_write_that_fails_leaves_nothing(spark: SparkSession, store: store.Store) -> None:
    """Of a segment in several tasks, and of a task that fails."""
    scattered = lines(spark).withColumn("segment", F.lit("web"))
    failing = lines(spark).select(F.when(F.col("value") == LINES[-1], F.raise_error(F.lit("bad row"))).otherwise("x"))
    refusal = r"several tasks have rows of segment out/web, .*repartition\('segment'"
    for table, message in ((scattered, refusal), (failing.toDF("value"), "bad row")):
        with pytest.raises(PySparkException, match=message):
            writer(table, store).save("out")
        assert segments(store) == {}
        assert objects(store) == set()
    with store.metadata.read() as txn:
        assert list(txn.scan(INTENTS)) == []


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


def test_a_store_that_takes_nothing_says_so_before_tasks_start(
    spark: SparkSession, store: store.Store, tmp_path: Path
) -> None:
    """By the writer that Spark asks; in words of Spark for the last one, and for modes that are none."""
    refusals = {
        replica: "replica",
        superseded: "another store owns the bucket",
        without_cold_tier: "needs a cold tier",
        that_is_none: "is not a tierfs store",
    }
    where = store.path
    for kind, refusal in refusals.items():
        where = kind(store, tmp_path)
        with pytest.raises(TierfsException, match=refusal):
            TierfsDataSource({"store": str(where), "path": "out"}).writer(LINE, overwrite=False)
    never = lines(spark).select(F.raise_error(F.lit("a task ran")).cast("string").alias("value"))
    out = never.write.format("tierfs").option("store", str(where))
    assert "is not a tierfs store" in told(lambda: out.mode("append").save("out"))
    for mode in ("overwrite", "errorifexists", "ignore"):
        with pytest.raises(PySparkException, match=r"tierfs only appends|cannot be written in the"):
            out.mode(mode).option("store", str(store.path)).save("out")


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


def test_batches_of_a_stream_are_written_once(stream: Stream, store: store.Store, tmp_path: Path) -> None:
    """A new checkpoint is a new stream unless it has the name of the old one."""
    for text in ("a\n", "b\n"):
        stream.add(text[0], text)
        stream.run(txnAppId="web")
    stream.forget_last_commit()
    stream.add("c", "c\n")
    stream.run(txnAppId="web")
    found = segments(store)
    assert sorted(found.values()) == [b"a\n", b"b\n", b"c\n"]
    assert len(objects(store)) == len(found)
    stream.checkpoint = tmp_path / "new"
    with pytest.raises(PySparkException, match="the checkpoint is a new or an older one"):
        stream.run(txnAppId="web")
    assert batch_write.is_committed(store, "web", 2)
    assert not batch_write.is_committed(store, "web", 3)
    stream.run()
    assert sorted(b"".join(segments(store).values()).split()) == [b"a", b"a", b"b", b"b", b"c", b"c"]
