"""Directories `column=value` by name: the rows, columns and types that Spark makes of files in such directories."""

from __future__ import annotations

import bz2
import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tests.mount.conftest import append
from tests.pipeline.reader.reading import store_of
from tests.pipeline.spark.reading import frame, make_cold, refusal, told
from tests.pipeline.spark.test_streams import Asked
from tierfs.app import store as app
from tierfs.pipeline.spark.errors import TierfsException
from tierfs.pipeline.spark.options import ReadOptions
from tierfs.pipeline.spark.planning import plan_read

pytestmark = [pytest.mark.spark, pytest.mark.timeout(420, method="thread")]

NULL = "__HIVE_DEFAULT_PARTITION__"

VALUES = {
    "ints": ("1", "+2", "007"),
    "longs": ("1", "3000000000", "-9223372036854775808"),
    "decimals": ("99999999999999999999", "1"),
    "powers": ("1e3",),
    "doubles": ("1", "1.5", ".5", "NaN", "1.0d"),
    "long_and_double": ("3000000000", "1.5"),
    "dates": ("2031-01-30", "0001-01-01", NULL),
    "no_dates": ("2031-02-30",),
    "months": ("2031-01",),
    "times": ("2031-01-30 10%3A00%3A00", "2031-01-30"),
    "no_times": ("2031-01-30T10%3A00%3A00", "2031-01-30 10"),
    "texts": ("a%20b", "c%2Fd", "größe", "a=b", "%"),
    "mixed": ("1", "x", "2031-01-30"),
    "nulls": (NULL, "1"),
    "booleans": ("true",),
}
"""Values by column. A type is inferred of all directories of a column, whatever the others are."""


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[app.Store, Path]]:
    """The same names and lines in a store and in a directory."""
    files = tmp_path_factory.mktemp("files")
    with store_of(tmp_path_factory.mktemp("directories") / "store", chunk_bytes=1 << 20) as store:
        for number in range(max(map(len, VALUES.values()))):
            columns = (f"{column}={values[number % len(values)]}" for column, values in VALUES.items())
            put(store, files, f"values/{'/'.join(columns)}/segment", number)
        for table in ("ints", "dates", "mixed"):
            for number, value in enumerate(VALUES[table]):
                put(store, files, f"{table}/k={value}/segment", number)
        for number, name in enumerate(("a=1/b=x/s", "a=1/b=y/deep/s", "a=2/b=x/_hidden", "a=2/b=x/s", "a=3/_b=z/s")):
            put(store, files, f"two/{name}", number)
        put(store, files, "differ/a=1/s", 0)
        put(store, files, "differ/a=2/b=1/s", 1)
        put(store, files, "same/value=1/s", 0)
        for number, name in enumerate(("_x", ".y", "z._COPYING_", "plain", "_e=1")):
            put(store, files, f"names/{name}", number)
        yield store, files


def put(store: app.Store, files: Path, name: str, number: int) -> None:
    text = f"{name} {number}\nsecond"
    append(store, name, text.encode(), seal=True)
    (files / name).parent.mkdir(parents=True, exist_ok=True)
    (files / name).write_text(text)


def rows(table: DataFrame) -> list[tuple[object, ...]]:
    """Of all columns but those that only tierfs has, in order of the lines; a NaN as text, which equals another."""
    found = [tuple(row) for row in table.drop("segment", "offset").collect()]
    return sorted((tuple("NaN" if value != value else value for value in row) for row in found), key=repr)


def test_values_have_the_types_of_the_path(places: tuple[app.Store, Path], spark: SparkSession) -> None:
    store, files = places
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    elsewhere = {"timeZone": "America/New_York"}
    for options in ({}, elsewhere):
        by_name = frame(spark, store.path, "values", **options)
        by_path = spark.read.options(**options).text(str(files / "values"))
        assert by_name.drop("segment", "offset").schema == by_path.schema
        assert rows(by_name) == rows(by_path), options


def test_two_levels_and_hidden_names_are_the_rows_of_the_path(
    places: tuple[app.Store, Path], spark: SparkSession
) -> None:
    store, files = places
    base, skipping = str(files / "two"), {"hiddenFiles": "skip"}
    by_path = rows(spark.read.option("basePath", base).text(f"{base}/a=[12]"))
    assert rows(frame(spark, store.path, "two/a=[12]", basePath="two", **skipping)) == by_path
    assert frame(spark, store.path, "two/a=[12]", basePath="two").count() == len(by_path) + 2, "also _hidden"
    leaf = frame(spark, store.path, "two/a=1/b=x")
    assert leaf.columns == ["value", "segment", "offset"]
    assert rows(leaf) == rows(spark.read.text(f"{base}/a=1/b=x"))
    below = frame(spark, store.path, "two", recursiveFileLookup="true", **skipping)
    assert rows(below) == rows(spark.read.option("recursiveFileLookup", "true").text(base))
    by_path = rows(spark.read.text(str(files / "names")))
    assert rows(frame(spark, store.path, "names", hiddenFiles="skip")) == by_path
    assert frame(spark, store.path, "names").count() == 10 > len(by_path), "hidden names are rows of the name alone"


def test_a_schema_decides(places: tuple[app.Store, Path], spark: SparkSession) -> None:
    store, _ = places
    text = frame(spark, store.path, "ints", schema="K string, VALUE string")
    assert {row.K for row in text.collect()} == set(VALUES["ints"])
    fixed = frame(spark, store.path, "ints", schema="k decimal(5,1), segment_length long, segment_sealed boolean")
    found = {(str(row.k), row.segment_length > 10, row.segment_sealed) for row in fixed.collect()}
    assert found == {("1.0", True, True), ("2.0", True, True), ("7.0", True, True)}
    own = frame(spark, store.path, "same", schema="value string")
    assert own.count() == 2, "the column of the rows, not of the directories"


