"""Spark reads segments under a mount by path, and computes what plain Python does from the same bytes."""

from __future__ import annotations

import io
import os
import threading
import time
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from py4j.protocol import Py4JJavaError
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.mount.conftest import Mount, append
from tests.mount.waiting import eventually
from tests.pipeline.spark.reading import lines_of, make_cold, sums_by_path, text, truth
from tierfs.app import store
from tierfs.base.words.names import hadoop_warning
from tierfs.base.words.types import ROOT_DIRECTORY
from tierfs.engine.metadata import policies

pytestmark = [pytest.mark.mount, pytest.mark.spark, pytest.mark.timeout(420, method="thread")]

MANY = 9000
"""Lines of about 400 kB: more splits than there are threads."""

GO_S = 180


def fill(store: store.Store, sources: dict[str, bytes], chunk_bytes: int) -> None:
    """One sealed segment for each source; every second one is cold."""
    with store.metadata.write() as txn:
        policies.put(txn, ROOT_DIRECTORY, {"chunk_bytes": str(chunk_bytes), "object_bytes": str(10 * chunk_bytes)})
    for number, (name, data) in enumerate(sources.items()):
        append(store, name, data, seal=True)
        if number % 2:
            make_cold(store, name)


def parquet(first: int) -> bytes:
    """7,000 rows, from a number on, in groups that can be split."""
    sink = io.BytesIO()
    table = pyarrow.table({"id": range(first, first + 7000), "word": [os.urandom(20).hex() for _ in range(7000)]})
    pyarrow.parquet.write_table(table, sink, compression="none", row_group_size=1500)
    return sink.getvalue()


def sums_of(data: bytes) -> tuple[int, int]:
    """The sums of a Parquet segment's numbers and of its words' CRC32."""
    table = pyarrow.parquet.read_table(io.BytesIO(data)).to_pydict()
    return sum(table["id"]), sum(zlib.crc32(word.encode()) for word in table["word"])


def test_directories_globs_and_formats(store: store.Store, mount: Mount, spark: SparkSession) -> None:
    """Lines are read forward from each split, and a Parquet segment from its end."""
    days = ("logs/2031-01-30", "logs/2031-01-31", "logs/2031-02-01", "logs/2031-02-02")
    old = ("logs/old/2030", "logs/old/29")
    sources = {name: text(number, 500 + number) for number, name in enumerate((*days, *old))}
    sources |= {"logs/old/2030": text(1, MANY), "logs/old/29": text(2, MANY)}
    tables = {f"events/day={day}/part": parquet(7000 * day) for day in range(4)}
    fill(store, sources | tables, 100_000)
    mnt = mount("xattr").path

    def local() -> list[int]:
        return [int(os.getxattr(mnt / name, "user.tierfs.local_bytes")) for name in sources | tables]

    def found(path: str, **options: bool) -> tuple[str, ...]:
        """The segments whose lines are those of the table."""
        table = sums_by_path(spark.read.text(f"{mnt}/{path}", **options), mnt)  # type: ignore[arg-type]
        assert table == {name: truth(sources[name]) for name in table}
        return tuple(sorted(table))

    before = local()
    assert [bool(size) for size in before] == [True, False] * 5
    assert spark.read.text(f"{mnt}/logs/old").rdd.getNumPartitions() > 4, "no segment was split"
    assert found("logs") == days
    assert found("logs", recursiveFileLookup=True) == (*days, *old)
    assert found("logs/2031-{01-3[1-9],02-01}") == days[1:3]
    with pytest.raises(PySparkException, match="PATH_NOT_FOUND"):
        found("logs/2032-*")
    events = spark.read.parquet(f"{mnt}/events")
    assert events.rdd.getNumPartitions() > 4
    by_day = events.selectExpr("day", "id", "crc32(word) AS crc").groupBy("day").sum("id", "crc").collect()
    assert sorted(map(tuple, by_day)) == [(day, *sums_of(data)) for day, data in enumerate(tables.values())]
    # zlib is of the standard library, so that the workers need no module of the tests.
    crcs = spark.read.text(f"{mnt}/logs/old").rdd.map(lambda row: zlib.crc32(row.value.encode())).sum()
    assert crcs == sum(truth(sources[name])[1] for name in old)
    assert local() == before


LINE_ENDS = {
    "crlf": text(1, 6, "\r\n"),
    "cr": text(2, 6, "\r"),
    "mixed": text(3, 5, "\r\n") + b"\n\n" + text(4, 5) + text(5, 5, "\r") + b"\r\n",
    "no_end": text(6, 6).rstrip(b"\n"),
    "empty": b"",
    "only_ends": b"\r\n" * 70,
    "multi_byte": "日誌𝄞ü\n".encode() * 20,
    "one_line": "größe".encode() * 30,
}


