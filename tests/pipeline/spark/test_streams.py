"""Streams of Spark over a store: while others write, and over restarts, each row once."""

from __future__ import annotations

import re
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests import verbs
from tests.mount.conftest import append
from tests.mount.waiting import eventually
from tests.pipeline.spark.asked import Asked, read
from tests.pipeline.spark.reading import told
from tests.reading.test_times import NOW, published
from tierfs.app import store as app
from tierfs.base.words.errors import InvalidRequest
from tierfs.engine.segments import ledgers
from tierfs.pipeline.spark.errors import TierfsException
from tierfs.pipeline.spark.row_types import RowType
from tierfs.pipeline.spark.stream_options import StreamOptions

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(420, method="thread")]

WAIT_S = 180


class Stream:
    """One query at a time over a store, with a checkpoint; its rows by batch."""

    def __init__(self, spark: SparkSession, store: str | Path, checkpoint: Path, path: str = "/", **options: str):
        self.spark, self.checkpoint, self.path = spark, checkpoint, path
        self.options = {"store": str(store), "recursiveFileLookup": "true", **options}
        self.batches: dict[int, list[tuple[Any, ...]]] = {}

    def start(self, **trigger: Any) -> Any:
        def keep(rows: DataFrame, batch_id: int) -> None:
            self.batches[batch_id] = sorted(tuple(row) for row in rows.collect())

        table = self.spark.readStream.format("tierfs").options(**self.options).load(self.path)
        writer = table.writeStream.foreachBatch(keep).option("checkpointLocation", str(self.checkpoint))
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
    truth = {f"logs/s{number}": text(number, 50) for number in range(4)} | {"logs/long": b"x" * 9000 + b"\n"}
    for number, (name, data) in enumerate(truth.items()):
        append(store, name, data, seal=number % 2 == 0)
    append(store, "logs/last", b"last", seal=True)
    append(store, "logs/open", b"one\ntwo\nthr")
    stream = Stream(spark, store.path, tmp_path / "checkpoint", "logs", maxBytesPerTrigger="2k")
    whole = [("last", "logs/last", 0), ("one", "logs/open", 0), ("two", "logs/open", 4)]
    assert sorted(stream.run()) == sorted([*whole, *(row for name in truth for row in lines_of(name, truth[name]))])
    sizes = sorted(sum(len(row[0]) + 1 for row in rows) for rows in stream.batches.values())
    assert len(sizes) > 4
    assert sizes.pop() == 9001, "a line that is longer than the limit is read by itself"
    assert sizes.pop() <= 2048
    append(store, "logs/open", b"ee\n", seal=True)
    append(store, "logs/2031/c", b"new\n")
    assert stream.run() == [("new", "logs/2031/c", 0), ("three", "logs/open", 8)]
    verbs.delete(store, "logs/2031/c", recursive=False)
    append(store, "logs/s1", b"more\n")
    lost = r"segment logs/2031/c, read up to 4, was deleted: .* restore logs/2031/c.*; set failOnDataLoss to false"
    assert re.search(lost, told(stream.run)), "one clear line"
    stream.options["failOnDataLoss"] = "false"
    assert stream.run() == [("more", "logs/s1", len(truth["logs/s1"]))]


def test_queries_of_store_and_bucket_run_while_others_write(
    spark: SparkSession, store: app.Store, tmp_path: Path
) -> None:
    """The query of a bucket sees what the owner offloads while it runs; that of the store offloads by itself."""
    stream = Stream(spark, store.path, tmp_path / "checkpoint", tail="offload")
    of_bucket = Stream(spark, f"file://{store.paths.cold}", tmp_path / "of-bucket")
    append(store, "live", b"one\ntw")
    verbs.offload(store)
    query, other, truth = stream.start(), of_bucket.start(), {"live": b"one\ntw"}
    try:
        assert eventually(lambda: of_bucket.rows == [("one", "live", 0)], WAIT_S)
        for step in range(8):
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
        expected = sorted(row for name, data in truth.items() for row in lines_of(name, data))
        assert stream.rows == expected
        assert len(stream.batches) > 2
        assert eventually(lambda: of_bucket.rows == expected, WAIT_S)
    finally:
        query.stop()
        other.stop()


def test_bytes_and_entries_are_read_in_batches(store: app.Store) -> None:
    append(store, "raw", bytes(range(200)))
    options = {"store": str(store.path), "blockBytes": "64", "maxBytesPerTrigger": "100"}
    blocks = Asked(RowType.BYTES, path="raw", **options)
    assert [[row[1:3] for row in blocks.rows()] for _ in range(3)] == [
        [(0, 64), (64, 36)],
        [(100, 28), (128, 64), (192, 8)],
        [],
    ]
    with store.metadata.write() as txn:
        name = ledgers.make(txn, "topic")
    entries, found, expected = Asked(RowType.ENTRIES, store=str(store.path), path="topic"), [], []
    for some in ([b"a", b""], [b"", b"b" * 9, b"", b"c"]):
        writer = store.engine.open_ledger(name)
        writer.append_entries(some)
        store.engine.close_writer(writer)
        expected += some
        found += entries.rows()
        assert [(row[1], row[3]) for row in found] == list(enumerate(expected))


