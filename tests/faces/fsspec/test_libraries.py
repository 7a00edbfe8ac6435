"""Table libraries find the same rows in a Parquet and a CSV segment of which each tier has one half.

What they write is read back in the examples of docs/dataframes.md, which tests/docs runs.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import duckdb
import fsspec
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest
from pyarrow.fs import FSSpecHandler, PyFileSystem

from tests.faces.fsspec.conftest import put
from tierfs.app import store
from tierfs.faces.fsspec import TierfsFileSystem

ROWS = 30_000
NOTES = [f"Übung {number * 7919 % ROWS}" for number in range(ROWS)]
TABLE = pd.DataFrame({"id": range(ROWS), "amount": [number * 0.5 for number in range(ROWS)], "note": NOTES})


@pytest.fixture
def tables(store: store.Store) -> str:
    """The URL of a directory with the table in both formats; the one in row groups that readers seek between."""
    out = io.BytesIO()
    pq.write_table(pa.Table.from_pandas(TABLE), out, row_group_size=ROWS // 7, compression="none")
    put(store, "tables/t.parquet", out.getvalue(), "both")
    put(store, "tables/t.csv", TABLE.to_csv(index=False).encode(), "both")
    return f"tierfs://{store.path}/tables"


def assert_table(found: pd.DataFrame) -> None:
    pd.testing.assert_frame_equal(found.reset_index(drop=True), TABLE, check_dtype=False)


def query(fs: TierfsFileSystem, table: str, threads: int = 2) -> pd.DataFrame:
    with duckdb.connect(config={"threads": threads}) as connection:
        connection.register_filesystem(fs)
        return connection.sql(f"SELECT * FROM {table} ORDER BY id").df()


def dask() -> Any:
    """Import it in the one process that runs these tests, not in each that collects them: that takes 0.6 s."""
    import dask.dataframe

    return dask.dataframe


def arrow(fs: TierfsFileSystem) -> PyFileSystem:
    return PyFileSystem(FSSpecHandler(fs))


READERS: tuple[Callable[[str, TierfsFileSystem], pd.DataFrame], ...] = (
    lambda at, _: pd.read_parquet(f"{at}/t.parquet"),
    lambda at, _: pd.read_csv(f"{at}/t.csv"),
    lambda _, fs: pd.read_csv("tierfs://tables/t.csv", storage_options={"store": str(fs.store)}),
    lambda _, fs: pl.read_parquet(fs.open("tables/t.parquet")).to_pandas(),
    lambda at, _: pl.read_csv(fsspec.open(f"{at}/t.csv").open()).to_pandas(),
    lambda _, fs: pq.read_table("tables/t.parquet", filesystem=arrow(fs)).to_pandas(),
    lambda _, fs: pyarrow.csv.read_csv(arrow(fs).open_input_stream("tables/t.csv")).to_pandas(),
    lambda at, _: dask().read_parquet(f"{at}/t.parquet").compute(scheduler="threads", num_workers=2),
    lambda _, fs: query(fs, "'tierfs://tables/t.parquet'"),
    lambda at, fs: query(fs, f"'{at}/t.csv'"),
    lambda _, fs: query(fs, "read_csv('tierfs://tables/*.csv')"),
)


def test_readers_of_tables_find_the_rows_of_either_tier(tables: str, fs: TierfsFileSystem) -> None:
    for read in READERS:
        assert_table(read(tables, fs))
    lines = dask().read_csv(f"{tables}/*.csv", blocksize=200_000)
    assert lines.npartitions > 2
    assert_table(lines.compute(scheduler="processes", num_workers=2))  # they get the file system as a pickle


def test_what_libraries_seek_in_a_file(tables: str, fs: TierfsFileSystem) -> None:
    for name in ("t.csv", "t.parquet"):
        dataset = pyarrow.dataset.dataset(f"tables/{name}", filesystem=arrow(fs), format=name[2:])
        assert dataset.to_table(filter=pyarrow.dataset.field("id") < 3).column("id").to_pylist() == [0, 1, 2]
    assert arrow(fs).get_file_info(["none"])[0].size is None
    for _ in range(10):  # duckdb 2 lets threads seek and read a file in any order: one of three queries was wrong
        assert_table(query(fs, f"'{tables}/t.parquet'", threads=4))
