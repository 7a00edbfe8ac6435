"""Checkpoints of streams that an older tierfs wrote are continued: each row once, and a repeated batch is the same.

`checkpoints-e9e9ba2d.tar.xz` was written by that commit and PySpark 4.3.0, and has

* `store`: logs/sealed, logs/open, logs/cold and a ledger below topic;
* `checkpoint-lines`, `checkpoint-entries`: three batches each, with 400 and 20 as maxBytesPerTrigger, of `logs` and
  `topic`, when the last line of logs/open was half written. Then it was ended, and logs/later was written;
* `rows.json`: the rows of each batch, by kind.
"""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.pipeline.spark.asked import Asked
from tierfs.pipeline.spark.row_types import RowType

WRITTEN = Path(__file__).with_name("checkpoints-e9e9ba2d.tar.xz")
LATER = sorted([*(f"open {number:03d}" for number in range(30, 45)), *(f"later {number:03d}" for number in range(10))])
PATHS = {RowType.LINES: ("logs", "400"), RowType.ENTRIES: ("topic", "20")}
WAIT_S = 300


@pytest.fixture
def written(tmp_path: Path) -> Path:
    with tarfile.open(WRITTEN) as archive:
        archive.extractall(tmp_path)
    return tmp_path


def rows_of(written: Path, kind: RowType) -> dict[int, list[str]]:
    return dict(json.loads((written / "rows.json").read_text())[kind])


def offsets(written: Path, kind: RowType) -> list[dict[str, Any]]:
    """The end of each batch, as Spark's log of offsets has it."""
    files = sorted((written / f"checkpoint-{kind}/offsets").iterdir(), key=lambda file: int(file.name))
    return [json.loads(file.read_text().splitlines()[-1]) for file in files]


@pytest.mark.parametrize("kind", PATHS)
def test_offsets_of_an_older_version(written: Path, kind: RowType) -> None:
    path, limit = PATHS[kind]
    stream = Asked(kind, store=str(written / "store"), path=path, maxBytesPerTrigger=limit)
    column = 3 if kind is RowType.ENTRIES else 0
    start = stream.at
    for number, end in enumerate(offsets(written, kind)):
        partitions = stream.reader.partitions(start, end)
        rows = [row for each in partitions for batch in stream.reader.read(each) for row in batch.column(column)]
        texts = [value.decode() if isinstance(value, bytes) else value for value in (row.as_py() for row in rows)]
        assert sorted(texts) == rows_of(written, kind)[number]
        start = end
    stream.at, rest = start, list[str]()
    while found := stream.rows():
        rest += [row[column] for row in found]
    assert sorted(rest) == (LATER if kind is RowType.LINES else [])


@pytest.mark.spark
@pytest.mark.timeout(420, method="thread")
def test_spark_continues_a_query_of_an_older_version(spark: SparkSession, written: Path) -> None:
    """It was killed before it noted the end of its last batch, which is repeated."""
    path, _ = PATHS[RowType.LINES]
    checkpoint = written / "checkpoint-lines"
    (checkpoint / "commits/2").unlink()
    seen: dict[int, list[str]] = {}

    def note(rows: DataFrame, number: int) -> None:
        seen[number] = sorted(row["value"] for row in rows.collect())

    source = spark.readStream.format("tierfs").option("store", str(written / "store")).load(path)
    writing = source.writeStream.foreachBatch(note).trigger(availableNow=True)
    query = writing.option("checkpointLocation", str(checkpoint)).start()
    try:
        assert query.awaitTermination(WAIT_S)
    finally:
        query.stop()
    assert seen == {2: rows_of(written, RowType.LINES)[2], 3: LATER}
