"""Spark reads segments under a mount by path, and computes what plain Python does from the same bytes."""

from __future__ import annotations

import csv
import functools
import io
import json
import os
import random
import zlib
from collections.abc import Callable
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests import verbs
from tests.mount.conftest import Mount, append
from tests.mount.waiting import eventually
from tests.spark.reading import WORDS, make_cold, sums_by_path, text, truth
from tierfs.app import store
from tierfs.metadata import policies
from tierfs.names import hadoop_warning
from tierfs.types import ROOT_DIRECTORY

pytestmark = [pytest.mark.mount, pytest.mark.spark, pytest.mark.timeout(420, method="thread")]

SCHEMA = "id LONG, amount LONG, word STRING"

Rows = list[tuple[int, int, str]]
Sums = tuple[int, int, int]
"""Number of rows, sum of amounts, sum of the rows' CRC32: one lost, double or changed row shows."""


@functools.cache
def rows(seed: int) -> Rows:
    """Rows of the source `seed`, about 400 kB in every format."""
    chosen = random.Random(seed)
    words = (*WORDS, 'said "so"')
    return [
        (number, chosen.randrange(-(1 << 40), 1 << 40), f"{chosen.choice(words)} {chosen.randbytes(12).hex()}")
        for number in range(7000 + seed)
    ]


def line_of(number: int, amount: int, word: str) -> str:
    """A row in one string, the same in every format."""
    return f"{number} {amount} {word}"


def as_text(of: Rows) -> bytes:
    return "".join(line_of(*row) + "\n" for row in of).encode()


def as_csv(of: Rows) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows([("id", "amount", "word"), *of])
    return text.getvalue().encode()


def as_json(of: Rows) -> bytes:
    rows = ({"id": number, "amount": amount, "word": word} for number, amount, word in of)
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def as_parquet(of: Rows) -> bytes:
    ids, amounts, words = zip(*of, strict=True)
    sink = io.BytesIO()
    # Not compressed: random words have about the same size everywhere; row groups can be split.
    table = pyarrow.table({"id": ids, "amount": amounts, "word": words})
    pyarrow.parquet.write_table(table, sink, compression="none", row_group_size=1500)
    return sink.getvalue()


@functools.cache
def sums_of(seed: int) -> Sums:
    """The sums of a source, in any format."""
    lines = [line_of(*row).encode() for row in rows(seed)]
    return len(lines), sum(amount for _, amount, _ in rows(seed)), sum(map(zlib.crc32, lines))


def spark_sums(table: DataFrame) -> dict[str, Sums]:
    """Return sums by the name of a row's file."""
    line = F.concat_ws(" ", *(F.col(name).cast("string") for name in table.columns))
    amount = F.split(line, " ", 3)[1].cast("long")
    file_name = F.col("_metadata.file_name").alias("name")
    found = table.groupBy(file_name).agg(F.count("*"), F.sum(amount), F.sum(F.crc32(line))).collect()
    return {name: tuple(sums) for name, *sums in found}


FORMATS: dict[str, tuple[Callable[[Rows], bytes], Callable[..., DataFrame]]] = {
    "text": (as_text, lambda read, paths: read.text(paths)),
    "csv": (as_csv, lambda read, paths: read.csv(paths, schema=SCHEMA, header=True, escape='"', mode="FAILFAST")),
    "json": (as_json, lambda read, paths: read.json(paths, schema=SCHEMA, mode="FAILFAST")),
    "parquet": (as_parquet, lambda read, paths: read.parquet(*paths)),
}


def fill(store: store.Store, sources: dict[str, bytes]) -> None:
    """One sealed segment for each source, in chunks of both sides of a split; every second one is cold."""
    with store.metadata.write() as txn:
        policies.put(txn, ROOT_DIRECTORY, {"chunk_bytes": "100000"})
    for number, (name, data) in enumerate(sources.items()):
        append(store, name, data, seal=True)
        if number % 2:
            make_cold(store, name)


def assert_half_is_cold(mnt: Path, sources: dict[str, bytes]) -> None:
    """Nothing is local of every second segment, everything of the others."""
    for number, (name, data) in enumerate(sources.items()):
        local = int(os.getxattr(mnt / name, "user.tierfs.local_bytes"))
        assert local == (0 if number % 2 else len(data)), name


def test_every_format(store: store.Store, mount: Mount, spark: SparkSession) -> None:
    sources = {f"{kind}/{number}": FORMATS[kind][0](rows(number)) for kind in FORMATS for number in range(4)}
    assert all(300_000 < len(data) < 700_000 for data in sources.values())
    fill(store, sources)
    mnt = mount("xattr").path
    assert_half_is_cold(mnt, sources)
    for kind, (_, read) in FORMATS.items():
        table = read(spark.read, [f"{mnt}/{kind}/{number}" for number in range(4)])
        assert table.rdd.getNumPartitions() > 4, "no segment was split"
        assert spark_sums(table) == {str(number): sums_of(number) for number in range(4)}, kind
    assert_half_is_cold(mnt, sources)


