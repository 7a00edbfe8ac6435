"""Spark reads segments under a mount by path, and computes what plain Python does from the same bytes."""

from __future__ import annotations

import csv
import functools
import io
import json
import os
import random
import zlib
from collections.abc import Callable, Iterable
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
from tierfs.app import store
from tierfs.names import hadoop_warning

pytestmark = [pytest.mark.mount, pytest.mark.spark, pytest.mark.timeout(420, method="thread")]

SOURCE_BYTES = 2_000_000
SCHEMA = "id LONG, amount LONG, word STRING"
WORDS = ("tier", "größe", "log, or not", 'said "so"', "", "日誌", "x" * 40)

Rows = list[tuple[int, int, str]]
Sums = tuple[int, int, int]
"""Number of rows, sum of amounts, sum of the rows' CRC32: one lost, double or changed row shows."""


@functools.cache
def rows(seed: int) -> Rows:
    """Rows of the source `seed`, about SOURCE_BYTES in every format."""
    chosen = random.Random(seed)
    return [
        (number, chosen.randrange(-(1 << 40), 1 << 40), f"{chosen.choice(WORDS)} {chosen.randbytes(12).hex()}")
        for number in range(SOURCE_BYTES // 55 + seed)
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
    lines = (
        json.dumps({"id": number, "amount": amount, "word": word}, ensure_ascii=False) for number, amount, word in of
    )
    return "".join(line + "\n" for line in lines).encode()


def as_parquet(of: Rows) -> bytes:
    ids, amounts, words = zip(*of, strict=True)
    sink = io.BytesIO()
    # Not compressed: random words have about the same size everywhere; row groups can be split.
    table = pyarrow.table({"id": ids, "amount": amounts, "word": words})
    pyarrow.parquet.write_table(table, sink, compression="none", row_group_size=8000)
    return sink.getvalue()


def sums_of(lines: Iterable[str]) -> Sums:
    found = [(int(line.split(" ", 2)[1]), zlib.crc32(line.encode())) for line in lines]
    return len(found), sum(amount for amount, _ in found), sum(crc for _, crc in found)


def plain_text(data: bytes) -> Sums:
    return sums_of(data.decode().splitlines())


def plain_csv(data: bytes) -> Sums:
    found = csv.DictReader(io.StringIO(data.decode(), newline=""))
    return sums_of(line_of(int(row["id"]), int(row["amount"]), row["word"]) for row in found)


def plain_json(data: bytes) -> Sums:
    found = map(json.loads, data.decode().splitlines())
    return sums_of(line_of(row["id"], row["amount"], row["word"]) for row in found)


def plain_parquet(data: bytes) -> Sums:
    table = pyarrow.parquet.read_table(io.BytesIO(data))
    return sums_of(map(line_of, *(table[name].to_pylist() for name in ("id", "amount", "word"))))


def spark_text(spark: SparkSession, *paths: str) -> DataFrame:
    return spark.read.text(list(paths))


def spark_csv(spark: SparkSession, *paths: str) -> DataFrame:
    return spark.read.csv(list(paths), schema=SCHEMA, header=True, escape='"', mode="FAILFAST")


def spark_json(spark: SparkSession, *paths: str) -> DataFrame:
    return spark.read.json(list(paths), schema=SCHEMA, mode="FAILFAST")


def spark_parquet(spark: SparkSession, *paths: str) -> DataFrame:
    return spark.read.parquet(*paths)


def spark_sums(table: DataFrame) -> dict[str, Sums]:
    """Return sums by the name of a row's file."""
    line = F.concat_ws(" ", *(F.col(name).cast("string") for name in table.columns))
    amount = F.split(line, " ", 3)[1].cast("long")
    file_name = F.col("_metadata.file_name").alias("name")
    found = table.groupBy(file_name).agg(F.count("*"), F.sum(amount), F.sum(F.crc32(line))).collect()
    return {name: tuple(sums) for name, *sums in found}


FORMATS: dict[str, tuple[Callable[[Rows], bytes], Callable[[bytes], Sums], Callable[..., DataFrame]]] = {
    "text": (as_text, plain_text, spark_text),
    "csv": (as_csv, plain_csv, spark_csv),
    "json": (as_json, plain_json, spark_json),
    "parquet": (as_parquet, plain_parquet, spark_parquet),
}


def fill(store: store.Store, sources: dict[str, bytes]) -> None:
    """One sealed segment for each source; every second one is cold and has left the local disk."""
    for number, (name, data) in enumerate(sources.items()):
        append(store, name, data, seal=True)
        if number % 2:
            verbs.offload(store, name)
            verbs.evict(store, name)


def assert_half_is_cold(mnt: Path, sources: dict[str, bytes]) -> None:
    """Nothing is local of every second segment, everything of the others."""
    for number, (name, data) in enumerate(sources.items()):
        local = int(os.getxattr(mnt / name, "user.tierfs.local_bytes"))
        assert local == (0 if number % 2 else len(data)), name


@pytest.mark.parametrize("kind", FORMATS)
def test_every_format(kind: str, store: store.Store, mount: Mount, spark: SparkSession) -> None:
    as_bytes, plain, read = FORMATS[kind]
    sources = {f"{kind}/{number}": as_bytes(rows(number)) for number in range(4)}
    assert all(SOURCE_BYTES * 0.8 < len(data) < SOURCE_BYTES * 1.8 for data in sources.values())
    fill(store, sources)
    mnt = mount("xattr").path
    assert_half_is_cold(mnt, sources)
    table = read(spark, *(str(mnt / name) for name in sources))
    assert table.rdd.getNumPartitions() > len(sources), "no segment was split"
    assert spark_sums(table) == {Path(name).name: plain(data) for name, data in sources.items()}
    assert_half_is_cold(mnt, sources)


@pytest.fixture
def logs(store: store.Store) -> dict[str, bytes]:
    """A directory of text segments, and a directory in it."""
    names = ("logs/2031-01-30", "logs/2031-01-31", "logs/2031-02-01", "logs/2031-02-02", "logs/old/2030", "logs/old/29")
    sources = {name: as_text(rows(number)) for number, name in enumerate(names)}
    fill(store, sources)
    return sources


def plain_sums(sources: dict[str, bytes], *names: str) -> dict[str, Sums]:
    return {Path(name).name: plain_text(sources[name]) for name in names}


def test_a_directory(logs: dict[str, bytes], mount: Mount, spark: SparkSession) -> None:
    mnt = mount("xattr").path
    assert_half_is_cold(mnt, logs)
    top = [name for name in logs if name.count("/") == 1]
    assert spark_sums(spark_text(spark, str(mnt / "logs"))) == plain_sums(logs, *top)
    deep = spark.read.text(str(mnt / "logs"), recursiveFileLookup=True)
    assert spark_sums(deep) == plain_sums(logs, *logs)


def test_globs(logs: dict[str, bytes], mount: Mount, spark: SparkSession) -> None:
    mnt = mount("xattr").path
    assert_half_is_cold(mnt, logs)
    february = spark_sums(spark_text(spark, f"{mnt}/logs/2031-02-*"))
    assert february == plain_sums(logs, "logs/2031-02-01", "logs/2031-02-02")
    turn = spark_sums(spark_text(spark, f"{mnt}/logs/2031-{{01-3[1-9],02-01}}"))
    assert turn == plain_sums(logs, "logs/2031-01-31", "logs/2031-02-01")
    nested = spark_sums(spark_text(spark, f"{mnt}/*/old/20?0"))
    assert nested == plain_sums(logs, "logs/old/2030")
    with pytest.raises(PySparkException, match="PATH_NOT_FOUND"):
        spark_text(spark, f"{mnt}/logs/2032-*")


def test_directories_of_a_key_and_a_value_are_a_column(store: store.Store, mount: Mount, spark: SparkSession) -> None:
    sources = {f"events/day={number}/part": as_json(rows(number)) for number in range(2)}
    fill(store, sources)
    mnt = mount("xattr").path
    assert_half_is_cold(mnt, sources)
    table = spark_json(spark, str(mnt / "events"))
    counted = {day: count for day, count in table.groupBy("day").count().collect()}
    assert counted == {number: len(rows(number)) for number in range(2)}


@pytest.mark.parametrize("cut_bytes", [0, 5], ids=["at a line's end", "within a line"])
def test_an_unsealed_segment(cut_bytes: int, store: store.Store, mount: Mount, spark: SparkSession) -> None:
    """A table has the lines that begin in, or just after, what was there when it was planned; the next has all.

    Hadoop reads to a line's end, and the split after would leave out its first line: see docs/spark.md.
    """
    old, full = as_text(rows(0)), as_text(rows(0) + rows(1))
    length = len(as_text(rows(0) + rows(1)[:100])) - cut_bytes
    append(store, "live", old)
    verbs.offload(store, "live")
    verbs.evict(store, "live")
    append(store, "live", full[len(old) : length])
    path = str(mount("xattr").path / "live")
    assert os.stat(path).st_size == length
    assert int(os.getxattr(path, "user.tierfs.cold_bytes")) == len(old)
    assert int(os.getxattr(path, "user.tierfs.local_bytes")) == length - len(old)
    assert os.getxattr(path, "user.tierfs.sealed") == b"0"
    planned = spark_text(spark, path)
    assert spark_sums(planned) == {"live": plain_text(full[:length])}
    append(store, "live", full[length:])
    assert eventually(lambda: os.stat(path).st_size == len(full))
    assert spark_sums(planned) == {"live": plain_text(full[: full.index(b"\n", length) + 1])}
    assert spark_sums(spark_text(spark, path)) == {"live": plain_text(full)}


def test_python_functions_of_tasks_get_the_lines(logs: dict[str, bytes], mount: Mount, spark: SparkSession) -> None:
    lines = spark_text(spark, str(mount("xattr").path / "logs/old")).rdd
    # zlib is of the standard library, so that the workers need no module of the tests.
    crcs = lines.map(lambda row: zlib.crc32(row.value.encode())).sum()
    assert crcs == sum(plain_text(logs[name])[2] for name in ("logs/old/2030", "logs/old/29"))


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
