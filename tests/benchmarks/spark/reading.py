"""Spark counts lines of 1.1 GB of log: by path, by name and by s3a, from the local tier and from S3, in one session.

s3a needs jars that tierfs does not (686 MB): Maven fetches them once, when this benchmark is asked for.
"""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests import verbs
from tests.benchmarks.measuring import compared, heat, seconds, store_served
from tests.benchmarks.spark.session import session
from tests.servers.endpoint import ACCESS_KEY, SECRET_KEY
from tests.servers.rgw import RgwServer
from tests.verbs import fill
from tierfs.app import store as app

SIZE_BYTES = 1_100_000_000
NAME = "logs/web"
_HADOOP_AWS = "org.apache.hadoop:hadoop-aws:3.5.0"
_POM = """<project><modelVersion>4.0.0</modelVersion><groupId>b</groupId><artifactId>b</artifactId><version>1</version>
<dependencies><dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency></dependencies>
</project>"""
_DROP_CACHES = Path("/proc/sys/vm/drop_caches")
_LINE = "2031-01-30T12:{:02d}:{:02d} {} web 10.0.{}.{} GET /shop/article-{}.html {} took {} ms\n"
_BLOCK_LINES = 50_000


def bench_spark(path: Path, server: RgwServer, bucket: str, repetitions: int) -> str:
    """Tables of both tiers. `path`: a store over this bucket."""
    directory = path.parent
    source = directory / "web.log"
    count = write_lines(source)
    with app.open_store(path) as store:
        with source.open("rb") as file:
            fill(store.engine, NAME, iter(partial(file.read, 4 << 20), b""))
        title = "Spark counts lines, S3 tier (Ceph RGW), 1.1 GB"
        with session(directory, s3a_settings(server.endpoint_url, s3a_jars(directory))) as spark:
            local = _local_tier(spark, path, source, directory / "mnt", count, repetitions)
            verbs.offload(store, NAME)
            verbs.evict(store, NAME, force=True)
            upload(server, bucket, source)
            return local + "\n" + cold_tier(title, spark, path, bucket, count, repetitions)


def _local_tier(spark: SparkSession, path: Path, source: Path, mnt: Path, count: int, repetitions: int) -> str:
    """Lines from local chunks and by path, against Spark's reader of a plain file; nothing is in the page cache."""

    def by_path() -> float:
        with store_served(path, mnt):
            return _from_disk(lambda: spark.read.text(str(mnt / NAME)), count)

    cold = compared(
        "Spark counts lines, local tier, 1.1 GB, nothing in the page cache",
        SIZE_BYTES,
        repetitions,
        {
            "text, a local file": lambda: _from_disk(lambda: spark.read.text(str(source)), count),
            "text, the path on a mount": by_path,
            "tierfs, lines by name": lambda: _from_disk(lambda: _by_name(spark, path), count),
            "tierfs, lines with segment and offset": lambda: _from_disk(lambda: _all(spark, path), count),
        },
    )
    warm = compared(
        "Spark counts lines, local tier, 1.1 GB, all in the page cache",
        SIZE_BYTES,
        repetitions,
        {
            "text, a local file": lambda: _counted(lambda: spark.read.text(str(source)), count),
            "tierfs, lines by name": lambda: _counted(lambda: _by_name(spark, path), count),
        },
    )
    return cold + "\n" + warm


def cold_tier(title: str, spark: SparkSession, path: Path, bucket: str, count: int, repetitions: int) -> str:
    """The same bytes from Ceph RGW, by three ways; every mount is new."""
    mnt = path.parent / "mnt"

    def by_path() -> float:
        with store_served(path, mnt):
            return _hot(lambda: spark.read.text(str(mnt / NAME)), count)

    subjects = {
        "text, s3a": lambda: _hot(lambda: spark.read.text(f"s3a://{bucket}/plain/web.log"), count),
        "text, the path on a mount": by_path,
        "tierfs, lines by name": lambda: _hot(lambda: _by_name(spark, path), count),
    }
    return compared(title, SIZE_BYTES, repetitions, subjects)


def _by_name(spark: SparkSession, path: Path) -> DataFrame:
    return spark.read.format("tierfs").option("store", str(path)).schema("value string").load(NAME)


def _all(spark: SparkSession, path: Path) -> DataFrame:
    return spark.read.format("tierfs").option("store", str(path)).load(NAME)


def _from_disk(frame: Callable[[], DataFrame], count: int) -> float:
    """With nothing in the page cache; needs root."""
    os.sync()
    _DROP_CACHES.write_text("3")
    heat()
    return _counted(frame, count)


def _hot(frame: Callable[[], DataFrame], count: int) -> float:
    """With the server's own caches as they are."""
    heat()
    return _counted(frame, count)


def _counted(frame: Callable[[], DataFrame], count: int) -> float:
    """Seconds to plan, read and filter; the count must be right."""
    found: list[int] = []
    taken = seconds(lambda: found.append(frame().where(F.col("value").contains(" ERROR ")).count()))
    assert found == [count], f"{found} lines instead of {count}"
    return taken


def write_lines(path: Path, size_bytes: int = SIZE_BYTES) -> int:
    """A log; returns how many lines have ERROR."""
    chosen = random.Random(7)
    block = "".join(
        _LINE.format(
            chosen.randrange(60),
            chosen.randrange(60),
            chosen.choice(("INFO", "INFO", "INFO", "WARN", "ERROR")),
            chosen.randrange(256),
            chosen.randrange(256),
            chosen.randrange(100_000),
            chosen.choice((200, 304, 404, 500)),
            chosen.randrange(1000),
        )
        for _ in range(_BLOCK_LINES)
    ).encode()
    times = size_bytes // len(block)
    with path.open("wb") as file:
        for _ in range(times):
            file.write(block)
    return block.count(b" ERROR ") * times


def upload(server: RgwServer, bucket: str, source: Path) -> None:
    client = server.endpoint.client()
    try:
        client.upload_file(str(source), bucket, f"plain/{source.name}")
    finally:
        client.close()


def s3a_jars(directory: Path) -> list[Path]:
    """hadoop-aws and what it needs, from Maven Central: the files of Maven's own cache, which are not copied."""
    pom, found = directory / "pom.xml", directory / "jars"
    pom.write_text(_POM.format(*_HADOOP_AWS.split(":")))
    command = ["mvn", "-q", "-B", "-f", str(pom), "dependency:build-classpath", f"-Dmdep.outputFile={found}"]
    try:
        subprocess.run(command, check=True)
    except FileNotFoundError:
        raise SystemExit("s3a needs jars from Maven Central: apt-get install maven") from None
    return [Path(name) for name in found.read_text().strip().split(":")]


def s3a_settings(endpoint_url: str, jars: list[Path]) -> dict[str, str]:
    """s3a, tuned as Spark's documents say for large reads."""
    return {
        "spark.driver.extraClassPath": ":".join(map(str, jars)),  # `spark.jars` would be copied
        "spark.hadoop.fs.s3a.endpoint": endpoint_url,
        "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.access.key": ACCESS_KEY,
        "spark.hadoop.fs.s3a.secret.key": SECRET_KEY,
        "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
        "spark.hadoop.fs.s3a.experimental.input.fadvise": "sequential",
    }