def test_directories_and_globs(store: store.Store, mount: Mount, spark: SparkSession) -> None:
    days, old = (
        ("logs/2031-01-30", "logs/2031-01-31", "logs/2031-02-01", "logs/2031-02-02"),
        ("logs/old/2030", "logs/old/29"),
    )
    names = (*days, *old, "events/day=3/part", "events/day=4/part")
    sources = {name: text(number, 500 + number) for number, name in enumerate(names)}
    fill(store, sources)
    mnt = mount("xattr").path
    assert_half_is_cold(mnt, sources)

    def found(path: str, **options: bool) -> tuple[str, ...]:
        """The segments whose lines are those of the table."""
        table = sums_by_path(spark.read.text(f"{mnt}/{path}", **options), mnt)  # type: ignore[arg-type]
        assert table == {name: truth(sources[name]) for name in table}
        return tuple(sorted(table))

    assert found("logs") == days
    assert found("logs", recursiveFileLookup=True) == (*days, *old)
    assert found("logs/2031-02-*") == days[2:]
    assert found("logs/2031-{01-3[1-9],02-01}") == days[1:3]
    assert found("*/old/20?0") == old[:1]
    with pytest.raises(PySparkException, match="PATH_NOT_FOUND"):
        found("logs/2032-*")
    by_day = spark.read.text(f"{mnt}/events").groupBy("day").count().collect()
    assert sorted(map(tuple, by_day)) == [(3, 506), (4, 507)], "a directory of a key and a value is a column"
    # zlib is of the standard library, so that the workers need no module of the tests.
    crcs = spark.read.text(f"{mnt}/logs/old").rdd.map(lambda row: zlib.crc32(row.value.encode())).sum()
    assert crcs == sum(truth(sources[name])[1] for name in old)


ENDS = {
    "crlf": text(1, 40, "\r\n"),
    "cr": text(2, 40, "\r"),
    "mixed": text(3, 20, "\r\n") + b"\n\n" + text(4, 20) + text(5, 20, "\r") + b"\r\n",
    "no_end": text(6, 40).rstrip(b"\n"),
    "empty": b"",
    "only_ends": b"\r\n" * 100,
    "multi_byte": "日誌𝄞ü\n".encode() * 100,
    "one_line": "größe".encode() * 200,
}


def test_line_ends_at_every_place(store: store.Store, mount: Mount, spark: SparkSession) -> None:
    """Chunks of 7 bytes end within characters and CRLF, and splits of 61 and 64 bytes begin there."""
    with store.metadata.write() as txn:
        policies.put(txn, ROOT_DIRECTORY, {"chunk_bytes": "7", "object_bytes": "70"})
    for name, data in ENDS.items():
        append(store, f"ends/{name}", data, seal=True)
    make_cold(store, *(f"ends/{name}" for name in list(ENDS)[::2]))
    mnt = mount("xattr").path
    session = spark.newSession()
    session.conf.set("spark.sql.files.openCostInBytes", "0")
    session.conf.set("spark.sql.leafNodeDefaultParallelism", "1")
    for size in ("61b", "64b"):
        session.conf.set("spark.sql.files.maxPartitionBytes", size)
        table = session.read.text(str(mnt / "ends"))
        assert table.rdd.getNumPartitions() > 100
        assert sums_by_path(table.coalesce(2), mnt) == {
            f"ends/{name}": truth(data) for name, data in ENDS.items() if data
        }


NAMES = ("xy", "a b", "%20", "größe", "a,b", "k=v", "a#b+c", "_x", ".x", "a:b", "x*", "x?", "x[1]", "x{1}", "x\\y")


def test_names_hadoop_cannot_read_are_those_tierfs_warns_of(
    store: store.Store, mount: Mount, spark: SparkSession
) -> None:
    for name in NAMES:
        append(store, f"names/{name}", name.encode(), seal=True)
    mnt = mount("xattr").path
    assert sorted(os.listdir(mnt / "names")) == sorted(NAMES)

    def is_readable(name: str) -> bool:
        try:
            return [line.value for line in spark.read.text(str(mnt / "names" / name)).collect()] == [name]
        except (PySparkException, Py4JJavaError):
            return False

    readable = [name for name in NAMES if is_readable(name)]
    assert readable == [name for name in NAMES if hadoop_warning(name) is None]
    with pytest.raises(Py4JJavaError, match="Relative path in absolute URI"):
        spark.read.text(str(mnt / "names")).collect()
    verbs.delete(store, "names/a:b", recursive=False)
    assert eventually(lambda: not (mnt / "names/a:b").exists())
    listed = {line.value for line in spark.read.text(str(mnt / "names")).collect()}
    assert listed == set(NAMES) - {"_x", ".x", "a:b"}
    assert [line.value for line in spark.read.text(f"{mnt}/names/x\\[1\\]").collect()] == ["x[1]"]
