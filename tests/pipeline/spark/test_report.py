"""The report against what the store was filled with; no Spark is started for it."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet
import pytest

from tests.commands import tierfs
from tests.pipeline.reader.reading import fill, store_of
from tierfs.app import store as app
from tierfs.base.words.errors import NotFound
from tierfs.base.words.types import PayloadEncoding, Tier
from tierfs.engine.metadata import policies
from tierfs.engine.metadata.tables import OBJECTS
from tierfs.pipeline.report import GIB, Prices, age_of, make_report
from tierfs.pipeline.spark.jobs.report import result_of
from tierfs.pipeline.spark.jobs.report_page import html

HOUR_MS = 3_600_000


@pytest.fixture
def store(tmp_path: Path) -> Iterator[app.Store]:
    """Five cold bytes and three local ones in `a`, four local ones in `b/<i>`, and a policy of its own for `b`."""
    with store_of(tmp_path / "store") as opened:
        fill(opened, b"coldloc", name="a/one", cold_bytes=4)
        fill(opened, b"c", name="a/two")
        fill(opened, b"dd", name="b/<i>/three")
        fill(opened, b"ee", name="b/<i>/four", seal=True)
        with opened.metadata.write() as txn:
            policies.put(txn, policies.directories.find(txn, "b").id, {"retention_age": "86400"})
        yield opened


def sums(store: app.Store, section: str, path: str = "", depth: int = 1) -> dict[str, tuple[int, int, int, int]]:
    """Segments, bytes, local and cold bytes by name."""
    rows = result_of(make_report(store, path, depth=depth)).rows
    return {row[1]: row[2:6] for row in rows if row[0] == section}


def test_bytes_are_summed_by_directory_policy_and_age(store: app.Store) -> None:
    assert sums(store, "total") == {"": (4, 12, 8, 4)}
    assert sums(store, "directory") == {"a": (2, 8, 4, 4), "b": (2, 4, 4, 0)}
    assert sums(store, "directory", "b") == {"b/<i>": (2, 4, 4, 0)}
    assert sums(store, "directory", depth=5) == {"a": (2, 8, 4, 4), "b/<i>": (2, 4, 4, 0)}
    found = sums(store, "policy")
    assert [name.endswith("retention_age 1d") for name in found] == [False, True]
    assert list(found.values()) == [(2, 8, 4, 4), (2, 4, 4, 0)]
    assert sums(store, "age") == {"below an hour": (4, 12, 8, 4)}
    assert [age_of(hours * HOUR_MS) for hours in (0.9, 1, 24, 24 * 89, 24 * 400)] == [
        *("below an hour", "below a day", "below a week", "below 90 days", "a year or more")
    ]
    with pytest.raises(NotFound):
        make_report(store, "nope")


def test_costs_are_those_of_the_objects_and_of_garbage(store: app.Store) -> None:
    with store.metadata.read() as txn:
        own = [one.stored_bytes for _, one in txn.scan(OBJECTS) if one.tier is Tier.COLD]
    found = make_report(store, prices=Prices(gib_month=GIB, thousand_gets=1000, thousand_puts=2000))
    assert (found.storage_month, found.read_once, found.puts_month) == (sum(own), len(own), 2 * len(own))
    before = make_report(store).storage_month
    tierfs("rm", "--now", "--yes", "a/one", store=store.path)
    found = make_report(store)
    assert (found.objects.count, found.objects.garbage) == (0, 1)
    assert found.garbage_month == found.storage_month == before


def test_people_and_files_get_the_rows(store: app.Store, tmp_path: Path) -> None:
    lines = tierfs("pipeline", "report", store=store.path).out.splitlines()
    assert lines[1].split() == ["4", "12", "B", "8", "B", "4", "B", "4", "B", "all"]
    assert [line.split()[-1] for line in lines if line.endswith((" a", " b"))] == ["a", "b"]
    table, text = tmp_path / "report.parquet", tmp_path / "report.csv"
    for path in (table, text):
        rows = tierfs("pipeline", "report", "--json", "--output", path, store=store.path).json["rows"]
    assert pyarrow.parquet.read_table(table).to_pylist() == rows
    found = list(csv.DictReader(text.read_text().splitlines()))
    assert [(row["section"], row["name"]) for row in found] == [(row["section"], row["name"]) for row in rows]


def test_the_page_needs_nothing_else_and_its_pictures_are_in_proportion(store: app.Store) -> None:
    page = html(make_report(store, depth=2), "now")
    assert not re.search(r"<script|<link|src=|href=|url\(", page)
    assert "b/&lt;i&gt;" in page
    bars = [re.findall(r"width:([0-9.]+)%", part) for part in page.split("<h2>")]
    assert bars == [[], ["66.7", "33.3"], *[["50.0", "50.0", "50.0", "0.0"]] * 2, []]


def test_what_compression_saves_has_a_row(store: app.Store) -> None:
    assert "saved by compression" not in [row[1] for row in result_of(make_report(store)).rows]
    with store.metadata.write() as txn:
        [(key, held)] = [(key, one) for key, one in txn.scan(OBJECTS) if one.tier is Tier.COLD]
        packed = replace(held, encoding=PayloadEncoding.ZSTD_FRAMES, stored_length=1)
        txn.put(OBJECTS, key, packed)
    found = result_of(make_report(store, prices=Prices(gib_month=GIB))).rows
    assert [row[2:] for row in found if row[1] == "saved by compression"] == [(1, None, None, 3, None, 3.0)]
    assert [row[5:7] for row in found if row[0] == "total"] == [(4, 1)]
    assert "Saved by compression" in html(make_report(store), "now")
