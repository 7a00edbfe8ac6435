"""Spark writes 256 MiB of lines: as text to the local disk and by name to a bucket, beside a bare upload of them."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from tests.benchmarks.measuring import compared, heat, seconds
from tests.benchmarks.spark.session import session
from tests.servers.rgw import RgwServer
from tierfs.base.words.types import MIB

SIZE_BYTES = 256 * MIB
_LINE_BYTES = 128
_TASKS = 4
_OBJECT_BYTES = 64 * MIB


def bench_spark_writing(path: Path, server: RgwServer, bucket: str, repetitions: int) -> str:
    """Seconds until everything is written. `path`: a store over this bucket."""
    directory = path.parent
    numbers = count()
    with session(directory, {}) as spark:
        lines = _lines(spark)

        def text() -> float:
            heat()
            return seconds(lambda: lines.write.text(str(directory / f"text{next(numbers)}")))

        def by_name() -> float:
            heat()
            writer = lines.write.format("tierfs").mode("append").option("store", str(path))
            return seconds(lambda: writer.save(f"out/{next(numbers)}"))

        subjects = {
            "text, the local disk": text,
            "tierfs, Ceph RGW": by_name,
            "boto3 puts of 64 MiB, Ceph RGW": lambda: _puts(server, bucket),
        }
        return compared("Spark writes lines, 256 MiB, two threads", SIZE_BYTES, repetitions, subjects)


def _lines(spark: SparkSession) -> DataFrame:
    """Lines that are made before anything is measured."""
    text = f"rpad(concat('2031-01-30T12:00:00 INFO request ', id), {_LINE_BYTES - 1}, 'x')"
    lines = spark.range(0, SIZE_BYTES // _LINE_BYTES, 1, _TASKS).selectExpr(f"{text} as value").cache()
    assert lines.count() == SIZE_BYTES // _LINE_BYTES
    return lines


def _puts(server: RgwServer, bucket: str) -> float:
    """The same bytes, of which nothing is made or checked."""
    heat()
    data = os.urandom(_OBJECT_BYTES)
    client = server.endpoint.client()

    def put(number: int) -> None:
        client.put_object(Bucket=bucket, Key=f"bare/{number}", Body=data)

    def puts() -> None:
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(put, range(SIZE_BYTES // _OBJECT_BYTES)))

    try:
        return seconds(puts)
    finally:
        client.close()
