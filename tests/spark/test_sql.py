"""Spark SQL over a store: views work, tables that a catalog keeps are refused or told how, each in one line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.mount.conftest import append
from tests.scan.scanning import store_of
from tierfs.app import store as app

pytestmark = [pytest.mark.spark, pytest.mark.timeout(420, method="thread")]

NO_PATH = "no path is named to read; write load(PATH), OPTIONS (path 'PATH') of a view, WITH (path = 'PATH') of a table"


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[app.Store]:
    """A store that TIERFS_STORE names, with lines in its root that nobody asks for."""
    monkeypatch.setenv("TIERFS_STORE", str(tmp_path / "store"))
    with store_of(tmp_path / "store", chunk_bytes=1 << 20) as opened:
        append(opened, "root", b"not asked for\n")
        append(opened, "logs/web", b"one\ntwo\n", seal=True)
        append(opened, "days/day=1/s", b"first\n", seal=True)
        yield opened


@pytest.fixture(autouse=True)
def clean(spark: SparkSession) -> Iterator[None]:
    yield
    for name in ("t", "u"):
        spark.sql(f"DROP TABLE IF EXISTS {name}")
    spark.catalog.dropTempView("v")


def values(spark: SparkSession, query: str) -> list[str]:
    return sorted(row.value for row in spark.sql(query).collect())


def test_a_view_reads_its_path(spark: SparkSession, store: app.Store) -> None:
    options = f"OPTIONS (path 'logs/web', store '{store.path}')"
    spark.sql(f"CREATE TEMPORARY VIEW v USING tierfs {options}")
    assert values(spark, "SELECT value FROM v") == ["one", "two"]
    assert values(spark, "SELECT value FROM v WHERE offset = 4") == ["two"]
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW v (value string, segment_sealed boolean) USING tierfs {options}")
    assert spark.sql("SELECT * FROM v").columns == ["value", "segment_sealed"]
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW v USING tierfs OPTIONS (path 'days', store '{store.path}')")
    assert values(spark, "SELECT value FROM v WHERE day = 1") == ["first"]


def test_a_view_without_a_path_is_refused(spark: SparkSession, store: app.Store) -> None:
    refused(spark, f"CREATE TEMPORARY VIEW v USING tierfs OPTIONS (store '{store.path}')", NO_PATH)
    spark.sql(f"CREATE TEMPORARY VIEW v (value string) USING tierfs OPTIONS (store '{store.path}')")
    refused(spark, "SELECT * FROM v", NO_PATH)


@pytest.mark.parametrize("ways", ["OPTIONS (path 'logs/web', store '{store}')", "LOCATION 'logs/web'", ""])
def test_a_table_of_a_catalog_is_refused(spark: SparkSession, store: app.Store, ways: str) -> None:
    kept = "Spark's catalog keeps no options of a tierfs table, so no read of it would find its path; CREATE TEMPORARY"
    refused(spark, f"CREATE TABLE t USING tierfs {ways.format(store=store.path)}", kept)
    assert not spark.catalog.tableExists("t")


def test_a_table_with_columns_reads_only_the_path_of_a_query(spark: SparkSession, store: app.Store) -> None:
    spark.sql(f"CREATE TABLE t (value string) USING tierfs OPTIONS (path 'logs/web', store '{store.path}')")
    refused(spark, "SELECT * FROM t", NO_PATH)
    where = f"store = '{store.path}', path = 'logs/web'"
    assert values(spark, f"SELECT value FROM t WITH ({where})") == ["one", "two"]
    refused(spark, "INSERT INTO t VALUES ('three')", "no directory is named to write into; name one: ")
    into = f"store = '{store.path}', into = 'written'"
    spark.sql(f"INSERT INTO t WITH ({into}) SELECT 'three' AS value")
    assert values(spark, f"SELECT value FROM t WITH (store = '{store.path}', path = 'written')") == ["three"]


def test_rows_of_save_as_table_are_written_and_the_table_needs_the_path(spark: SparkSession, store: app.Store) -> None:
    rows = spark.createDataFrame([("three",)], "value string")
    writer = rows.write.format("tierfs").option("store", str(store.path)).mode("append")
    writer.option("path", "saved").saveAsTable("t")
    refused(spark, "SELECT * FROM t", NO_PATH)
    assert values(spark, f"SELECT value FROM t WITH (store = '{store.path}', path = 'saved')") == ["three"]
    with pytest.raises(PySparkException, match="no directory is named to write into"):
        rows.write.format("tierfs").option("store", str(store.path)).mode("append").saveAsTable("u")


def test_a_query_of_a_path_and_partition_by_are_refused_by_spark(spark: SparkSession, store: app.Store) -> None:
    with pytest.raises(PySparkException, match="UNSUPPORTED_DATASOURCE_FOR_DIRECT_QUERY"):
        spark.sql("SELECT * FROM tierfs.`logs/web`")
    rows = spark.createDataFrame([("three", "1")], "value string, day string")
    writer = rows.write.format("tierfs").option("store", str(store.path)).mode("append")
    with pytest.raises(PySparkException, match="provided partitioning or clustering columns do not match"):
        writer.partitionBy("day").save("written")


def test_the_name_of_the_file_is_the_column_segment(spark: SparkSession, store: app.Store) -> None:
    spark.sql(f"CREATE TEMPORARY VIEW v USING tierfs OPTIONS (path 'logs/web', store '{store.path}')")
    found = spark.sql("SELECT DISTINCT input_file_name() AS file, segment FROM v").collect()
    assert [tuple(row) for row in found] == [("", "logs/web")]


def refused(spark: SparkSession, query: str, message: str) -> None:
    """Require one line of tierfs, as the error of the query."""
    with pytest.raises(PySparkException) as caught:
        spark.sql(query).collect()
    lines = [line for line in str(caught.value).splitlines() if "TierfsException: " in line]
    assert len(lines) == 1, str(caught.value)
    assert message in lines[0]
