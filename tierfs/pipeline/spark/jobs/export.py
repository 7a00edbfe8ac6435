"""The job `export`: lines, entries or messages as a Parquet table, counted while it is written."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.bytes.progress import OnProgress, unseen
from tierfs.base.words.errors import AlreadyExists, DataLoss, InvalidRequest
from tierfs.base.words.names import printable
from tierfs.engine.ledger.unbatch import unbatch
from tierfs.pipeline.spark import register
from tierfs.pipeline.spark.jobs.result import Result
from tierfs.pipeline.spark.jobs.table_run import UNNAMED, TableRun
from tierfs.pipeline.spark.jobs.tasks import explained, stages_watched
from tierfs.pipeline.spark.options import ReadOptions
from tierfs.pipeline.spark.planning import schema_of
from tierfs.pipeline.spark.row_types import RowType

# `bytes` are those of values and payloads; `checksum` depends on all columns but properties, and on no order.
COLUMNS = {
    "target": "string",
    "type": "string",
    "rows": "long",
    "bytes": "long",
    "checksum": "string",
    "files": "long",
    "file_bytes": "long",
}

_CONTENT = {RowType.LINES: "value", RowType.BYTES: "content"} | dict.fromkeys(
    (RowType.ENTRIES, RowType.MESSAGES, RowType.ROCKETMQ), "payload"
)

# A map has no order, so Spark has no hash of it.
_UNHASHED = "properties"

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
    """Read the table back and compare, before it is in the target."""
    run: str = ""
    """Makes the export happen once: repeating a run that is done writes nothing. Needed to append."""


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
    """Write the rows at and below `paths` to the directory `target`, any that Spark writes to. See table_run.py.

    Raises AlreadyExists for a target that is not empty, NotFound for a path, and DataLoss when reading the table
    back gives other rows; then the target is as it was.
    """
    if how.if_there is IfThere.APPEND and not how.run:
        raise InvalidRequest(
            "an export with --append needs a run name, so that its repetition adds nothing", remedy="--run NAME"
        )
    run, what = TableRun(spark, target, how.run or UNNAMED), _what(paths, how)
    overwrites = how.if_there is IfThere.OVERWRITE
    if how.run and not overwrites and (sums := run.finished()) is not None:
        _require_same(sums, what, target)
        return _result(run, target, how, sums, repeated=True)
    sums = run.written()
    if sums is not None and not overwrites:
        _require_same(sums, what, target)
    if sums is None or sums["of"] != what:
        sums = {**_write(spark, run, store, paths, how, show, total_bytes), "of": what}
        run.complete(sums)
    if overwrites:
        run.clear()
    run.publish(sums)
    return _result(run, target, how, sums, repeated=False)


def _what(paths: Sequence[str], how: Exporting) -> list[Any]:
    """Return what a run exports, as its documents keep it."""
    return [sorted(paths), str(how.row_type), how.unbatch, list(how.partition_by)]


def _require_same(sums: Mapping[str, Any], what: list[Any], target: str) -> None:
    """Raise AlreadyExists for a run of another export: its repeat would pass for this one."""
    if sums["of"] != what:
        exported = ", ".join(map(printable, sums["of"][0]))
        raise AlreadyExists(
            f"{target} already has a run of this name that exported {exported} with other options",
            remedy="use the same options, another name (--run NAME), or replace the table: --overwrite",
        )


def _write(
    spark: SparkSession,
    run: TableRun,
    store: str,
    paths: Sequence[str],
    how: Exporting,
    show: OnProgress,
    total_bytes: int,
) -> dict[str, Any]:
    """Write the table aside, and read it back if that is wanted; return its sums."""
    options = {"store": store, "type": str(how.row_type), "recursiveFileLookup": "true"}
    below = [path or "/" for path in paths]  # the format refuses an empty path, which is the root's name
    schema_of(ReadOptions.of({**options, "paths": json.dumps(below)}))
    if how.if_there is IfThere.REFUSE:
        run.require_room()
    register(spark)
    with explained():
        frame = _unbatched(spark.read.format("tierfs").options(**options).load(below), how)
        _require_columns(frame, how.partition_by)
        run.begin()
        seen = Observation()
        observed = frame.observe(seen, *_sums(frame, how.row_type))
        writer = observed.write.option("compression", how.compression)
        with stages_watched(spark, show, total_bytes):
            writer.partitionBy(*how.partition_by).parquet(run.table)
        sums: dict[str, Any] = dict(seen.get)
        if how.verify:
            _verify(spark.read.schema(frame.schema).parquet(run.table), how.row_type, sums)
    return sums


def _result(run: TableRun, target: str, how: Exporting, sums: Mapping[str, Any], *, repeated: bool) -> Result:
    files, file_bytes = run.size()
    row = (target, str(how.row_type), sums["rows"], sums["bytes"] or 0, _hex(sums["checksum"]), files, file_bytes)
    return Result(COLUMNS, [row], {"rows_written": 0 if repeated else sums["rows"], "repeated": repeated})


def _unbatched(frame: DataFrame, how: Exporting) -> DataFrame:
    if not how.unbatch:
        return frame
    if how.row_type is not RowType.ENTRIES:
        raise InvalidRequest("--unbatch is only for entries", remedy="omit --unbatch, or use --type entries")
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
    written = table.agg(*_sums(table, row_type)).first()
    assert written is not None
    if written.asDict() != sums:
        raise DataLoss(
            f"the table has {written['rows']} rows, but {sums['rows']} were written, or their content differs"
        )


def _require_columns(frame: DataFrame, wanted: Sequence[str]) -> None:
    unknown = [name for name in wanted if name not in frame.columns]
    if unknown:
        raise InvalidRequest(f"rows have no column {unknown[0]}", remedy=f"they have {', '.join(frame.columns)}")
    if set(wanted) == set(frame.columns):
        raise InvalidRequest("a table needs at least one column that is not in --partition-by")


def _hex(checksum: int | None) -> str:
    return f"{(checksum or 0) & (2**64 - 1):016x}"
