"""`df.write.format("tierfs")` and the streaming sink: what Spark writes is there once, and reads back equal."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, DataFrameWriter, SparkSession
from pyspark.sql import functions as F

from tests import verbs
from tests.commands import tierfs
from tests.mount.conftest import Mount
from tests.pipeline.spark import written
from tests.pipeline.spark.reading import told
from tests.pipeline.spark.written import read
from tierfs.app import store
from tierfs.app.batches import driver
from tierfs.engine.metadata.tables import INTENTS
from tierfs.pipeline.spark import register

pytestmark = [pytest.mark.spark, pytest.mark.timeout(420, method="thread")]

LINES = [f"line {number} größe {'x' * (number % 50)}" for number in range(2000)]
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


def test_empty_partitions_make_no_segment_and_blocks_go_as_they_are(spark: SparkSession, store: store.Store) -> None:
    """Also in a thread of its own, once the format is registered there; an open segment takes more bytes."""
    table = lines(spark, ["a"], parts=4)

    def write() -> None:
        register(spark)
        writer(table, store).save("out")

    with ThreadPoolExecutor(1) as pool:
        pool.submit(write).result()
    writer(lines(spark, []), store, into="out").save()
    blocks = lines(spark, ["a", "b\r\n", ""], parts=1).select(F.col("value").cast("binary").alias("content"))
    writer(blocks, store, type="bytes", seal="false").save("raw")
    (name, raw) = segments(store)
    assert segments(store) == {name: b"a\n", raw: b"ab\r\n"}
    assert tierfs("append", raw, store=store.path, stdin=b"more")
    assert segments(store)[raw] == b"ab\r\nmore"


def test_a_version_is_written_once(spark: SparkSession, store: store.Store) -> None:
    for version in ("7", "8", "7"):
        writer(lines(spark, ["a", "b"], 2), store, txnAppId="nightly", txnVersion=version).save("out")
    found = segments(store)
    assert sorted(found.values()) == [b"a\n", b"a\n", b"b\n", b"b\n"]
    assert len(objects(store)) == len(found)


def test_a_write_that_fails_leaves_nothing(spark: SparkSession, store: store.Store, tmp_path: Path) -> None:
    """Of a segment in several tasks, and of a task that fails; what can be refused is, before tasks start."""
    scattered = lines(spark).withColumn("segment", F.lit("web"))
    failing = lines(spark).select(F.when(F.col("value") == LINES[-1], F.raise_error(F.lit("bad row"))).otherwise("x"))
    refusal = r"several tasks have rows of segment out/web; .*repartition\('segment'"
    for table, message in ((scattered, refusal), (failing.toDF("value"), "bad row")):
        with pytest.raises(PySparkException, match=message):
            writer(table, store).save("out")
        assert segments(store) == {}
        assert objects(store) == set()
    with store.metadata.read() as txn:
        assert list(txn.scan(INTENTS)) == []
    never = lines(spark).select(F.raise_error(F.lit("a task ran")).cast("string").alias("value"))
    out = never.write.format("tierfs").option("store", str(tmp_path))
    assert "is not a tierfs store" in told(lambda: out.mode("append").save("out"))
    for mode in ("overwrite", "errorifexists", "ignore"):
        with pytest.raises(PySparkException, match=r"tierfs only appends|cannot be written in the"):
            out.mode(mode).option("store", str(store.path)).save("out")


def test_batches_of_a_stream_are_written_once(spark: SparkSession, store: store.Store, tmp_path: Path) -> None:
    """A new checkpoint is a new stream unless it has the name of the old one."""
    files, first, new = tmp_path / "files", tmp_path / "checkpoint", tmp_path / "new"
    files.mkdir()

    def run(checkpoint: Path, added: str = "", **options: str) -> None:
        """Write all files that this checkpoint does not name yet, one more among them."""
        if added:
            (tmp_path / added).write_text(f"{added}\n")
            (tmp_path / added).rename(files / added)  # it appears whole
        sink = spark.readStream.text(str(files)).writeStream.format("tierfs").option("store", str(store.path))
        sink = sink.options(**options).option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
        sink.start("out").awaitTermination()

    run(first, "a", txnAppId="web")
    run(first, "b", txnAppId="web")
    for path in (first / "commits").glob("*1*"):  # the driver died after the sink's commit, before Spark noted it
        path.unlink()
    run(first, "c", txnAppId="web")
    found = segments(store)
    assert sorted(found.values()) == [b"a\n", b"b\n", b"c\n"]
    assert len(objects(store)) == len(found)
    with pytest.raises(PySparkException, match="the checkpoint is new or older"):
        run(new, txnAppId="web")
    assert driver.is_committed(store, "web", 2)
    assert not driver.is_committed(store, "web", 3)
    run(new)
    assert sorted(b"".join(segments(store).values()).split()) == [b"a", b"a", b"b", b"b", b"c", b"c"]
