"""Spark over 10,000 small segments, local and sealed: planned, read by name beside the same files as text, and the CPU
time that tierfs costs in the Python processes of a new session."""

from __future__ import annotations

import json
import pickle
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tests import spark_processes
from tests.benchmarks.measuring import compared, seconds
from tests.benchmarks.spark.session import session
from tierfs.app.setup.create import init_store
from tierfs.pipeline.spark.source import TierfsDataSource

SEGMENTS = 10_000
_SEGMENTS_PER_DIRECTORY = 100
_LINES = 29
"""Of 62 bytes: 1.8 KB a segment."""


def bench_spark_small(directory: Path, repetitions: int) -> str:
    """Markdown: three parts, of one run."""
    path, files = directory / "small", directory / "files"
    size_bytes = write_small_files(files)
    init_store(path, None)
    ingest = [sys.executable, "-m", "tierfs", "-q", "--store", str(path), "ingest", str(files), "--into", "d"]
    subprocess.run(ingest, check=True)
    parts = [_processes(directory, path, repetitions), _planned(path, repetitions)]
    with session(directory, {}) as spark:

        def text() -> DataFrame:
            return spark.read.text(str(files), recursiveFileLookup=True)

        def by_name() -> DataFrame:
            source = spark.read.format("tierfs").option("store", str(path)).option("recursiveFileLookup", "true")
            return source.schema("value string").load("d")

        kept = by_name()
        subjects: dict[str, Callable[[], float]] = {
            "text, local files": lambda: _counted(text),
            "tierfs, lines by name": lambda: _counted(by_name),
            "the same frame again": lambda: _counted(lambda: kept),
        }
        for measure in subjects.values():
            measure()  # starts the Python workers, and plans the frame that is kept
        parts.append(compared(f"Spark counts lines of {SEGMENTS:,} segments", size_bytes, repetitions, subjects))
    return "\n".join(parts)


def write_small_files(files: Path) -> int:
    """Files of lines, one of them in each with ERROR; returns their bytes."""
    chosen = random.Random(11)
    size_bytes = 0
    for number in range(SEGMENTS):
        lines = [f"2031-01-30T12:00:{line:02d} INFO web 10.0.0.1 GET /{chosen.random():.16f}" for line in range(_LINES)]
        lines[0] = lines[0].replace(" INFO ", " ERROR ")
        directory = files / f"d{number // _SEGMENTS_PER_DIRECTORY:03d}"
        directory.mkdir(parents=True, exist_ok=True)
        size_bytes += (directory / f"s{number:05d}").write_text("\n".join(lines) + "\n")
    return size_bytes


def _processes(directory: Path, path: Path, repetitions: int) -> str:
    """CPU seconds for the first row of one segment, beside what each process of Spark imports itself."""
    given, source, planned = (directory / name for name in ("options", "source", "planned"))
    given.write_text(json.dumps({"store": str(path), "path": "d/d000/s00000"}))
    sums = []
    for _ in range(repetitions + 1):
        each = [
            spark_processes.run("schema", given, source),
            spark_processes.run("plan", source, planned),
            spark_processes.run("task", planned, directory / "rows"),
        ]
        sums.append([one.cpu_s for one in each])
    schema, plan, task = (median(column) for column in zip(*sums[1:], strict=True))  # the first one compiles
    return (
        f"### The first row of a small segment in a new session\n\nCPU of tierfs beside Spark's own: schema "
        f"{schema:.2f} s, plan {plan:.2f} s, task {task:.2f} s; together {schema + plan + task:.2f} s\n"
    )


def _planned(path: Path, repetitions: int) -> str:
    source = TierfsDataSource({"store": str(path), "path": "d", "recursiveFileLookup": "true"})
    looks, plans, pickles = list[float](), list[float](), list[float]()
    for _ in range(repetitions):
        began = time.perf_counter()
        schema = source.schema()
        looked = time.perf_counter()
        partitions = source.reader(schema).partitions()
        planned = time.perf_counter()
        pickled = [pickle.dumps(one) for one in partitions]
        looks.append(looked - began)
        plans.append(planned - looked)
        pickles.append(time.perf_counter() - planned)
    return (
        f"### Planning {SEGMENTS:,} segments for Spark\n\nlooked at by `load` in {median(looks):.2f} s, planned in "
        f"{median(plans):.2f} s, pickled in {median(pickles):.2f} s: {len(pickled)} partitions, "
        f"{sum(map(len, pickled)) / 1e6:.1f} MB\n"
    )


def _counted(frame: Callable[[], DataFrame]) -> float:
    """Seconds to plan, read and filter; the count must be right."""
    found: list[int] = []
    taken = seconds(lambda: found.append(frame().where(F.col("value").contains(" ERROR ")).count()))
    assert found == [SEGMENTS], f"{found} lines instead of {SEGMENTS}"
    return taken
