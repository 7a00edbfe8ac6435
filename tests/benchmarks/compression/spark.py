"""A question about Spark: lines counted in compressed and in other cold segments, by name and by path."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.benchmarks.compression.material import OFF, ZSTD, TextFile
from tests.benchmarks.compression.site import TIERFS, Readers
from tests.benchmarks.measuring import heat, seconds, store_served
from tests.benchmarks.reading.figures import RATE, Sample
from tests.benchmarks.reading.subjects import Question, Table

SPARK = 5
"""Number of the question."""
BY_NAME, BY_PATH = "by name", "by path"
_WANTED = '" 500 '
"""Of a line of a log: an answer that failed."""


def counted_lines(spark: SparkSession, readers: Readers, file: TextFile) -> Question:
    """Lines with an error; each way is tried once before it is measured, as the first run of a session is slow."""
    wanted = file.path.read_bytes().count(_WANTED.encode())

    def by_name(path: Path) -> float:
        source = spark.read.format("tierfs").option("store", str(path)).schema("value string")
        return _seconds(lambda: source.load(file.name), wanted)

    def by_path(path: Path) -> float:
        mountpoint = readers.bench.mountpoint
        with store_served(path, mountpoint):
            return _seconds(lambda: spark.read.text(str(mountpoint / file.name)), wanted)

    def run(way: Callable[[Path], float], name: str, _: int) -> Sample:
        return {RATE: file.size_bytes / way(readers.stores[name].path) / 1e6}

    parts = {}
    for title, way in ((BY_NAME, by_name), (BY_PATH, by_path)):
        way(readers.stores[OFF].path)
        parts[title] = Table(TIERFS[OFF], {TIERFS[name]: partial(run, way, name) for name in (OFF, ZSTD)})
    method = "One session of two threads for both stores; a fresh mount for each read by path. HTTP on each link."
    return Question(SPARK, "Spark counts lines of a compressed log", method, parts)


def _seconds(frame: Callable[[], DataFrame], wanted: int) -> float:
    """To plan, read and filter; the count must be right."""
    heat()
    found: list[int] = []
    taken = seconds(lambda: found.append(frame().where(F.col("value").contains(_WANTED)).count()))
    assert found == [wanted], f"{found} lines instead of {wanted}"
    return taken
