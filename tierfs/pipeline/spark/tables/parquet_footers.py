"""What the footer of a Parquet file tells: its rows, and bounds of columns that queries select files by."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any

from pyspark.sql import SparkSession

from tierfs.base.bytes.frozen import dataclass

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS_US = 1000


@dataclass(frozen=True, slots=True)
class ColumnBounds:
    """Of a column at the top of a schema: null values, and the lowest and highest others."""

    nulls: int
    low: Any = None
    high: Any = None


@dataclass(frozen=True, slots=True)
class FileFooter:
    """The footer of one file."""

    rows: int
    columns: Mapping[str, ColumnBounds]
    """Whole numbers, dates and times alone: texts are long, and of floating-point numbers NaN has no place."""

    def as_delta(self) -> dict[str, Any]:
        """Return it as a log of Delta has it. Bounds there have milliseconds, so they are rounded outwards."""
        bounded = {name: each for name, each in self.columns.items() if each.low is not None}
        return {
            "numRecords": self.rows,
            "minValues": {name: _value(each.low, 0) for name, each in bounded.items()},
            "maxValues": {name: _value(each.high, _MS_US - 1) for name, each in bounded.items()},
            "nullCount": {name: each.nulls for name, each in self.columns.items()},
        }


def read_footer(spark: SparkSession, path: str) -> FileFooter:
    """Return the footer of a file that Spark wrote. Raises Java's errors."""
    jvm: Any = spark.sparkContext._jvm
    configuration = spark.sparkContext._jsc.hadoopConfiguration()
    source = jvm.org.apache.parquet.hadoop.util.HadoopInputFile.fromPath(
        jvm.org.apache.hadoop.fs.Path(path), configuration
    )
    reader = jvm.org.apache.parquet.hadoop.ParquetFileReader.open(source)
    try:
        columns: dict[str, list[ColumnBounds]] = {}
        for name, bounds in _chunks(reader.getFooter()):
            columns.setdefault(name, []).append(bounds)
        return FileFooter(reader.getRecordCount(), {name: _together(each) for name, each in columns.items()})
    finally:
        reader.close()


def _chunks(footer: Any) -> Iterator[tuple[str, ColumnBounds]]:
    """Yield the columns of each group of rows."""
    blocks = footer.getBlocks()
    for block in (blocks.get(number) for number in range(blocks.size())):
        chunks = block.getColumns()
        for chunk in (chunks.get(number) for number in range(chunks.size())):
            kind, path = chunk.getPrimitiveType(), chunk.getPath().toArray()
            convert = _CONVERTED.get(f"{kind.getPrimitiveTypeName().toString()} {kind.getLogicalTypeAnnotation()}")
            statistics = chunk.getStatistics()
            if len(path) > 1 or convert is None or statistics.isEmpty():
                continue
            if statistics.hasNonNullValue():
                low, high = convert(statistics.genericGetMin()), convert(statistics.genericGetMax())
                yield path[0], ColumnBounds(statistics.getNumNulls(), low, high)
            else:
                yield path[0], ColumnBounds(statistics.getNumNulls())


def _together(parts: list[ColumnBounds]) -> ColumnBounds:
    bounded = [each for each in parts if each.low is not None]
    nulls = sum(each.nulls for each in parts)
    if not bounded:
        return ColumnBounds(nulls)
    return ColumnBounds(nulls, min(each.low for each in bounded), max(each.high for each in bounded))


def _value(bound: Any, up_us: int) -> Any:
    if isinstance(bound, datetime):
        return (bound + timedelta(microseconds=up_us)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return bound.isoformat() if isinstance(bound, date) else bound


def _day(number: int) -> date:
    return (_EPOCH + timedelta(days=number)).date()


def _time(number: int) -> datetime:
    return _EPOCH + timedelta(microseconds=number)


# By the names of the type and of what it means, as Parquet's library prints them.
_CONVERTED: Mapping[str, Callable[[int], Any]] = {
    "INT32 None": int,
    "INT64 None": int,
    "INT32 DATE": _day,
    "INT64 TIMESTAMP(MICROS,true)": _time,
}