def test_messages_begin_at_a_time_where_a_batch_does(spark: SparkSession, store: app.Store, tmp_path: Path) -> None:
    """In a closed ledger and in an open one; then what comes, though its time be earlier."""
    with store.metadata.write() as txn:
        closed, opened = ledgers.make(txn, "topic"), ledgers.make(txn, "topic")

    def add(name: str, *seconds: int) -> None:
        writer = store.engine.open_ledger(name)
        writer.append_entries([published(NOW + 1000 * second) for second in seconds])
        store.engine.close_writer(writer)

    add(closed, *range(10))
    store.engine.seal(closed)
    verbs.offload(store)
    verbs.evict(store, "topic", force=True)
    add(opened, *range(10, 15))
    for begin, expected in ((7, [7, 8, 9, *range(10, 15)]), (99, [])):
        options = {"type": "messages", "startingTimestamp": str(NOW + 1000 * begin)}
        stream = Stream(spark, store.path, tmp_path / f"checkpoint-{begin}", "topic", **options)
        batch = spark.read.format("tierfs").options(**stream.options).load("topic")
        assert stream.run() == sorted(map(tuple, batch.collect()))
        published_at = batch.columns.index("publish_time")
        assert [row[published_at].timestamp() for row in stream.rows] == [NOW / 1000 + second for second in expected]
    add(opened, 3)
    assert len(stream.run()) == 1


def test_lines_begin_with_the_chunk_of_a_time(store: app.Store) -> None:
    options = {"store": str(store.path), "path": "s"}
    append(store, "s", b"one\n")
    assert [row[0] for row in Asked(startingTimestamp="2020-01-01T00:00:00", **options).rows()] == ["one"]
    later = Asked(startingTimestamp="2100-01-01T00:00:00", **options)
    assert later.rows() == []
    append(store, "s", b"two\n")
    assert [row[0] for row in later.rows()] == ["two"]
    with store.metadata.write() as txn:
        name = ledgers.make(txn, "topic")
    writer = store.engine.open_ledger(name)
    writer.append_entries([b"text"])
    store.engine.close_writer(writer)
    with pytest.raises(TierfsException, match="have no times: they are not Pulsar's"):
        Asked(RowType.ENTRIES, startingTimestamp="1700000000000", store=str(store.path), path="topic")


def test_tasks_need_no_store(store: app.Store) -> None:
    """An executor reads what is cold without the store that the path names."""
    append(store, "logs/a", b"one\ntwo\n", seal=True)
    verbs.offload(store)
    stream = Asked(path=f"tierfs://{store.path}/logs", tail="cold-only")
    sent = stream.plan()
    stream.reader.stop()
    (store.path / "store.toml").unlink()
    assert [row[0] for row in read(sent)] == ["one", "two"]


@pytest.mark.parametrize(
    ("option", "value", "text"),
    [
        (
            "startingOffsets",
            "first",
            "invalid value 'first' for option startingOffsets expected earliest, latest, JSON",
        ),
        ("minBytesPerTrigger", "much", "expected a size"),
        ("maxTriggerDelay", "5", "expected a time with its unit, like 30s or 15m"),
        ("maxTriggerDelay", "5m", "maxTriggerDelay has no effect without minBytesPerTrigger"),
        ("tail", "error", "a stream cannot fail on bytes that are not cold yet"),
        ("maxBytesPerTrigger", "much", "expected a size"),
        ("failOnDataLoss", "perhaps", "expected yes or no, or true or false"),
        ("startOffset", "3", "startOffset, startEntry and their ends are not supported"),
        ("endingTimestamp", "1700000000000", "endingTimestamp is not supported for streams read a batch"),
        ("endingOffsets", "latest", "endingOffsets is not supported for streams read a batch"),
        ("modifiedAfter", "2031-01-01T00:00:00", "modifiedAfter and modifiedBefore are not supported for streams"),
        ("type", "segments", "rows of type segments cannot be streamed"),
        ("wholetext", "true", "wholetext is not supported for streams: segments grow"),
        ("path", "", "no input path given"),
    ],
)
def test_what_a_stream_refuses(option: str, value: str, text: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        StreamOptions.of({"store": "s", "path": "/", option: value})
    assert text in f"{caught.value} {caught.value.remedy}"
    with pytest.raises(InvalidRequest, match="minBytesPerTrigger is greater than maxBytesPerTrigger"):
        StreamOptions.of({"store": "s", "path": "/", "minBytesPerTrigger": "2k", "maxBytesPerTrigger": "1k"})
