"""Table libraries find the same rows in a Parquet and a CSV segment, wherever its bytes are."""

from __future__ import annotations

import io
from functools import cache
from pathlib import Path

import dask.dataframe
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

from tests.fsspec.conftest import PLACES, put
from tests.mount.conftest import Mount
from tierfs.app import store
from tierfs.fsspec import TierfsFileSystem

ROWS = 30_000
TABLE = pd.DataFrame(
    {
        "id": range(ROWS),
        "amount": [number * 0.5 for number in range(ROWS)],
        "note": [f"Übung {number * 7919 % ROWS}" for number in range(ROWS)],
    }
)


@cache
def parquet() -> bytes:
    """The table in row groups that readers skip and seek between."""
    out = io.BytesIO()
    pq.write_table(pa.Table.from_pandas(TABLE), out, row_group_size=ROWS // 7, compression="none")
    return out.getvalue()


@pytest.fixture(params=PLACES)
def tables(request: pytest.FixtureRequest, store: store.Store) -> str:
    """The URL of a directory with the table in both formats."""
    put(store, "tables/t.parquet", parquet(), request.param)
    put(store, "tables/t.csv", TABLE.to_csv(index=False).encode(), request.param)
    return f"tierfs://{store.path}/tables"


def assert_table(found: pd.DataFrame) -> None:
    pd.testing.assert_frame_equal(found.reset_index(drop=True), TABLE, check_dtype=False)


def test_pandas(tables: str, store: store.Store) -> None:
    assert_table(pd.read_parquet(f"{tables}/t.parquet"))
    assert_table(pd.read_csv(f"{tables}/t.csv"))
    options = {"store": str(store.path)}
    assert_table(pd.read_csv("tierfs://tables/t.csv", storage_options=options))
    some = pd.read_parquet("tierfs://tables/t.parquet", columns=["id"], storage_options=options)
    assert some.id.sum() == TABLE.id.sum()


def test_polars(tables: str, fs: TierfsFileSystem) -> None:
    with fs.open("tables/t.parquet") as file:
        assert_table(pl.read_parquet(file).to_pandas())
    with fsspec.open(f"{tables}/t.csv") as file:
        assert_table(pl.read_csv(file).to_pandas())
    lazy = pl.scan_pyarrow_dataset(pyarrow.dataset.dataset("tables/t.parquet", filesystem=fs))
    assert lazy.filter(pl.col("id") >= ROWS - 5).select("note").collect().to_series().to_list() == list(TABLE.note[-5:])


def test_pyarrow(tables: str, fs: TierfsFileSystem) -> None:
    arrow = PyFileSystem(FSSpecHandler(fs))
    assert_table(pq.read_table("tables/t.parquet", filesystem=arrow).to_pandas())
    assert_table(pyarrow.csv.read_csv(arrow.open_input_stream("tables/t.csv")).to_pandas())
    for name in ("t.csv", "t.parquet"):
        dataset = pyarrow.dataset.dataset(f"tables/{name}", filesystem=arrow, format=name[2:])
        assert dataset.to_table(filter=pyarrow.dataset.field("id") < 3).column("id").to_pylist() == [0, 1, 2]
    assert [info.size for info in arrow.get_file_info(["tables/t.parquet", "none"])] == [len(parquet()), None]


def test_dask(tables: str) -> None:
    with dask.config.set(scheduler="threads", num_workers=2):
        assert_table(dask.dataframe.read_parquet(f"{tables}/t.parquet").compute())
        lines = dask.dataframe.read_csv(f"{tables}/*.csv", blocksize=200_000)
        assert lines.npartitions > 2
        assert_table(lines.compute())


@pytest.mark.parametrize("tables", ["both"], indirect=True)
def test_dask_in_processes(tables: str) -> None:
    frame = dask.dataframe.read_csv(f"{tables}/t.csv", blocksize=200_000)
    assert_table(frame.compute(scheduler="processes", num_workers=2))


def test_duckdb(tables: str, fs: TierfsFileSystem) -> None:
    with duckdb.connect() as connection:
        connection.register_filesystem(fs)
        for table in ("'tierfs://tables/t.parquet'", f"'{tables}/t.csv'", "read_csv('tierfs://tables/*.csv')"):
            assert_table(connection.sql(f"SELECT * FROM {table} ORDER BY id").df())


@pytest.mark.parametrize("tables", ["local"], indirect=True)
def test_duckdbs_threads_share_a_file(tables: str, fs: TierfsFileSystem) -> None:
    """Version 2 lets them seek and read in any order: one of three queries failed, or had wrong rows."""
    for _ in range(20):
        with duckdb.connect(config={"threads": 4}) as connection:
            connection.register_filesystem(fs)
            assert_table(connection.sql(f"SELECT * FROM '{tables}/t.parquet' ORDER BY id").df())


@pytest.mark.mount
def test_what_is_written_by_url_is_a_file_of_the_mount(store: store.Store, fs: TierfsFileSystem, mount: Mount) -> None:
    url = f"tierfs://{store.path}/out"
    TABLE.to_parquet(f"{url}/pandas.parquet")
    TABLE.to_csv(f"{url}/pandas.csv", index=False, storage_options={"seal": True})
    pq.write_table(pa.Table.from_pandas(TABLE), "out/pyarrow.parquet", filesystem=PyFileSystem(FSSpecHandler(fs)))
    with fs.open("out/polars.parquet", "wb", seal=True) as file:
        pl.from_pandas(TABLE).write_parquet(file)
    with duckdb.connect() as connection:
        connection.register_filesystem(fs)
        connection.execute(f"COPY (FROM '{url}/pandas.parquet') TO '{url}/duckdb.parquet' (FORMAT parquet)")
    mounted = mount().path / "out"
    written = sorted(path.name for path in mounted.iterdir())
    assert written == ["duckdb.parquet", "pandas.csv", "pandas.parquet", "polars.parquet", "pyarrow.parquet"]
    for name in written:
        assert_table(pd.read_csv(mounted / name) if name.endswith("csv") else pd.read_parquet(mounted / name))


def test_a_directory_of_parts(store: store.Store, tmp_path: Path) -> None:
    """As dask writes one; a second run does not write over it."""
    url = f"tierfs://{store.path}/parts"
    frame = dask.dataframe.from_pandas(TABLE, npartitions=3)
    frame.to_parquet(url, compute_kwargs={"scheduler": "threads"})
    assert_table(dask.dataframe.read_parquet(url).compute(scheduler="threads"))
    with pytest.raises(FileExistsError, match="append-only"):
        frame.to_parquet(url, compute_kwargs={"scheduler": "threads"})
