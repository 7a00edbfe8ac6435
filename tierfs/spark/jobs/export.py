"""The job `export`: lines, entries or messages as a Parquet table, counted while it is written."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from tierfs.errors import AlreadyExists, DataLoss, InvalidRequest
from tierfs.ledger.unbatch import unbatch
from tierfs.parallel import OnProgress, unseen
from tierfs.spark import register
from tierfs.spark.jobs.tasks import Result, explained, stages_watched
from tierfs.spark.options import ReadOptions, RowType
from tierfs.spark.planning import check

COLUMNS = {
    "target": "string",
    "type": "string",
    "rows": "long",
    "bytes": "long",
    "checksum": "string",
    "files": "long",
    "file_bytes": "long",
}
"""`bytes` are those of values and payloads; `checksum` depends on all columns but properties, and on no order."""

_CONTENT = {RowType.LINES: "value", RowType.BYTES: "content", RowType.ENTRIES: "payload", RowType.MESSAGES: "payload"}
_UNHASHED = "properties"
"""A map has no order, so Spark has no hash of it."""

_UNBATCHED = "ledger_id long, entry_id long, batch_index int, payload binary, segment string"


class IfThere(StrEnum):
    """Treatment of a target that is not empty."""

    REFUSE = "error"
    APPEND = "append"
    OVERWRITE = "overwrite"


@dataclass(frozen=True, slots=True)
class Exporting:
    """Form of the written rows."""

    row_type: RowType = RowType.LINES
    unbatch: bool = False
    """Entries that hold several messages become one row for each, as an entry of its own."""
    partition_by: tuple[str, ...] = ()
    compression: str = "zstd"
    if_there: IfThere = IfThere.REFUSE
    verify: bool = False
    """Read the table back and compare."""


def export(
    spark: SparkSession,
    store: str,
    paths: Sequence[str],
    target: str,
    how: Exporting,
    *,
    show: OnProgress = unseen,
    total_bytes: int = 0,
) -> Result:
    """Write the rows at and below `paths` to the directory `target`, any that Spark writes to.

    Raises AlreadyExists for a target that is not empty, NotFound for a path, and DataLoss when reading the table
    back gives other rows.
    """
    options = {"store": store, "type": str(how.row_type), "recursiveFileLookup": "true"}
    check(ReadOptions.of({**options, "paths": json.dumps(list(paths))}))
    _require_room(spark, target, how)
    register(spark)
    with explained():
        frame = _unbatched(spark.read.format("tierfs").options(**options).load(list(paths)), how)
        _require_columns(frame, how.partition_by)
        seen = Observation()
        observed = frame.observe(seen, *_sums(frame, how.row_type))
        mode = "overwrite" if how.if_there is IfThere.OVERWRITE else "append"
        writer = observed.write.mode(mode).option("compression", how.compression)
        with stages_watched(spark, show, total_bytes):
            writer.partitionBy(*how.partition_by).parquet(target)
        sums: dict[str, Any] = dict(seen.get)
        if how.verify:
            _verify(spark.read.schema(frame.schema).parquet(target), how.row_type, sums)
    files, file_bytes = _files(spark, target)
    row = (target, str(how.row_type), sums["rows"], sums["bytes"] or 0, _hex(sums["checksum"]), files, file_bytes)
    return Result(COLUMNS, [row], {"rows_written": sums["rows"]})


def _unbatched(frame: DataFrame, how: Exporting) -> DataFrame:
    if not how.unbatch:
        return frame
    if how.row_type is not RowType.ENTRIES:
        raise InvalidRequest("only entries are unbatched", remedy="leave --unbatch out, or give --type entries")
    wanted = frame.select("ledger_id", "entry_id", "payload", "segment")
    made: DataFrame = wanted.mapInArrow(_unbatch_batches, _UNBATCHED)
    return made


def _unbatch_batches(batches: Iterable[Any]) -> Iterator[Any]:
    """Yield one row for each message; the payload is an entry of Pulsar with this message alone."""
    for batch in batches:
        rows = [
            (ledger_id, entry_id, index, payload, segment)
            for ledger_id, entry_id, entry, segment in zip(
                *(column.to_pylist() for column in batch.columns), strict=True
            )
            for index, payload in enumerate(unbatch(entry))
        ]
        kinds = (pa.int64(), pa.int64(), pa.int32(), pa.binary(), pa.string())
        columns = [pa.array([row[at] for row in rows], kind) for at, kind in enumerate(kinds)]
        yield pa.RecordBatch.from_arrays(columns, ["ledger_id", "entry_id", "batch_index", "payload", "segment"])


def _sums(frame: DataFrame, row_type: RowType) -> list[Any]:
    hashed = [F.col(name) for name in sorted(frame.columns) if name != _UNHASHED]  # a table has its partitions last
    return [
        F.count(F.lit(1)).alias("rows"),
        F.sum(F.octet_length(_CONTENT[row_type])).alias("bytes"),
        F.bit_xor(F.xxhash64(*hashed)).alias("checksum"),
    ]


def _verify(table: DataFrame, row_type: RowType, sums: dict[str, Any]) -> None:
    found = table.agg(*_sums(table, row_type)).first()
    assert found is not None
    if found.asDict() != sums:
        raise DataLoss(f"the table has {found['rows']} rows, or other ones than the {sums['rows']} that were written")


def _require_columns(frame: DataFrame, wanted: Sequence[str]) -> None:
    unknown = [name for name in wanted if name not in frame.columns]
    if unknown:
        raise InvalidRequest(f"rows have no column {unknown[0]}", remedy=f"they have {', '.join(frame.columns)}")
    if set(wanted) == set(frame.columns):
        raise InvalidRequest("a table needs a column besides those of --partition-by")


def _require_room(spark: SparkSession, target: str, how: Exporting) -> None:
    """Raise AlreadyExists for a target that is not empty, InvalidRequest if reading back would prove nothing."""
    if how.verify and how.if_there is IfThere.APPEND:
        raise InvalidRequest("a table that is appended to has more rows", remedy="leave --verify or --append out")
    files, path = _file_system(spark, target)
    if how.if_there is IfThere.REFUSE and files.exists(path) and len(files.listStatus(path)):
        raise AlreadyExists(f"{target} holds something", remedy="add to it with --append, or replace it: --overwrite")


def _files(spark: SparkSession, target: str) -> tuple[int, int]:
    """Return the Parquet files of a table, and their bytes."""
    files, path = _file_system(spark, target)
    found, count, size_bytes = files.listFiles(path, True), 0, 0
    while found.hasNext():
        one = found.next()
        if one.getPath().getName().endswith(".parquet"):
            count, size_bytes = count + 1, size_bytes + one.getLen()
    return count, size_bytes


def _file_system(spark: SparkSession, target: str) -> tuple[Any, Any]:
    with explained():
        jvm: Any = spark.sparkContext._jvm
        path = jvm.org.apache.hadoop.fs.Path(target)
        return path.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration()), path


def _hex(checksum: int | None) -> str:
    return f"{(checksum or 0) & (2**64 - 1):016x}"
