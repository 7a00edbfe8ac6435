"""Streams of Spark over a store: while others write, over restarts and kills, each row once."""

from __future__ import annotations

import json
import os
import pickle
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable

from tests import verbs
from tests.mount.conftest import append
from tests.mount.waiting import eventually
from tests.servers.spark_cluster import ROOT
from tests.spark.reading import frame
from tierfs.app import store as app
from tierfs.errors import InvalidRequest
from tierfs.segments import ledgers
from tierfs.setup.create import ColdChoice, init_store
from tierfs.spark.columns import full_schema
from tierfs.spark.options import StreamOptions
from tierfs.spark.row_types import RowType
from tierfs.spark.stream_reader import TierfsStreamReader

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(420, method="thread")]

Row = tuple[str, int, str]
WAIT_S = 180


@pytest.fixture(scope="module", autouse=True)
def temporary(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Replicas of buckets lie in the directory of temporary files of Spark's workers."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(tmp_path_factory.mktemp("temporary")))
        yield


class Stream:
    """One query at a time over a store, with a checkpoint; its rows by batch."""

    def __init__(self, spark: SparkSession, store: str | Path, checkpoint: Path, path: str = "/", **options: object):
        self.spark, self.checkpoint, self.path = spark, checkpoint, path
        self.options = {"store": str(store), "recursiveFileLookup": "true"} | {
            name: str(value) for name, value in options.items()
        }
        self.batches: dict[int, list[tuple[Any, ...]]] = {}

    def frame(self) -> DataFrame:
        reader = self.spark.readStream.format("tierfs").options(**self.options)
        return reader.load(self.path)

    def start(self, **trigger: Any) -> Any:
        def keep(rows: DataFrame, batch_id: int) -> None:
            self.batches[batch_id] = sorted(tuple(row) for row in rows.collect())

        writer = self.frame().writeStream.foreachBatch(keep).option("checkpointLocation", str(self.checkpoint))
        return (writer.trigger(**trigger) if trigger else writer).start()

    def run(self) -> list[tuple[Any, ...]]:
        """The rows that are available now and were not read before."""
        before = set(self.batches)
        query = self.start(availableNow=True)
        assert query.awaitTermination(WAIT_S)
        return [row for number in sorted(set(self.batches) - before) for row in self.batches[number]]

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        return sorted(row for rows in self.batches.values() for row in rows)


def lines_of(name: str, data: bytes) -> list[tuple[Any, ...]]:
    """Value, segment and offset of lines that end with LF, or with the segment."""
    return [(found[1].decode(), name, found.start()) for found in re.finditer(rb"([^\n]+)(\n|$)", data)]


def text(seed: int, lines: int) -> bytes:
    return b"".join(
        b"%d %s\n" % (seed, sha256(b"%d %d" % (seed, n)).hexdigest()[: n % 60].encode()) for n in range(lines)
    )


def test_what_is_available_now_and_later(spark: SparkSession, store: app.Store, tmp_path: Path) -> None:
    append(store, "logs/a", b"one\ntwo\nthr")
    append(store, "logs/b", b"last", seal=True)
    stream = Stream(spark, store.path, tmp_path / "checkpoint", "logs")
    assert stream.run() == [("last", "logs/b", 0), ("one", "logs/a", 0), ("two", "logs/a", 4)]
    append(store, "logs/a", b"ee\n", seal=True)
    append(store, "logs/2031/c", b"new\n")
    assert stream.run() == [("new", "logs/2031/c", 0), ("three", "logs/a", 8)]


def test_batches_of_a_limit(spark: SparkSession, store: app.Store, tmp_path: Path) -> None:
    expected = []
    for number in range(5):
        append(store, f"s{number}", text(number, 100), seal=number % 2 == 0)
        expected += lines_of(f"s{number}", text(number, 100))
    append(store, "s5", b"x" * 9000 + b"\n")
    expected.append(("x" * 9000, "s5", 0))
    stream = Stream(spark, store.path, tmp_path / "checkpoint", maxBytesPerTrigger="2k")
    assert sorted(stream.run()) == sorted(expected)
    *sizes, last = [sum(len(row[0]) + 1 for row in rows) for rows in stream.batches.values()]
    assert max(sizes) <= 2048
    assert len(sizes) > 5
    assert last == 9001, "a line that is longer than the limit is read by itself"


def test_while_others_write(spark: SparkSession, store: app.Store, tmp_path: Path) -> None:
    stream = Stream(spark, store.path, tmp_path / "checkpoint", tail="offload")
    query, truth = stream.start(), dict[str, bytes]()
    try:
        for step in range(12):
            for name in ("live", f"d/{step // 4}"):
                data = text(step, 20)[: -7 if step % 2 else None]
                truth[name] = truth.get(name, b"") + data
                append(store, name, data, seal=name != "live" and step % 4 == 3)
            if step % 4 == 0:
                query.processAllAvailable()
        append(store, "live", b"end", seal=True)
        truth["live"] += b"end"
        query.processAllAvailable()
        assert query.exception() is None
        assert query.lastProgress["numInputRows"] >= 0
    finally:
        query.stop()
    assert stream.rows == sorted(row for name, data in truth.items() for row in lines_of(name, data))
    assert len(stream.batches) > 2


def test_a_bucket(spark: SparkSession, tmp_path: Path) -> None:
    """The query sees what the owner offloads while it runs."""
    (tmp_path / "cold").mkdir()
    init_store(tmp_path / "store", ColdChoice(cold_dir=tmp_path / "cold"))
    with app.open_store(tmp_path / "store") as store:
        append(store, "a", b"one\ntw")
        verbs.offload(store)
        stream = Stream(spark, f"file://{tmp_path / 'cold'}", tmp_path / "checkpoint")
        query = stream.start()
        try:
            assert eventually(lambda: stream.rows == [("one", "a", 0)], WAIT_S)
            append(store, "a", b"o\n", seal=True)
            append(store, "b", b"new\n")
            verbs.offload(store)
            assert eventually(lambda: stream.rows == [("new", "b", 0), ("one", "a", 0), ("two", "a", 4)], WAIT_S)
        finally:
            query.stop()


def test_bytes_and_entries(spark: SparkSession, store: app.Store, tmp_path: Path) -> None:
    append(store, "raw", bytes(range(200)))
    stream = Stream(spark, store.path, tmp_path / "bytes", "raw", type="bytes", blockBytes=64, maxBytesPerTrigger=100)
    assert [row[1:3] for row in stream.run()] == [(0, 64), (64, 36), (100, 28), (128, 64), (192, 8)]
    with store.metadata.write() as txn:
        name = ledgers.make(txn, "topic")
    entries = Stream(spark, store.path, tmp_path / "entries", "topic", type="entries")
    expected = []
    for some in ([b"a", b""], [b"", b"b" * 9, b"", b"c"]):
        writer = store.engine.open_ledger(name)
        writer.append_entries(some)
        store.engine.close_writer(writer)
        expected += some
        entries.run()
        assert [(row[1], bytes(row[3])) for row in entries.rows] == list(enumerate(expected))


def test_what_was_deleted_is_one_clear_line(spark: SparkSession, store: app.Store, tmp_path: Path) -> None:
    append(store, "a", b"one\n")
    append(store, "b", b"two\n")
    stream = Stream(spark, store.path, tmp_path / "checkpoint")
    stream.run()
    verbs.delete(store, "a", recursive=False)
    append(store, "b", b"three\n")
    with pytest.raises(PySparkException) as caught:
        stream.run()
    lines = [line for line in str(caught.value).splitlines() if "TierfsException: " in line]
    assert len(lines) == 1
    assert re.search(r"segment \d+, read up to 4, was deleted: .*; set failOnDataLoss to false", lines[0])
    stream.options["failOnDataLoss"] = "false"
    assert stream.run() == [("three", "b", 4)]


def test_options_that_are_wrong(spark: SparkSession, store: app.Store, tmp_path: Path) -> None:
    with pytest.raises(PySparkException, match="startingOffsets is 'first'; it must be earliest or latest"):
        Stream(spark, store.path, tmp_path, startingOffsets="first").frame()
    with pytest.raises(PySparkException, match="a stream cannot refuse bytes that are not cold yet"):
        Stream(spark, store.path, tmp_path / "checkpoint", tail="error").run()


@pytest.mark.parametrize(
    ("option", "value", "text"),
    [
        ("maxBytesPerTrigger", "much", "must be a size"),
        ("failOnDataLoss", "perhaps", "must be true or false"),
        ("startOffset", "3", "a stream has no startOffset"),
        ("modifiedAfter", "2031-01-01T00:00:00", "a stream cannot choose segments by modifiedAfter"),
        ("type", "segments", "rows of type segments cannot be streamed"),
        ("wholetext", "true", "a stream cannot read segments as one line: they grow"),
        ("path", "", "no path is named to read"),
    ],
)
def test_what_a_stream_refuses(option: str, value: str, text: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        StreamOptions.of({"store": "s", "path": "/", option: value})
    assert text in f"{caught.value} {caught.value.remedy}"


def test_tasks_need_no_store(store: app.Store) -> None:
    """An executor reads what is cold without the store that the path names."""
    append(store, "logs/a", b"one\ntwo\n", seal=True)
    verbs.offload(store)
    options = {"path": f"tierfs://{store.path}/logs", "tail": "cold-only"}
    reader = TierfsStreamReader(options, full_schema(RowType.LINES, {}))
    offset = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    sent = pickle.dumps((reader, reader.partitions(reader.initialOffset(), offset)))
    reader.stop()
    (store.path / "store.toml").unlink()
    copy, partitions = pickle.loads(sent)
    rows = [batch.to_pylist() for one in partitions for batch in copy.read(one)]
    assert [row["value"] for some in rows for row in some] == ["one", "two"]


def test_a_stream_option_in_a_batch(spark: SparkSession, store: app.Store) -> None:
    with pytest.raises(PySparkException, match="tierfs has no option"):
        frame(spark, store.path, "/", startingOffsets="latest").count()


DRIVER = """
import sys
from pathlib import Path
from tests.spark.conftest import SETTINGS, open_session
store, work = sys.argv[1:]
with open_session("local[2]", Path(work, "spark"), SETTINGS) as spark:
    stream = spark.readStream.format("tierfs").option("store", store).option("maxBytesPerTrigger", "1k").load("logs")
    sink = stream.writeStream.format("parquet").option("checkpointLocation", f"{work}/checkpoint")
    sink.option("path", f"{work}/table").start().awaitTermination()
"""


def test_a_killed_driver(spark: SparkSession, store: app.Store, tmp_path: Path) -> None:
    """The batch in the checkpoint is read again, and the rest follows: each line is in the table once."""
    truth = text(1, 3000)
    append(store, "logs/a", truth)
    (tmp_path / "spark").mkdir()
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable}
    for variable in ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"):
        environment.pop(variable, None)
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, store.path, tmp_path],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        assert eventually((tmp_path / "checkpoint/commits/3").exists, WAIT_S)
    finally:
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()
    committed = len(list((tmp_path / "checkpoint/commits").glob("[0-9]*")))
    append(store, "logs/a", text(2, 50), seal=True)
    append(store, "logs/b", text(3, 50))
    frame = Stream(spark, store.path, tmp_path / "checkpoint", "logs", recursiveFileLookup=False).frame()
    sink = frame.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
    assert sink.option("path", str(tmp_path / "table")).trigger(availableNow=True).start().awaitTermination(WAIT_S)
    rows = sorted(tuple(row) for row in spark.read.parquet(str(tmp_path / "table")).collect())
    assert rows == sorted([*lines_of("logs/a", truth + text(2, 50)), *lines_of("logs/b", text(3, 50))])
    last = max(int(one.name) for one in (tmp_path / "checkpoint/commits").glob("[0-9]*"))
    assert last >= committed, "nothing was left for the second driver"
    offset = json.loads((tmp_path / "checkpoint/offsets" / str(last)).read_text().splitlines()[-1])
    assert len(offset["open"]) == 1
