"""Tables that follow segments: each line once, whatever is killed, and the same rows for every reader."""

from __future__ import annotations

import time
from contextlib import closing, suppress
from pathlib import Path

import duckdb
import pytest
from pyspark.sql import SparkSession

from tests.engine.ledger.message_entries import batch, in_batch, proto
from tests.engine.ledger.rocketmq import message
from tests.mount.conftest import append
from tests.pipeline.spark.reading import make_cold
from tests.pipeline.spark.tables import Killed, Lake, lines_of, lines_up_to, objects
from tests.pipeline.spark.written import read
from tierfs.app import store as app
from tierfs.base.system.locks import LockFile
from tierfs.base.words.errors import Conflict, DataLoss, InvalidRequest
from tierfs.engine.segments.ledgers import make
from tierfs.pipeline.spark.jobs.table import TableRows, TableWanted
from tierfs.pipeline.spark.tables import table_files
from tierfs.pipeline.spark.tables.followed_table import RoundFiles
from tierfs.pipeline.spark.tables.partition_fields import parse_fields

pytestmark = [pytest.mark.spark, pytest.mark.timeout(420, method="thread")]

LINES = TableWanted(("logs",))
OBJECTS = TableWanted(("logs",), TableRows.JSON, schema="n long, at timestamp", partition_by=parse_fields(["day(at)"]))


def numbers(first: int, count: int, day: int = 1) -> bytes:
    return b"".join(b'{"n": %d, "at": "2031-01-%02dT10:00:00Z"}\n' % (n, day) for n in range(first, first + count))


def test_each_line_is_a_row_once_and_all_readers_agree(lake: Lake, spark: SparkSession) -> None:
    append(lake.store, "logs/web", b"one\ntwo\nhalf", seal=False)
    append(lake.store, "logs/app", b"three\n", seal=True)
    make_cold(lake.store, "logs/app")
    first = lake.follow("web", LINES)
    assert [(done.rows, done.bad) for done in first] == [(3, 0)]
    assert lake.follow("web", LINES) == []
    append(lake.store, "logs/web", b" line\nlast\n", seal=False)
    append(lake.store, "logs/new", b"four\n", seal=True)
    assert [done.rows for done in lake.follow("web", LINES)] == [3]
    truth = lines_up_to(lake.store, lake.offset("web"), ["logs/web", "logs/app", "logs/new"])
    assert len(truth) == 6
    assert lines_of(lake.rows("web")) == truth
    if lake.format != "parquet":
        by_spark = spark.read.parquet(*lake.files("web"))
        by_duckdb = duckdb.read_parquet(lake.files("web")).to_arrow_table().to_pylist()
        assert lines_of(by_duckdb) == truth
    else:
        by_spark = spark.read.parquet(str(lake.directory / "web"))
    assert lines_of([row.asDict() for row in by_spark.collect()]) == truth


# Delta stages files as Iceberg does; its commits are those of test_delta_table.py.
@pytest.mark.parametrize("lake", ["iceberg", "parquet", pytest.param("delta", marks=pytest.mark.whole)], indirect=True)
def test_a_kill_before_any_step_adds_nothing_twice(lake: Lake) -> None:
    """Each run ends before its next step, and the one after it makes that step and those behind it."""
    names = ["logs/a", "logs/b"]
    append(lake.store, "logs/a", numbers(0, 5) + b"no json\n" + numbers(5, 2, day=2) + b'{"n": "x"}\n', seal=False)
    steps: list[str] = []
    at = 0
    was_killed = True

    def kill(step: str) -> None:
        nonlocal was_killed
        steps.append(step)
        if len(steps) > at:
            was_killed = True
            raise Killed(step)

    while was_killed:
        was_killed = False
        steps.clear()
        append(lake.store, names[at % 2], numbers(100 * at + 10, 2, day=3) + b"%d\n" % at, seal=False)
        with suppress(Killed):
            lake.follow("objects", OBJECTS, kill)
        if lake.table("objects").head().exists:
            good, _ = objects(lines_up_to(lake.store, lake.offset("objects"), names))
            assert sorted((row["_segment"], row["_offset"], row["n"]) for row in lake.rows("objects")) == good
            _, bad = objects(lines_up_to(lake.store, lake.offset("objects_bad"), names))
            assert sorted((row["segment"], row["offset"], row["line"]) for row in lake.rows("objects_bad")) == bad
        at += 1
    assert at > len(steps) > 4, "there is a kill before each step of a run that finds its tables"
    good, bad = objects(lines_up_to(lake.store, lake.offset("objects"), names))
    assert lake.offset("objects") == lake.offset("objects_bad")
    assert len(good) == 7 + 2 * at
    assert len(bad) == 2 + at
    assert sorted((row["_segment"], row["_offset"], row["n"]) for row in lake.rows("objects")) == good
    reasons = {row["line"]: row["reason"] for row in lake.rows("objects_bad")}
    assert sorted(reasons) == sorted(line for _, _, line in bad)
    assert reasons["no json"] == "not JSON"
    assert reasons['{"n": "x"}'] == "n is no bigint"
    assert reasons["0"] == "not a JSON object"


