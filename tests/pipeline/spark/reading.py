"""Data frames of a store's segments, and what plain Python makes of the same bytes."""

from __future__ import annotations

import random
import re
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import StructType

from tests import verbs
from tierfs.app.store import Store
from tierfs.pipeline.spark.errors import TierfsException
from tierfs.pipeline.spark.source import TierfsDataSource

LINE_END = re.compile(rb"\r\n|\r|\n")
WORDS = ("tier", "größe", "log, or not", "", "日誌", "𝄞 x", "y" * 60)

Sums = tuple[int, int]
"""Number of lines, sum of their CRC32: one lost, double or changed line shows."""


def text(seed: int, count: int, end: str = "\n") -> bytes:
    """So many lines, of 25 to 90 bytes."""
    chosen = random.Random(seed)
    return b"".join(f"{chosen.choice(WORDS)} {chosen.randbytes(12).hex()}{end}".encode() for _ in range(count))


def make_cold(store: Store, *names: str) -> None:
    """Offload segments, and take their bytes from the local disk."""
    for name in names:
        verbs.offload(store, name)
        verbs.evict(store, name, force=True)


def lines_of(data: bytes) -> list[bytes]:
    """Return the lines by Spark's rule: they end with LF, CRLF or CR, the last one with nothing too."""
    found = LINE_END.split(data)
    if not found[-1]:
        found.pop()
    return found


def truth(data: bytes) -> Sums:
    """The sums of a segment's bytes."""
    found = list(map(zlib.crc32, lines_of(data)))
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
    return _sums_by(table, F.col("segment"))


def sums_by_path(table: DataFrame, mountpoint: Path) -> dict[str, Sums]:
    """The same of a table of files under a mount."""
    found = _sums_by(table, F.col("_metadata.file_path").alias("path"))
    return {path.split(f"{mountpoint}/")[1]: sums for path, sums in found.items()}


def _sums_by(table: DataFrame, key: Column) -> dict[str, Sums]:
    found = table.groupBy(key).agg(F.count("*"), F.sum(F.crc32(F.encode("value", "utf-8")))).collect()
    return {name: (count, total) for name, count, total in found}


def told(work: Callable[[], object]) -> str:
    """The one line of tierfs in the error of Spark."""
    with pytest.raises(PySparkException) as caught:
        work()
    lines = [line for line in str(caught.value).splitlines() if "TierfsException: " in line]
    assert len(lines) == 1, str(caught.value)
    return lines[0]


def refusal(store: Path | str, path: str, schema: str | None = None, **options: str) -> str:
    """The error of a batch read as Spark shows it, of its schema or its plan; no job is started for it."""
    source = TierfsDataSource(CaseInsensitiveDict({"store": str(store), "path": path, **options}))
    with pytest.raises(TierfsException) as caught:
        source.reader(source.schema() if schema is None else StructType.fromDDL(schema))
    assert "\n" not in str(caught.value)
    return str(caught.value)
