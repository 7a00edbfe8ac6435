"""Spark counts the lines of one cold segment of 300 MB, in one session: `count()` of s3a, of a mount's path, by name.

By name all columns are made, because Spark does not name to a Python source those that it uses; schemas name fewer.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from tests import verbs
from tests.benchmarks.measuring import compared, heat, seconds, store_served
from tests.benchmarks.spark.reading import NAME, s3a_jars, s3a_settings, upload, write_lines
from tests.benchmarks.spark.session import session
from tests.servers.rgw import RgwServer
from tests.verbs import fill
from tierfs.app import store as app

_SIZE_BYTES = 300_000_000
_HOT_BYTES = 1 << 30


def bench_spark_counting(path: Path, server: RgwServer, bucket: str, repetitions: int) -> str:
    """A table. `path`: a store over this bucket."""
    directory = path.parent
    source, mnt = directory / "counted.log", directory / "mnt"
    write_lines(source, _SIZE_BYTES)
    with source.open("rb") as file:
        count = sum(1 for _ in file)
    with app.open_store(path) as store:
        with source.open("rb") as file:
            fill(store.engine, NAME, iter(partial(file.read, 4 << 20), b""))
        verbs.offload(store, NAME)
        verbs.evict(store, NAME, force=True)
    upload(server, bucket, source)
    with session(directory, s3a_settings(server.endpoint_url, s3a_jars(directory))) as spark:

        def s3a() -> float:
            return _counted(lambda: spark.read.text(f"s3a://{bucket}/plain/{source.name}"), count)

        def by_path() -> float:
            with store_served(path, mnt):
                return _counted(lambda: spark.read.text(str(mnt / NAME)), count)

        def by_name(schema: str | None) -> float:
            return _counted(lambda: _named(spark, path, schema), count)

        subjects = {
            "text, s3a": s3a,
            "text, the path on a mount": by_path,
            "tierfs, by name": partial(by_name, None),
            "tierfs, by name, `value`": partial(by_name, "value string"),
            "tierfs, by name, `segment`": partial(by_name, "segment string"),
        }
        for measure in subjects.values():
            measure()  # the first of a session is slow: it compiles, and starts workers
        return compared("Spark counts lines, S3 tier (Ceph RGW), 300 MB", source.stat().st_size, repetitions, subjects)


def _named(spark: SparkSession, path: Path, schema: str | None) -> DataFrame:
    source = spark.read.format("tierfs").option("store", str(path))
    return (source if schema is None else source.schema(schema)).load(NAME)


def _counted(frame: Callable[[], DataFrame], count: int) -> float:
    """Seconds to plan and count; the count must be right."""
    heat(_HOT_BYTES)
    found: list[int] = []
    taken = seconds(lambda: found.append(frame().count()))
    assert found == [count], f"{found} lines instead of {count}"
    return taken
