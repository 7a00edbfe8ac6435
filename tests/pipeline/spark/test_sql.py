"""Spark SQL over a store: views work, tables that a catalog keeps are refused or told how, each in one line."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.mount.conftest import append
from tests.pipeline.reader.reading import store_of
from tests.pipeline.spark.reading import told
from tierfs.app import store as app

pytestmark = [pytest.mark.spark, pytest.mark.timeout(420, method="thread")]

OF_A_TABLE = (
    "no input path given: Spark's catalog does not keep the path of a tierfs table; query it by SELECT … FROM TABLE "
    "WITH (store = 'STORE', path = 'PATH'), or use load(PATH)"
)
NO_PATH = "no input path given; use load(PATH); in SQL, OPTIONS (path 'PATH') or WITH (path = 'PATH')"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[app.Store]:
    """A store with lines in its root that nobody asks for."""
    with store_of(tmp_path_factory.mktemp("sql") / "store", chunk_bytes=1 << 20) as opened:
        append(opened, "root", b"not asked for\n")
        append(opened, "logs/web", b"one\ntwo\n", seal=True)
        append(opened, "days/day=1/s", b"first\n", seal=True)
        yield opened


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
    found = spark.sql("SELECT DISTINCT input_file_name() AS file, segment FROM v").collect()
    assert [tuple(row) for row in found] == [("", "days/day=1/s")], "the name of the file is the column segment"
    where = f"USING tierfs OPTIONS (store '{store.path}')"
    assert NO_PATH in told(lambda: spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW v {where}"))
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW v (value string) {where}")
    refused(spark, "SELECT * FROM v", NO_PATH)


def test_tables_of_a_catalog_are_refused_or_read_the_path_of_a_query(spark: SparkSession, store: app.Store) -> None:
    kept = "Spark's catalog does not keep options of a tierfs table, so a read cannot find its path; CREATE TEMPORARY"
    for ways in (f"OPTIONS (path 'logs/web', store '{store.path}')", "LOCATION 'logs/web'", ""):
        refused(spark, f"CREATE TABLE t USING tierfs {ways}", kept)
    assert not spark.catalog.tableExists("t")
    spark.sql(f"CREATE TABLE columns (value string) USING tierfs OPTIONS (path 'logs/web', store '{store.path}')")
    refused(spark, "SELECT * FROM columns", OF_A_TABLE)
    where = f"store = '{store.path}', path = 'logs/web'"
    assert values(spark, f"SELECT value FROM columns WITH ({where})") == ["one", "two"]
    refused(spark, "INSERT INTO columns VALUES ('three')", "no target directory given; use one of them: ")
    into = f"store = '{store.path}', into = 'written'"
    spark.sql(f"INSERT INTO columns WITH ({into}) SELECT 'three' AS value")
    assert values(spark, f"SELECT value FROM columns WITH (store = '{store.path}', path = 'written')") == ["three"]


def test_rows_of_save_as_table_are_written_and_the_table_needs_the_path(spark: SparkSession, store: app.Store) -> None:
    rows = spark.createDataFrame([("three", "1")], "value string, day string")
    writer = rows.drop("day").write.format("tierfs").option("store", str(store.path)).mode("append")
    with pytest.raises(PySparkException, match="no target directory given"):
        writer.saveAsTable("other")
    writer.option("path", "saved").saveAsTable("saved")
    refused(spark, "SELECT * FROM saved", OF_A_TABLE)
    assert OF_A_TABLE in told(lambda: spark.table("saved").count())
    refused(spark, "INSERT INTO saved VALUES ('four')", "in SQL, INSERT INTO TABLE WITH (store = 'STORE', into = ")
    assert values(spark, f"SELECT value FROM saved WITH (store = '{store.path}', path = 'saved')") == ["three"]
    with pytest.raises(PySparkException, match="UNSUPPORTED_DATASOURCE_FOR_DIRECT_QUERY"):
        spark.sql("SELECT * FROM tierfs.`logs/web`")
    writer = rows.write.format("tierfs").option("store", str(store.path)).mode("append")
    with pytest.raises(PySparkException, match="provided partitioning or clustering columns do not match"):
        writer.partitionBy("day").save("written")


def refused(spark: SparkSession, query: str, message: str) -> None:
    """Require one line of tierfs, as the error of the query."""
    assert message in told(lambda: spark.sql(query).collect())
