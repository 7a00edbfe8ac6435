"""Every example of docs/spark.md and docs/tutorial.md runs, on a real mount and with real Spark."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from pyspark.sql import SparkSession

from tests.docs.blocks import ROOT, Reader
from tests.docs.machine import Machine
from tests.mount.conftest import append
from tests.spark.conftest import spark, store
from tierfs.app import store as app

__all__ = ["spark", "store"]

pytestmark = [pytest.mark.mount, pytest.mark.spark, pytest.mark.timeout(420, method="thread")]


def parquet(first: int) -> bytes:
    sink = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table({"id": range(first, first + 10)}), sink)
    return sink.getvalue()


def orders() -> bytes:
    text = io.StringIO()
    csv.writer(text).writerows([("id", "amount", "note"), (1, 2.5, "first"), (2, 4.0, "second")])
    return text.getvalue().encode()


def fill(store: app.Store) -> None:
    """Fill the store with the segments that the examples name."""
    for name in ("web", "app", "2031-01-30", "2031-02-01", "old/2030"):
        append(store, f"logs/{name}", b"an INFO line\nan ERROR line\n" * 100, seal=name != "web")
    append(store, "tables/orders", orders(), seal=True)
    append(store, "tables/2031-01", parquet(0), seal=True)
    append(store, "tables/2031-02", parquet(10), seal=True)
    clicks = "".join(json.dumps({"at": "2031-01-30T12:00:00Z", "user": f"u{number}"}) + "\n" for number in range(10))
    append(store, "events/clicks", clicks.encode(), seal=True)
    append(store, "visits/day=1/clicks", clicks.encode(), seal=True)


def test_the_examples_of_spark(store: app.Store, spark: SparkSession, tmp_path: Path) -> None:
    fill(store)
    machine = Machine(tmp_path / "machine")
    machine.file("/var/log/incoming/a", "one\ntwo\n")
    machine.replace["/srv/store"] = str(store.path)
    try:
        machine.read("docs/spark.md", {"TIERFS_STORE": str(store.path)})
    finally:
        machine.leave()


def test_the_tutorial(spark: SparkSession, tmp_path: Path) -> None:
    reader = Reader(ROOT / "docs/tutorial.md", tmp_path, replace={"/srv/": f"{tmp_path}/"})
    assert reader.run() == 14
