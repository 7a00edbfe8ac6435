"""Tables that follow segments, and what readers other than Spark find in them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import duckdb
import pyarrow
import pytest
from pyiceberg.table import StaticTable
from pyspark.sql import SparkSession

from tests.pipeline.spark.written import read
from tests.servers.iceberg_jar import DONE, JAR
from tierfs.app.store import Store
from tierfs.engine.metadata import directories
from tierfs.pipeline.reader.stream_plan import StreamOffset
from tierfs.pipeline.spark.jobs.table import OnStep, RoundSums, TableJob, TableWanted
from tierfs.pipeline.spark.tables.followed_table import FollowedTable
from tierfs.pipeline.spark.tables.iceberg_table import IcebergTable
from tierfs.pipeline.spark.tables.parquet_table import ParquetTable

Line = tuple[str, int, str]
"""Segment, offset and text."""


class Killed(Exception):
    """Ends a round in the place of a kill."""


def with_iceberg(spark: SparkSession, warehouse: Path) -> None:
    """Let a running session write tables of Iceberg to a catalog `lake`; without the jar the test is skipped."""
    if not DONE.exists():
        pytest.skip("the jar of Iceberg is not there: make test-deps")
    spark.sql(f"ADD JAR {JAR}")
    spark.conf.set("spark.sql.catalog.lake.type", "hadoop")
    spark.conf.set("spark.sql.catalog.lake.warehouse", str(warehouse))


@dataclass(frozen=True)
class Lake:
    """Tables of one format in a directory."""

    spark: SparkSession
    store: Store
    directory: Path
    format: str
    """`iceberg`, `parquet` or `delta`."""

    @classmethod
    def of(cls, spark: SparkSession, store: Store, directory: Path, kind: str) -> Self:
        """A lake, or the end of the test where the library of its format is missing."""
        if kind == "iceberg":
            with_iceberg(spark, directory)
        elif kind == "delta":
            pytest.importorskip("deltalake", reason="the package deltalake is not there: make test-deps")
        return cls(spark, store, directory, kind)

    def table(self, name: str) -> FollowedTable:
        if self.format == "iceberg":
            return IcebergTable(self.spark, f"lake.logs.{name}")
        if self.format == "parquet":
            return ParquetTable(self.spark, str(self.directory / name))
        from tierfs.pipeline.spark.tables.delta_table import DeltaTable

        return DeltaTable(self.spark, str(self.directory / name))

    def follower(
        self, name: str, what: TableWanted, step: OnStep = lambda _: None, *, search_s: float = 0.0
    ) -> TableJob:
        bad = self.table(f"{name}_bad") if what.rows == "json" else None
        return TableJob(self.spark, self.store, what, self.table(name), bad, step=step, search_s=search_s)

    def follow(self, name: str, what: TableWanted, step: OnStep = lambda _: None) -> list[RoundSums]:
        """Run rounds until nothing is left."""
        with self.follower(name, what, step) as follower:
            follower.freeze()
            rounds = []
            while (done := follower.round()) is not None:
                rounds.append(done)
            return rounds

    def offset(self, name: str) -> StreamOffset | None:
        return self.table(name).head().offset

    def rows(self, name: str) -> list[dict[str, Any]]:
        """The rows as PyIceberg reads them, or deltalake, or DuckDB those of a directory."""
        rows: list[dict[str, Any]]
        if self.format == "iceberg":
            rows = self.pyiceberg(name).scan().to_arrow().to_pylist()
            return rows
        if self.format == "delta":
            rows = pyarrow.table(self.deltalake(name).to_pyarrow_table()).to_pylist()
            return rows
        files = f"{self.directory}/{name}/**/rows-*.parquet"
        if not list(self.directory.glob(f"{name}/**/rows-*.parquet")):
            return []
        found = duckdb.read_parquet(files, hive_partitioning=True, union_by_name=True)
        return list(found.to_arrow_table().to_pylist())

    def deltalake(self, name: str) -> Any:
        import deltalake

        return deltalake.DeltaTable(self.directory / name)

    def pyiceberg(self, name: str) -> StaticTable:
        metadata = self.directory / "logs" / name / "metadata"
        version = (metadata / "version-hint.text").read_text().strip()
        return StaticTable.from_metadata(str(metadata / f"v{version}.metadata.json"))

    def files(self, name: str) -> list[str]:
        """The files of the newest version, for readers that know no format of tables."""
        if self.format == "delta":
            paths: list[str] = self.deltalake(name).file_uris()
            return paths
        tasks = self.pyiceberg(name).scan().plan_files()
        return [task.file.file_path.removeprefix("file:") for task in tasks]


def lines_up_to(store: Store, offset: StreamOffset | None, names: Sequence[str]) -> list[Line]:
    """The whole lines of segments up to an offset, by plain Python."""
    if offset is None:
        return []
    found = []
    for name in names:
        with store.metadata.read() as txn:
            entry = directories.find(txn, name)
            assert entry is not None
            segment = directories.segment(txn, entry.id)  # type: ignore[arg-type]
            assert segment is not None
        if segment.birth > offset.done:
            continue
        at = 0
        for text in read(store, name)[: offset.open.get(segment.birth, segment.length)].splitlines(keepends=True):
            found.append((name, at, text.decode().rstrip("\n")))
            at += len(text)
    return sorted(found)


def lines_of(rows: Sequence[dict[str, Any]]) -> list[Line]:
    return sorted((row["segment"], row["offset"], row["value"]) for row in rows)


def objects(lines: Sequence[Line]) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    """The lines that are objects with a whole number `n`, and the others."""
    good, bad = [], []
    for segment, offset, text in lines:
        try:
            value = json.loads(text)
        except ValueError:
            value = None
        if isinstance(value, dict) and isinstance(value.get("n"), int):
            good.append((segment, offset, value["n"]))
        else:
            bad.append((segment, offset, text))
    return good, bad