def test_line_ends_at_every_place(store: store.Store, mount: Mount, spark: SparkSession) -> None:
    """Chunks of 7 bytes end within characters and CRLF, and splits of 61 bytes begin there."""
    sources = {f"ends/{name}": data for name, data in LINE_ENDS.items()}
    fill(store, sources, 7)
    session = spark.newSession()
    session.conf.set("spark.sql.files.openCostInBytes", "0")
    session.conf.set("spark.sql.leafNodeDefaultParallelism", "1")
    session.conf.set("spark.sql.files.maxPartitionBytes", "61b")
    mnt = mount().path
    table = session.read.text(str(mnt / "ends"))
    assert table.rdd.getNumPartitions() > 30
    assert sums_by_path(table.coalesce(2), mnt) == {name: truth(data) for name, data in sources.items() if data}


NAMES = ("xy", "a b", "%20", "größe", "a,b", "k=v", "a#b+c", "_x", ".x", "a:b", "x*", "x?", "x[1]", "x{1}", "x\\y")


def test_names_hadoop_cannot_read_are_those_tierfs_warns_of(tmp_path: Path, spark: SparkSession) -> None:
    """They are Hadoop's, of any file."""
    for name in NAMES:
        (tmp_path / name).write_text(name)

    def is_readable(name: str) -> bool:
        try:
            return [line.value for line in spark.read.text(str(tmp_path / name)).collect()] == [name]
        except (PySparkException, Py4JJavaError):
            return False

    assert [name for name in NAMES if is_readable(name)] == [name for name in NAMES if hadoop_warning(name) is None]
    with pytest.raises(Py4JJavaError, match="Relative path in absolute URI"):
        spark.read.text(str(tmp_path)).collect()
    (tmp_path / "a:b").unlink()
    assert {line.value for line in spark.read.text(str(tmp_path)).collect()} == set(NAMES) - {"_x", ".x", "a:b"}
    assert [line.value for line in spark.read.text(f"{tmp_path}/x\\[1\\]").collect()] == ["x[1]"]


def test_an_append_while_a_job_runs(store: store.Store, mount: Mount, spark: SparkSession, tmp_path: Path) -> None:
    """The job gets what was planned, and the line that crosses, or begins at, the planned end; the next gets all.

    Hadoop reads to a line's end, and the split after would leave out its first line: see docs/spark-options.md.
    """
    full = text(1, MANY) + text(2, MANY)
    planned = {"at an end": len(text(1, MANY)), "within a line": len(text(1, MANY)) - 5}
    for name, length in planned.items():
        append(store, f"live/{name}", full[: length // 2])
        make_cold(store, f"live/{name}")
        append(store, f"live/{name}", full[length // 2 : length])
    signs = str(tmp_path)

    def summed(rows: Iterable[Any]) -> Iterator[tuple[str, int]]:
        """In each task: tell that it began, and continue when released; the file and sum of each line."""
        context = TaskContext.get()
        assert context is not None
        Path(signs, f"began{context.partitionId()}").touch()
        deadline_s = time.monotonic() + GO_S
        while not Path(signs, "go").exists():
            assert time.monotonic() < deadline_s, "never told to go on"
            time.sleep(0.01)
        for name, line in rows:
            yield name, zlib.crc32(line.encode())

    path = mount().path / "live"
    table = spark.read.text(str(path))
    assert table.rdd.getNumPartitions() > 4
    lines: list[tuple[str, int]] = []
    job = table.selectExpr("_metadata.file_name", "value").rdd.mapPartitions(summed)
    thread = threading.Thread(target=lambda: lines.extend(job.collect()))
    thread.start()
    try:
        assert eventually(lambda: len(list(tmp_path.glob("began*"))) == 2, GO_S)
        for name, length in planned.items():
            append(store, f"live/{name}", full[length:])
            assert eventually(lambda name=name: (path / name).stat().st_size == len(full))  # type: ignore[misc]
    finally:
        (tmp_path / "go").touch()
        thread.join()
    crossing = {name: truth(full[: full.index(b"\n", length) + 1]) for name, length in planned.items()}
    for name in planned:
        mine = [crc for file, crc in lines if file.replace("%20", " ") == name]
        assert (len(mine), sum(mine)) == crossing[name], name
    assert table.count() == sum(count for count, _ in crossing.values())
    assert spark.read.text(str(path)).count() == 2 * len(lines_of(full))