ERRORS = (
    ("mixed", "k int", " is not a valid int; give a schema in which k is a string"),
    ("mixed", "j int", "rows of type lines have no column j; they have value, segment, offset, k, of their"),
    ("mixed", "k array<int>", "a column of directories cannot have the type array<int>; read it as string"),
    ("same", None, "directories value=… would add a column that rows of type lines already have"),
    ("two", None, "directories have different columns: "),
    ("differ", None, "directories have different columns: a=1 and a=2/b=1"),
    ("/", None, "/ has no segments, only directories such as dates; set recursiveFileLookup"),
)


def test_what_cannot_be_columns_is_one_clear_line(places: tuple[app.Store, Path], spark: SparkSession) -> None:
    store, _ = places
    for path, schema, message in ERRORS:
        assert message in refusal(store.path, path, schema)
    path, schema, message = ERRORS[0]
    assert message in told(frame(spark, store.path, path, schema=schema).count)


def test_segments_of_other_directories_are_neither_planned_nor_read(
    places: tuple[app.Store, Path], spark: SparkSession
) -> None:
    store, _ = places
    options = {"store": str(store.path), "path": "dates", "maxPartitionBytes": "1", "openCostInBytes": "1"}
    everything = plan_read(ReadOptions.of(options))
    pruned = plan_read(ReadOptions.of({**options, "partitionFilter": "k >= '2031-01-01'"}))
    names = {part.source.name for one in pruned.partitions for part in one.parts}  # type: ignore[union-attr]
    assert names == {"dates/k=2031-01-30/segment"}
    assert len(everything.partitions) > len(pruned.partitions)
    make_cold(store, "dates/k=0001-01-01/segment", f"dates/k={NULL}/segment")
    for chunk in (path for path in store.paths.cold.rglob("chunk-*") if path.is_file()):
        chunk.chmod(0o600)
        chunk.write_bytes(b"")
    left = frame(spark, store.path, "dates", partitionFilter="k >= '2031-01-01'")
    assert left.count() == 2, "the segments whose objects are gone are not looked at"
    with pytest.raises(PySparkException):
        frame(spark, store.path, "dates").where("k >= '2031-01-01'").count()


def test_whole_and_compressed_segments_are_the_rows_of_the_path(
    places: tuple[app.Store, Path], spark: SparkSession
) -> None:
    store, files = places
    lines = b"".join(b"line %d of many\n" % number for number in range(5000))
    segments = {"whole/empty": b"", "whole/ends": b"a\r\nb\n", "packed/plain": lines}
    segments |= {"packed/a.gz": gzip.compress(lines), "packed/b.bz2": bz2.compress(lines)}
    segments |= {"packed/c.GZ": gzip.compress(lines), "packed/d.gzip": gzip.compress(lines)}
    segments |= {"packed/e.Deflate": zlib.compress(lines)}
    for name, data in segments.items():
        append(store, name, data, seal=True)
        (files / name).parent.mkdir(exist_ok=True)
        (files / name).write_bytes(data)
    by_path = spark.read.text(str(files / "whole"), wholetext=True)
    assert (
        rows(frame(spark, store.path, "whole", wholetext="true", maxLineBytes="5")) == rows(by_path) == [("a\r\nb\n",)]
    )
    message = "segment whole/ends: a line at or after byte 0 has more than 4 bytes"
    assert message in told(frame(spark, store.path, "whole", wholetext="true", maxLineBytes="4").count)
    found = (
        frame(spark, store.path, "packed", maxPartitionBytes="9k").selectExpr("count(*)", "sum(crc32(value))").collect()
    )
    assert found == spark.read.text(str(files / "packed")).selectExpr("count(*)", "sum(crc32(value))").collect()
    assert found[0][0] == 30_000
    append(store, "framed/a.LZ4", b"x", seal=True)
    assert "tierfs does not read Hadoop's lz4; set compression to none" in refusal(store.path, "framed")
    plain = frame(spark, store.path, "packed/plain", "packed/a.gz", compression="none").groupBy("segment").count()
    counts = dict(map(tuple, plain.collect()))
    assert counts.pop("packed/plain") == 5000 > counts["packed/a.gz"], "lines of compressed bytes"
    message = "segment packed/a.gz has a name of a compressed file, which can be read only from its"
    assert message in refusal(store.path, "packed", startOffset="1")


@pytest.mark.usefixtures("spark")  # Spark parses the schema
def test_a_stream_reads_directories_that_appear(places: tuple[app.Store, Path]) -> None:
    store, _ = places
    append(store, "stream/day=1/s", b"one\n", seal=True)
    schema, at = "value string, day int, segment_sealed boolean", str(store.path)
    stream = Asked(schema=schema, maxFilesPerTrigger="1", store=at, path="stream")
    assert stream.rows() == [("one", 1, True)]
    append(store, "stream/day=2/s", b"two\n")
    append(store, "stream/day=2/t", b"three\n")
    # The limit is shared by all segments that have unread bytes, and each of them gives a record at least.
    assert [stream.rows() for _ in range(2)] == [[("two", 2, False), ("three", 2, False)], []]
    append(store, "stream/day=x/s", b"four\n")
    with pytest.raises(TierfsException, match="the value of directory day=x is not a valid int"):
        Asked(schema=schema, store=at, path="stream").rows()
