"""A table that follows JSON lines, against Spark's own way from the same bytes: read text, parse JSON, write Parquet.

    python -m tests.benchmarks table [--gib 0.5] [--repetitions 3] [--format iceberg] [--cluster]

Both make the same columns with the same settings, in one session; the bytes of the store are in its local tier, and the
files beside it. Each run of ours makes a new table from the start. A first run of each, with few lines, compiles. With
`--cluster`, the tasks are in two executors of one core each, so that their memory is not the driver's.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from statistics import median

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.benchmarks.measuring import GIB, seconds
from tests.benchmarks.spark.session import session
from tests.servers.iceberg_jar import DONE, JAR
from tests.servers.spark_cluster import ROOT, SparkCluster
from tests.verbs import fill
from tierfs.app import store as app
from tierfs.app.setup.create import init_store
from tierfs.app.store import Store
from tierfs.pipeline.spark.jobs.table import TableJob, TableRows, TableWanted
from tierfs.pipeline.spark.tables.followed_table import FollowedTable
from tierfs.pipeline.spark.tables.iceberg_table import IcebergTable
from tierfs.pipeline.spark.tables.parquet_table import ParquetTable

NAME = "table"

_SCHEMA = "at timestamp, host string, status int, bytes long, path string, agent string"
_SEGMENTS = 4
_BLOCK_LINES = 20_000
_FORMATS = ("parquet", "iceberg", "delta")

# The bytes of the first run of each, and the time between two looks at memory.
_FEW_BYTES = 64 << 20
_LOOK_S = 0.5

# Words in the command lines of processes, and what these are.
_PROCESSES = {
    "CoarseGrainedExecutorBackend": "JVM of an executor",
    "pyspark.daemon": "Python of a task",
    "pyspark/daemon": "Python of a task",
    "SparkSubmit": "JVM of the driver",
}


def main(words: list[str]) -> None:
    """Print a table in Markdown."""
    parser = argparse.ArgumentParser(prog=f"python -m tests.benchmarks {NAME}")
    parser.add_argument("--gib", type=float, default=0.25, help="of JSON lines (0.25)")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--format", action="append", choices=_FORMATS, help="all that are there, unless it is given")
    parser.add_argument("--cluster", action="store_true", help="tasks in executors of their own")
    chosen = parser.parse_args(words)
    directory = Path(tempfile.mkdtemp(prefix="tierfs-bench-"))
    try:
        formats = chosen.format or [kind for kind in _FORMATS if kind != "iceberg" or DONE.exists()]
        print(bench_table(directory, int(chosen.gib * GIB), chosen.repetitions, formats, is_cluster=chosen.cluster))
    finally:
        shutil.rmtree(directory)


def bench_table(
    directory: Path, size_bytes: int, repetitions: int, formats: Sequence[str], *, is_cluster: bool = False
) -> str:
    """Measure in turn; the first round of each, which compiles, has few lines and is left out."""
    (directory / "files").mkdir()
    few = _write(directory / "files" / "few", _FEW_BYTES)
    files = _write(directory / "files" / "logs", size_bytes)
    init_store(directory / "store")
    settings = {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.catalog.lake.type": "hadoop",
        "spark.sql.catalog.lake.warehouse": str(directory / "warehouse"),
        **({"spark.jars": str(JAR)} if DONE.exists() else {}),
    }
    with ExitStack() as held:
        if is_cluster:
            cluster = held.enter_context(SparkCluster(directory / "cluster"))
            settings |= {"spark.master": cluster.master, "spark.executor.memory": "1g", "spark.driver.memory": "1g"}
            settings |= {"spark.executorEnv.PYTHONPATH": str(ROOT), "spark.driver.host": "127.0.0.1"}
        store = held.enter_context(app.open_store(directory / "store"))
        spark = held.enter_context(session(directory, settings))
        for file in [*few, *files]:
            with file.open("rb") as source:
                fill(store.engine, f"{file.parent.name}/{file.name}", iter(partial(source.read, 4 << 20), b""))
        subjects: dict[str, Callable[[str, int], None]] = {
            "Spark: text, JSON, Parquet": lambda lines, number: _plain(spark, directory, lines, number)
        }
        for kind in formats:
            subjects[f"tierfs, {kind}"] = lambda lines, number, kind=kind: _follow(  # type: ignore[misc]
                spark, store, lines, lambda name: _table(spark, directory, kind, f"{name}_{kind}_{number}")
            )
        taken: dict[str, list[float]] = {name: [] for name in subjects}
        peaks: dict[str, dict[str, int]] = {name: {} for name in subjects}
        for number in range(repetitions + 1):
            for name, run in subjects.items():
                with _watched(peaks[name]):
                    taken_s = seconds(partial(run, "logs" if number else "few", number))
                if number:
                    taken[name].append(taken_s)
                else:
                    peaks[name].clear()
    size_mb = sum(file.stat().st_size for file in files) / 1e6
    return _told(taken, peaks, size_mb)


def _told(taken: dict[str, list[float]], peaks: dict[str, dict[str, int]], size_mb: float) -> str:
    first = median(next(iter(taken.values())))
    lines = [f"### Table of {size_mb:.0f} MB of JSON lines", ""]
    lines += ["| subject | s (min, median, max) | MB/s | ratio | largest process of a kind, MiB |"]
    lines += ["|---|---|---|---|---|"]
    for name, each in taken.items():
        shown = ", ".join(f"{value:.2f}" for value in (min(each), median(each), max(each)))
        memory = ", ".join(f"{kind} {peak >> 20}" for kind, peak in sorted(peaks[name].items()))
        lines.append(f"| {name} | {shown} | {size_mb / median(each):.0f} | {first / median(each):.2f} | {memory} |")
    return "\n".join(lines) + "\n"


@contextmanager
def _watched(peaks: dict[str, int]) -> Iterator[None]:
    """Note the resident memory of the largest process of each kind, as long as the block lasts."""
    over = threading.Event()

    def look() -> None:
        while not over.wait(_LOOK_S):
            for path in Path("/proc").glob("[0-9]*"):
                with suppress(OSError, IndexError):  # it ended
                    line = (path / "cmdline").read_bytes().decode(errors="replace")
                    kinds = [kind for word, kind in _PROCESSES.items() if word in line]
                    if int(path.name) == os.getpid():
                        kinds = ["Python of the driver"]
                    status = (path / "status").read_text()
                    size_bytes = int(status.partition("VmRSS:")[2].split()[0]) * 1024
                    for kind in kinds[:1]:
                        peaks[kind] = max(peaks.get(kind, 0), size_bytes)

    looking = threading.Thread(target=look)
    looking.start()
    try:
        yield
    finally:
        over.set()
        looking.join()


def _table(spark: SparkSession, directory: Path, kind: str, name: str) -> FollowedTable:
    if kind == "iceberg":
        return IcebergTable(spark, f"lake.logs.{name}")
    if kind == "parquet":
        return ParquetTable(spark, str(directory / name))
    from tierfs.pipeline.spark.tables.delta_table import DeltaTable

    return DeltaTable(spark, str(directory / name))


def _write(directory: Path, size_bytes: int) -> list[Path]:
    directory.mkdir()
    files = [directory / f"{number}.log" for number in range(_SEGMENTS)]
    block = "".join(
        f'{{"at": "2031-01-30T12:{number // 60 % 60:02d}:{number % 60:02d}Z", "host": "web-{number % 40}", '
        f'"status": {200 if number % 17 else 404}, "bytes": {number * 7919 % 100_003}, "path": "/shop/item/{number}", '
        f'"agent": "Mozilla/5.0 (X11; Linux x86_64) Gecko/{number % 977}"}}\n'
        for number in range(_BLOCK_LINES)
    ).encode()
    for file in files:
        with file.open("wb") as sink:
            while sink.tell() < size_bytes // _SEGMENTS:
                sink.write(block)
    return files


def _plain(spark: SparkSession, directory: Path, lines: str, number: int) -> None:
    spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "_corrupt"}
    text = spark.read.text(str(directory / "files" / lines))
    rows = text.select(F.from_json("value", f"{_SCHEMA}, _corrupt string", options).alias("row"))
    good = rows.where(F.col("row._corrupt").isNull()).select("row.*").drop("_corrupt")
    good.write.option("compression", "zstd").parquet(str(directory / f"plain{number}"))


def _follow(spark: SparkSession, store: Store, lines: str, table: Callable[[str], FollowedTable]) -> None:
    what = TableWanted((lines,), TableRows.JSON, schema=_SCHEMA)
    with TableJob(spark, store, what, table("web"), table("web_bad")) as follower:
        follower.freeze()
        while follower.round() is not None:
            pass
