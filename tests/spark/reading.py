"""Data frames of a store's segments, and what plain Python makes of the same bytes."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

LINE_END = re.compile(rb"\r\n|\r|\n")

Sums = tuple[int, int]
"""Number of lines, sum of their CRC32: one lost, double or changed line shows."""


def lines_of(data: bytes) -> list[bytes]:
    """Return the lines by Spark's rule: they end with LF, CRLF or CR, the last one with nothing too."""
    found = LINE_END.split(data)
    if not found[-1]:
        found.pop()
    return found


def truth(data: bytes) -> Sums:
    """The sums of a segment's bytes."""
    return sums_of(lines_of(data))


def sums_of(lines: Iterable[bytes]) -> Sums:
    """The sums of lines."""
    found = list(map(zlib.crc32, lines))
    return len(found), sum(found)


def frame(
    spark: SparkSession, store: Path | str, *paths: str, schema: str | None = None, **options: object
) -> DataFrame:
    """`format("tierfs")` with these options."""
    reader = spark.read.format("tierfs").option("store", str(store))
    for name, value in options.items():
        reader = reader.option(name, str(value))
    if schema is not None:
        reader = reader.schema(schema)
    return reader.load(list(paths) if len(paths) != 1 else paths[0])


def sums(table: DataFrame) -> dict[str, Sums]:
    """Sums by segment, made by Spark."""
    found = table.groupBy("segment").agg(F.count("*"), F.sum(F.crc32(F.encode("value", "utf-8")))).collect()
    return {segment: (count, total) for segment, count, total in found}


def sums_by_path(table: DataFrame, mountpoint: Path) -> dict[str, Sums]:
    """The same of a table of files under a mount."""
    path = F.col("_metadata.file_path").alias("path")
    found = table.groupBy(path).agg(F.count("*"), F.sum(F.crc32(F.encode("value", "utf-8")))).collect()
    return {path.split(f"{mountpoint}/")[1]: (count, total) for path, count, total in found}
