"""A table that follows JSON lines, against Spark's own way from the same bytes: read text, parse JSON, write Parquet.

    python -m tests.benchmarks table [--gib 0.5] [--repetitions 3]

Both make the same columns with the same settings, in one session; the bytes of the store are in its local tier, and the
files beside it. Each run of ours makes a new table from the start.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.benchmarks.measuring import GIB, seconds
from tests.benchmarks.spark.session import session
from tests.servers.iceberg_jar import DONE, JAR
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


def main(words: list[str]) -> None:
    """Print a table in Markdown."""
    parser = argparse.ArgumentParser(prog=f"python -m tests.benchmarks {NAME}")
    parser.add_argument("--gib", type=float, default=0.25, help="of JSON lines (0.25)")
    parser.add_argument("--repetitions", type=int, default=3)
    chosen = parser.parse_args(words)
    directory = Path(tempfile.mkdtemp(prefix="tierfs-bench-"))
    try:
        print(bench_table(directory, int(chosen.gib * GIB), chosen.repetitions))
    finally:
        shutil.rmtree(directory)


def bench_table(directory: Path, size_bytes: int, repetitions: int) -> str:
    """Measure in turn; the first round of each is left out, as it compiles."""
    files = _write(directory / "files", size_bytes)
    init_store(directory / "store")
    settings = {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.catalog.lake.type": "hadoop",
        "spark.sql.catalog.lake.warehouse": str(directory / "warehouse"),
        **({"spark.jars": str(JAR)} if DONE.exists() else {}),
    }
    with app.open_store(directory / "store") as store, session(directory, settings) as spark:
        for file in files:
            with file.open("rb") as source:
                fill(store.engine, f"logs/{file.name}", iter(partial(source.read, 4 << 20), b""))
        subjects: dict[str, Callable[[int], None]] = {
            "Spark: text, JSON, Parquet": lambda number: _plain(spark, directory, number),
            "tierfs, Parquet": lambda number: _follow(
                spark, store, lambda name: ParquetTable(spark, str(directory / f"{name}{number}"))
            ),
        }
        if DONE.exists():
            subjects["tierfs, Iceberg"] = lambda number: _follow(
                spark, store, lambda name: IcebergTable(spark, f"lake.logs.{name}{number}")
            )
        taken: dict[str, list[float]] = {name: [] for name in subjects}
        for number in range(repetitions + 1):
            for name, run in subjects.items():
                taken_s = seconds(lambda run=run, number=number: run(number))  # type: ignore[misc]
                if number:
                    taken[name].append(taken_s)
    first = median(next(iter(taken.values())))
    size_mb = sum(file.stat().st_size for file in files) / 1e6
    lines = [f"### Table of {size_mb:.0f} MB of JSON lines", "", "| subject | s (min, median, max) | MB/s | ratio |"]
    lines.append("|---|---|---|---|")
    for name, each in taken.items():
        shown = ", ".join(f"{value:.2f}" for value in (min(each), median(each), max(each)))
        lines.append(f"| {name} | {shown} | {size_mb / median(each):.0f} | {first / median(each):.2f} |")
    return "\n".join(lines) + "\n"


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


def _plain(spark: SparkSession, directory: Path, number: int) -> None:
    spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "_corrupt"}
    lines = spark.read.text(str(directory / "files"))
    rows = lines.select(F.from_json("value", f"{_SCHEMA}, _corrupt string", options).alias("row"))
    good = rows.where(F.col("row._corrupt").isNull()).select("row.*").drop("_corrupt")
    good.write.option("compression", "zstd").parquet(str(directory / f"plain{number}"))


def _follow(spark: SparkSession, store: Store, table: Callable[[str], FollowedTable]) -> None:
    what = TableWanted(("logs",), TableRows.JSON, schema=_SCHEMA)
    with TableJob(spark, store, what, table("web"), table("web_bad")) as follower:
        follower.freeze()
        while follower.round() is not None:
            pass
