"""Spark counts the lines of cold segments in one session: `count()` of s3a, of a mount's path, by name.

One segment of 300 MB, and 10,000 small ones. By name all columns are made, because Spark does not name to a Python
source those that it uses; schemas name fewer. CPU times are those of Spark's JVM and of its Python workers, per read:
a busy machine changes them less than the time a read takes.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

from pyspark.sql import DataFrame, SparkSession

from tests import verbs
from tests.benchmarks.measuring import cpu_below, cpu_seconds, heat, parent_of, seconds, store_served
from tests.benchmarks.spark.reading import NAME, s3a_jars, s3a_settings, upload, write_lines
from tests.benchmarks.spark.session import session
from tests.benchmarks.spark.small import SEGMENTS, write_small_files
from tests.servers.rgw import RgwServer
from tests.verbs import fill
from tierfs.app import store as app

_SIZE_BYTES = 300_000_000
_HOT_BYTES = 1 << 29
_UPLOADS = 16
_SMALL = "small"

Frame = Callable[[], DataFrame]


@dataclass(frozen=True)
class _Read:
    """One read of a subject."""

    taken_s: float
    jvm_s: float
    """CPU of the JVM."""
    workers_s: float
    """CPU of its Python processes."""


def bench_spark_counting(path: Path, server: RgwServer, bucket: str, repetitions: int) -> str:
    """A table. `path`: a store over this bucket."""
    source, mnt = path.parent / "counted.log", path.parent / "mnt"
    write_lines(source, _SIZE_BYTES)
    with source.open("rb") as file:
        count = sum(1 for _ in file)
    with app.open_store(path) as store:
        with source.open("rb") as file:
            fill(store.engine, NAME, iter(partial(file.read, 4 << 20), b""))
        verbs.offload(store, NAME)
        verbs.evict(store, NAME, force=True)
    upload(server, bucket, source)
    with _session(path.parent, server) as spark:
        subjects = {
            "text, s3a": _measured(lambda: spark.read.text(f"s3a://{bucket}/plain/{source.name}"), count),
            "text, the path on a mount": _by_path(spark, path, mnt, NAME, count),
            "tierfs, by name": _measured(lambda: _named(spark, path, NAME), count),
            "tierfs, by name, `value`": _measured(lambda: _named(spark, path, NAME, "value"), count),
            "tierfs, by name, `segment`": _measured(lambda: _named(spark, path, NAME, "segment"), count),
        }
        title = f"Spark counts lines, S3 tier (Ceph RGW), {_SIZE_BYTES // 10**6} MB"
        return _compared(title, repetitions, subjects)


def bench_spark_counting_small(path: Path, server: RgwServer, bucket: str, repetitions: int) -> str:
    """A table of 10,000 small cold segments. `path`: a store over this bucket."""
    files, mnt = path.parent / "small-files", path.parent / "mnt"
    write_small_files(files)
    count = sum(file.read_bytes().count(b"\n") for file in files.rglob("s*"))
    for words in (("ingest", str(files), "--into", _SMALL, "--seal"), ("offload", _SMALL), ("evict", _SMALL)):
        subprocess.run([sys.executable, "-m", "tierfs", "-q", "--store", str(path), *words], check=True)
    _upload_all(server, bucket, files)
    with _session(path.parent, server) as spark:

        def text(root: str) -> DataFrame:
            return spark.read.text(root, recursiveFileLookup=True)

        subjects = {
            "text, s3a": _measured(lambda: text(f"s3a://{bucket}/{_SMALL}/"), count),
            "text, the path on a mount": _by_path(spark, path, mnt, _SMALL, count),
            "tierfs, by name": _measured(lambda: _named(spark, path, _SMALL), count),
        }
        return _compared(f"Spark counts lines of {SEGMENTS:,} segments, S3 tier (Ceph RGW)", repetitions, subjects)


@contextmanager
def _session(directory: Path, server: RgwServer) -> Iterator[SparkSession]:
    with session(directory, s3a_settings(server.endpoint_url, s3a_jars(directory))) as spark:
        yield spark


def _upload_all(server: RgwServer, bucket: str, files: Path) -> None:
    with closing(server.endpoint.client()) as client, ThreadPoolExecutor(_UPLOADS) as pool:

        def put(file: Path) -> None:
            client.put_object(Bucket=bucket, Key=f"{_SMALL}/{file.relative_to(files)}", Body=file.read_bytes())

        list(pool.map(put, files.rglob("s*")))


def _named(spark: SparkSession, path: Path, name: str, column: str | None = None) -> DataFrame:
    source = spark.read.format("tierfs").option("store", str(path)).option("recursiveFileLookup", "true")
    return (source if column is None else source.schema(f"{column} string")).load(name)


def _by_path(spark: SparkSession, path: Path, mnt: Path, name: str, count: int) -> Callable[[], _Read]:
    """Measure a read through a mount, which is a new one each time."""
    read = _measured(lambda: spark.read.text(str(mnt / name), recursiveFileLookup=True), count)

    def measure() -> _Read:
        with store_served(path, mnt):
            return read()

    return measure


def _measured(frame: Frame, count: int) -> Callable[[], _Read]:
    """Measure to plan and count a frame; the count must be right."""

    def measure() -> _Read:
        jvm = _jvm()
        found: list[int] = []
        heat(_HOT_BYTES)
        before = cpu_seconds(jvm), cpu_below(jvm)
        taken_s = seconds(lambda: found.append(frame().count()))
        assert found == [count], f"{found} lines instead of {count}"
        return _Read(taken_s, cpu_seconds(jvm) - before[0], cpu_below(jvm) - before[1])

    return measure


def _jvm() -> int:
    """Return the id of the process that PySpark started for its session."""
    own = (each for each in Path("/proc").iterdir() if each.name.isdecimal() and parent_of(each) == os.getpid())
    return next(int(each.name) for each in own if b"SparkSubmit" in (each / "cmdline").read_bytes())


def _compared(title: str, repetitions: int, subjects: Mapping[str, Callable[[], _Read]]) -> str:
    """Measure subjects in turn, and tell in Markdown how near each comes to the first."""
    reads: dict[str, list[_Read]] = {name: [] for name in subjects}
    for repetition in range(repetitions + 1):
        for name, measure in subjects.items():
            read = measure()
            if repetition:  # the first of a session is slow: it compiles, and starts workers
                reads[name].append(read)
    limit = median(read.taken_s for read in reads[next(iter(subjects))])
    lines = [
        *(f"### {title}", ""),
        "| subject | s (min, median, max) | rate by the first's | CPU of the JVM, s | of Python workers, s |",
        "|---|---|---|---|---|",
    ]
    for name, found in reads.items():
        taken = [read.taken_s for read in found]
        shown = ", ".join(f"{each:.2f}" for each in (min(taken), median(taken), max(taken)))
        cpu = [median(read.jvm_s for read in found), median(read.workers_s for read in found)]
        lines.append(f"| {name} | {shown} | {limit / median(taken):.2f} | {cpu[0]:.2f} | {cpu[1]:.2f} |")
    return "\n".join(lines) + "\n"
