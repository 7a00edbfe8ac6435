"""Windows of a day's logs under a watermark, from streams with a limit: no row of any log comes too late."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.mount.conftest import append
from tests.reading.test_times import NOW, published
from tierfs.app import store as app
from tierfs.engine.segments import ledgers

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(420, method="thread")]

WAIT_S = 300
HOUR_S = 3600
DAY_S = 24 * HOUR_S
BEGIN_S = NOW // 1000 // DAY_S * DAY_S
EVERY_S = {"a": HOUR_S, "b": 2 * HOUR_S, "c": 4 * HOUR_S}
"""Hosts, and how often each writes: a part of the day is as many bytes of one as it is of another."""


def line(host: str, at_s: int) -> bytes:
    return f"{host} {at_s}\n".encode()


def message(host: str, at_s: int) -> bytes:
    return published(1000 * at_s, value=host)


@dataclass(frozen=True)
class Kind:
    """Rows of a type: how they are written, and where they have their host and their time."""

    type: str
    make: Callable[[str, int], bytes]
    host: Callable[[], Column]
    at: Callable[[], Column]


def text(column: str, part: int) -> Column:
    return F.split(F.col(column).cast("string"), " ")[part]


KINDS = {
    "lines": Kind("lines", line, lambda: text("value", 0), lambda: F.timestamp_seconds(text("value", 1).cast("long"))),
    "entries": Kind(
        "entries",
        line,
        lambda: text("payload", 0),
        lambda: F.timestamp_seconds(F.trim(text("payload", 1)).cast("long")),
    ),
    "messages": Kind("messages", message, lambda: F.col("properties")["key"], lambda: F.col("publish_time")),
}


def write_day(store: app.Store, kind: Kind) -> Counter[tuple[int, str]]:
    """Write the logs of one day; return how many rows each window of an hour has, by its beginning."""
    windows: Counter[tuple[int, str]] = Counter()
    for host, every_s in EVERY_S.items():
        times = range(BEGIN_S, BEGIN_S + DAY_S, every_s)
        windows.update((at_s - at_s % HOUR_S, host) for at_s in times)
        records = [kind.make(host, at_s) for at_s in times]
        if kind.type == "lines":
            append(store, f"logs/{host}", b"".join(records), seal=host != "b")
            continue
        with store.metadata.write() as txn:
            name = ledgers.make(txn, f"logs/{host}")
        writer = store.engine.open_ledger(name)
        writer.append_entries(records)
        store.engine.close_writer(writer)
    return windows


def limited(kind: Kind, records: int | None = None, files: int | None = None) -> dict[str, str]:
    """The options of a limit: so many records, or segments; unbounded without one."""
    if files is not None:
        return {"maxFilesPerTrigger": str(files)}
    return {} if records is None else {"maxBytesPerTrigger": str(records * len(kind.make("a", BEGIN_S)))}


# A low limit has the most batches of Spark, and tests/pipeline/reader/test_stream_shares.py plans all limits.
CASES = [
    ("lines", {"records": 13}),
    ("lines", {"files": 1}),
    ("lines", {}),
    ("entries", {"records": 10}),
    # Messages have the entries' shares; their times are those of test_streams.py.
    pytest.param("messages", {"records": 10}, marks=pytest.mark.whole),
    *(pytest.param("lines", {"records": number}, marks=pytest.mark.whole) for number in (1, 2, 10, 20, 1000)),
    pytest.param("lines", {"files": 2}, marks=pytest.mark.whole),
    *(
        pytest.param(kind, {"records": number}, marks=pytest.mark.whole)
        for kind in ("entries", "messages")
        for number in (1, 2, 5, 1000)
    ),
]


@pytest.mark.parametrize(("name", "limit"), CASES, ids=str)
def test_every_window_of_parallel_logs(
    spark: SparkSession, store: app.Store, tmp_path: Path, name: str, limit: dict[str, int]
) -> None:
    """The watermark is shorter than the time between two rows of any log."""
    kind = KINDS[name]
    windows = write_day(store, kind)
    options = {"store": str(store.path), "type": kind.type, "recursiveFileLookup": "true", **limited(kind, **limit)}
    rows = spark.readStream.format("tierfs").options(**options).load("logs")
    timed = rows.select(kind.host().alias("host"), kind.at().alias("at")).withWatermark("at", "10 minutes")
    counted = timed.groupBy(F.window("at", "1 hour").start.cast("long").alias("begin"), "host").count()
    seen: dict[tuple[int, str], int] = {}

    def note(changed: DataFrame, _: int) -> None:
        seen.update({(row["begin"], row["host"]): row["count"] for row in changed.collect()})

    writing = counted.writeStream.outputMode("update").foreachBatch(note).trigger(availableNow=True)
    query = writing.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        assert query.awaitTermination(WAIT_S)
        assert query.exception() is None
        progress = [json.loads(each.json) for each in query.recentProgress]
    finally:
        query.stop()
    assert seen == windows
    assert sum(each["numRowsDroppedByWatermark"] for batch in progress for each in batch["stateOperators"]) == 0
    require_ever_less_unread(progress, batches=2 if limit and limit.get("records", 0) < 1000 else 1)


def require_ever_less_unread(progress: list[dict[str, Any]], *, batches: int) -> None:
    sources = [source for each in progress if (source := each["sources"][0]).get("latestOffset")]
    lags = [bytes_of(source["latestOffset"]) - bytes_of(source["endOffset"]) for source in sources]
    assert lags[-1] == 0
    assert lags == sorted(lags, reverse=True)
    assert len(lags) >= batches


def bytes_of(offset: Any) -> int:
    return int((json.loads(offset) if isinstance(offset, str) else offset)["bytes"])
