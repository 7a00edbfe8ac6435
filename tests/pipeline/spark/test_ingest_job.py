"""The job `ingest` with a real Spark: files and rows become segments, all at once and exactly once."""

from __future__ import annotations

import hashlib
import os
import random
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests import verbs
from tests.mount.conftest import append
from tests.pipeline.reader.reading import store_of
from tests.pipeline.spark.test_jobs import Watcher
from tierfs.app import store as app
from tierfs.base.words.errors import AlreadyExists, Conflict, InvalidRequest, NotFound
from tierfs.base.words.types import Tier
from tierfs.engine.metadata import directories
from tierfs.pipeline.reader.selection import Selection, select
from tierfs.pipeline.spark.jobs.ingest import Batch, SourceFile, files_of, ingest, ingest_files, tasks_of

pytestmark = [pytest.mark.spark, pytest.mark.slow]

DATA = {
    "a.log": b"one\n" * 1000,
    "deep/er/b.bin": random.Random(1).randbytes(700_000),
    "deep/empty": b"",
    "ä ö": b"umlauts",
}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[app.Store]:
    with store_of(tmp_path / "store", chunk_bytes=1 << 18, object_bytes=1 << 18) as opened:
        yield opened


@pytest.fixture
def source(tmp_path: Path) -> Path:
    for name, data in DATA.items():
        path = tmp_path / "source" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    os.symlink("a.log", tmp_path / "source" / "link")
    return tmp_path / "source"


def held(store: app.Store) -> dict[str, str]:
    """SHA-256 of each segment's bytes."""
    with store.metadata.read() as txn:
        found = [name for name, _ in select(txn, Selection(recursive=True))]
    sums = {}
    for name in found:
        digest = hashlib.sha256()
        verbs.cat(store, name, None, None, None, digest.update)
        sums[name] = digest.hexdigest()
    return sums


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_files_become_cold_sealed_segments_of_their_names(spark: SparkSession, store: app.Store, source: Path) -> None:
    (source / "deep").chmod(0o700)
    (source / "a.log").chmod(0o640)
    os.utime(source / "a.log", ns=(1, 7))
    watcher = Watcher()
    result = ingest_files(spark, store, [str(source)], "in/here", show=watcher)
    assert held(store) == {f"in/here/{name}": sha(data) for name, data in DATA.items()}
    assert sorted(result.rows) == sorted((f"in/here/{name}", len(data)) for name, data in DATA.items())
    assert watcher.last == (sum(map(len, DATA.values())),) * 2
    assert watcher.tasks[0] == watcher.tasks[1] > 0
    with store.metadata.read() as txn:
        segment = directories.segment_by_name(txn, "in/here/deep/er/b.bin")
        file = directories.segment_by_name(txn, "in/here/a.log").file
        deep = directories.directory(txn, directories.must_find(txn, "in/here/deep").id)
    assert (stat.S_IMODE(file.mode), file.modified_ns, file.length, stat.S_IMODE(deep.mode)) == (0o640, 7, 4000, 0o700)
    assert (segment.sealed, segment.readable_bytes(Tier.COLD), segment.local.count) == (True, 700_000, 0)


def test_a_version_is_ingested_once(spark: SparkSession, store: app.Store, source: Path) -> None:
    """One of several directories keeps its name."""
    (source / "deep").chmod(0o700)
    paths = [f"{source}/deep/", str(source / "a.log")]
    first = ingest_files(spark, store, paths, "in", batch=Batch("nightly", 7))
    again = ingest_files(spark, store, paths, "in", batch=Batch("nightly", 7))
    assert (first.summary["repeated"], again.summary["repeated"], again.rows) == (False, True, [])
    assert sorted(held(store)) == ["in/a.log", "in/deep/empty", "in/deep/er/b.bin"]
    with store.metadata.read() as txn:
        assert stat.S_IMODE(directories.directory(txn, directories.must_find(txn, "in/deep").id).mode) == 0o700
    with pytest.raises(AlreadyExists, match="3 of the segments already exist"):
        ingest_files(spark, store, paths, "in", batch=Batch("nightly", 8))
    (source / "deep" / "new").write_bytes(b"new")
    more = ingest_files(spark, store, paths, "in", skip_existing=True)
    assert (more.rows, more.summary["skipped"]) == ([("in/deep/new", 3)], 3)


def test_rows_become_segments_by_key_in_their_order(spark: SparkSession, store: app.Store) -> None:
    """Lines of text, and binary values back to back."""
    rows = [(f"day={day}", number, f"{day}: line {number}") for day in range(3) for number in range(500)]
    random.Random(1).shuffle(rows)
    table = spark.createDataFrame(rows, "day string, number long, value string").repartition(5)
    ingest(table, store, "tables", key="day", order_by=["number"])
    table = spark.createDataFrame([(1, 7, b"\0a"), (2, 7, b"\n")], "n long, k long, payload binary")
    ingest(table, store, "", key="k", value="payload", order_by=["payload", "n"])
    expected = {
        f"tables/day={day}": sha("".join(f"{day}: line {number}\n" for number in range(500)).encode())
        for day in range(3)
    }
    assert held(store) == expected | {"7": sha(b"\0a\n")}


def test_what_cannot_be_ingested_leaves_no_segment_and_no_object(spark: SparkSession, store: app.Store) -> None:
    """It is told before tasks start, but for a value that a task finds."""
    table = spark.createDataFrame([("a/../b", 1, "x"), (None, 2, "y")], "k string, n long, value string")
    for key, value, message in (
        ("nope", "value", "no column nope"),
        ("k", "n", "the column n is bigint"),
        ("k", "value", "a key is null"),
    ):
        with pytest.raises(InvalidRequest, match=message):
            ingest(table, store, "in", key=key, value=value)
    with pytest.raises(InvalidRequest):
        ingest(table.dropna(), store, "in", key="k")
    with pytest.raises(InvalidRequest, match="a value is null"):
        ingest(table, store, "in", key="n", value="k")
    append(store, "in/1", b"there")
    with pytest.raises(AlreadyExists, match="1 of the segments already exist: in/1"):
        ingest(table, store, "in", key="n")
    assert list(held(store)) == ["in/1"]
    verbs.collect(store, grace_s=0)
    assert [path for path in (store.path / "cold" / "uploads").rglob("*") if path.is_file()] == []


def test_large_files_are_alone_and_small_ones_together() -> None:
    files = [SourceFile(f"/{size}", f"{size}", size << 20, 0) for size in (1, 300, 2, 3)]
    assert [[one.size_bytes >> 20 for one in task] for task in tasks_of(files)] == [[300], [3, 2, 1]]


def test_two_files_of_one_name_and_a_file_that_changes_meanwhile_are_refused(source: Path) -> None:
    with pytest.raises(InvalidRequest, match=r"would both become a\.log"):
        files_of([f"{source}/.", str(source / "a.log")])
    with pytest.raises(NotFound):
        files_of([str(source / "nope")])
    (one,) = files_of([str(source / "a.log")])
    one.require_unchanged(one.size_bytes)
    with pytest.raises(Conflict):
        one.require_unchanged(one.size_bytes - 1)
    (source / "a.log").write_bytes(b"other")
    with pytest.raises(Conflict):
        one.require_unchanged(one.size_bytes)