def test_a_kill_while_files_are_moved(
    spark: SparkSession, opened: app.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files of a directory are moved one by one: a killed run leaves some, and the next one moves them."""
    lake = Lake.of(spark, opened, tmp_path / "lake", "parquet")
    for name in "abc":
        append(opened, f"logs/{name}", numbers(0, 2, day=ord(name) - 96), seal=False)
    left = 0
    moved = table_files.HadoopFiles.move
    removed = table_files.HadoopFiles.remove

    def counted(do: object) -> None:
        nonlocal left
        left -= 1
        if not left:
            raise Killed(str(do))

    def move(files: table_files.HadoopFiles, source: str, goal: str) -> None:
        counted(goal)
        moved(files, source, goal)

    def remove(files: table_files.HadoopFiles, path: str) -> None:
        counted(path)
        removed(files, path)

    monkeypatch.setattr(table_files.HadoopFiles, "move", move)
    monkeypatch.setattr(table_files.HadoopFiles, "remove", remove)
    for kill_at in range(1, 12):
        left = kill_at
        try:
            lake.follow("objects", OBJECTS)
        except Killed:
            continue
        append(opened, "logs/a", numbers(kill_at * 10, 1), seal=False)
    left = 0
    lake.follow("objects", OBJECTS)
    names = [f"logs/{name}" for name in "abc"]
    good, bad = objects(lines_up_to(opened, lake.offset("objects"), names))
    assert bad == []
    assert sorted((row["_segment"], row["_offset"], row["n"]) for row in lake.rows("objects")) == good
    assert not list((tmp_path / "lake/objects/_tierfs").glob("staged-*"))


def test_of_two_runs_one_adds_nothing(lake: Lake) -> None:
    append(lake.store, "logs/web", b"one\n", seal=False)
    lake.follow("web", LINES)
    first, second = lake.table("web"), lake.table("web")
    head, late = first.head(), second.head()
    with first.held(), pytest.raises(Conflict, match="another run follows"), second.held():
        pass
    (path,) = lake.directory.glob("**/web/**/_tierfs.lock")
    with first.held(), closing(LockFile(path, looks=True)) as seen:
        assert seen.is_locked(start=0, length=1)
        assert seen.is_locked(start=1, length=1), "Java has its own, which ends with it"
    with closing(LockFile(path, looks=True)) as seen:
        assert not seen.is_locked()
    append(lake.store, "logs/web", b"two\n", seal=False)
    lake.follow("web", LINES)
    assert late == head
    assert late.offset is not None
    again = RoundFiles([], late.offset, 0, second.staging())
    with pytest.raises(Conflict, match="another run added rows"):
        second.commit(late, again)
    assert lines_of(lake.rows("web")) == [("logs/web", 0, "one"), ("logs/web", 4, "two")]


def test_fields_that_are_new_become_columns(lake: Lake) -> None:
    evolving = TableWanted(("logs",), TableRows.JSON, evolves=True)
    append(lake.store, "logs/web", b'{"n": 1}\n', seal=False)
    lake.follow("objects", evolving)
    append(lake.store, "logs/web", b'{"n": 2, "host": {"name": "a"}}\n{"n": "text"}\n', seal=False)
    assert [(done.rows, done.bad) for done in lake.follow("objects", evolving)] == [(1, 1)]
    found = sorted((row["n"], (row["host"] or {}).get("name")) for row in lake.rows("objects"))
    assert found == [(1, None), (2, "a")]
    assert [row["line"] for row in lake.rows("objects_bad")] == ['{"n": "text"}']


@pytest.mark.parametrize("lake", ["delta"], indirect=True)
def test_directories_are_columns_and_an_offset_at_rest_is_renewed(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = TableWanted(("logs",), TableRows.JSON, schema="n long", partition_by=parse_fields(["host"]))
    append(lake.store, "logs/host=a/1", numbers(1, 2), seal=False)
    append(lake.store, "logs/host=b/1", numbers(3, 1), seal=True)
    with lake.follower("hosts", wanted) as follower:
        assert follower.round() is not None
        assert sorted((row["host"], row["n"]) for row in lake.rows("hosts")) == [("a", 1), ("a", 2), ("b", 3)]
        assert {path.rpartition("/field-0=")[2][0] for path in lake.files("hosts")} == {"a", "b"}
        before = [lake.table(name).head() for name in ("hosts", "hosts_bad")]
        assert follower.round() is None
        assert [lake.table(name).head() for name in ("hosts", "hosts_bad")] == before
        later = time.time_ns() + 8 * 24 * 3600 * 10**9
        with monkeypatch.context() as patch:
            patch.setattr(time, "time_ns", lambda: later)
            assert follower.round() is None
        after = [lake.table(name).head() for name in ("hosts", "hosts_bad")]
        assert [head.mark for head in after] == [head.mark + 1 for head in before]
        assert [head.offset for head in after] == [head.offset for head in before]


@pytest.mark.parametrize("lake", ["delta"], indirect=True)
def test_a_table_keeps_its_recipe_and_notices_lost_bytes(lake: Lake, expected_warnings: list[str]) -> None:
    append(lake.store, "logs/web", b"one\n" * 10, seal=False)
    lake.follow("web", LINES)
    with pytest.raises(InvalidRequest, match="reads lines of logs"):
        lake.follow("web", TableWanted(("logs/web",)))
    with pytest.raises(InvalidRequest, match="further columns"):
        lake.follow("web", TableWanted(("logs",), columns=(("size", "length(value)"),)))
    append(lake.store, "logs/web", b"two\n" * 10, seal=False)
    lake.store.engine.truncate("logs/web", 60, cold_due_ms=0)
    with pytest.raises(DataLoss):
        lake.follow("web", LINES)
    expected_warnings.append("now starts at 60, but was read up to 40")
    lost = TableWanted(("logs",), skips_lost=True)
    assert [done.rows for done in lake.follow("web", lost)] == [5]
    assert len(lake.rows("web")) == 15


@pytest.mark.parametrize("lake", ["parquet"], indirect=True)
def test_messages_of_ledgers_are_rows_once(lake: Lake) -> None:
    wanted = TableWanted(("topic",), TableRows.MESSAGES, partition_by=parse_fields(["ledger_id"]))
    with lake.store.metadata.write() as txn:
        name = make(txn, "topic")
    for number in range(2):
        writer = lake.store.engine.open_ledger(name)
        labels = (2, f"k{number}"), (1, proto((1, "name"), (2, "value")))  # a key and a property
        writer.append_entries([batch(in_batch(b"%d.0" % number, *labels), in_batch(b"%d.1" % number))])
        lake.store.engine.close_writer(writer)
        assert [done.rows for done in lake.follow("messages", wanted)] == [2]
    rows = lake.rows("messages")
    assert sorted((row["entry_id"], row["batch_index"], row["payload"]) for row in rows) == [
        (number, index, b"%d.%d" % (number, index)) for number in range(2) for index in range(2)
    ]
    assert {row["segment"] for row in rows} == {name}
    assert {row["publish_time"].timestamp() for row in rows} == {1_700_000_000}
    assert {(row["batch_index"], row["key"], *dict(row["properties"] or {})) for row in rows} == {
        (0, "k0", "name"),
        (0, "k1", "name"),
        (1, None),
    }


@pytest.mark.parametrize("lake", ["iceberg", "delta"], indirect=True)
def test_messages_of_rocketmq_are_rows_once(lake: Lake) -> None:
    wanted = TableWanted(("mq/*/commitlog",), TableRows.ROCKETMQ)
    name, data = "mq/orders/commitlog", b""
    for number in range(2):
        texts = {"KEYS": f"k{number}", "TAGS": "t", "more": "m"}
        data += message(b"body", queue_offset=number, log_offset=len(data), store_ms=1000 + number, properties=texts)
        append(lake.store, name, data[len(read(lake.store, name)) if number else 0 :], seal=False)
        assert [done.rows for done in lake.follow("messages", wanted)] == [1]
    append(lake.store, name, message(b"half")[:50], seal=False)
    assert lake.follow("messages", wanted) == []
    rows = sorted(lake.rows("messages"), key=lambda row: row["queue_offset"])
    assert [(row["queue_offset"], row["offset"]) for row in rows] == [(0, 0), (1, len(data) // 2)]
    assert {(row["topic"], row["queue_id"], row["payload"], row["tags"]) for row in rows} == {
        ("orders", 3, b"body", "t")
    }
    assert [row["key"] for row in rows] == ["k0", "k1"]
    assert dict(rows[1]["properties"]) == {"KEYS": "k1", "TAGS": "t", "more": "m"}
    assert [row["publish_time"].timestamp() for row in rows] == [0.995, 0.996]
    assert [row["store_time"].timestamp() for row in rows] == [1.0, 1.001]
