"""Upkeep of tables: rows go with their bytes if that is wanted, small files become one, and no kill changes a row."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.mount.conftest import append
from tests.pipeline.spark.tables import Killed, Lake, lines_of, lines_up_to
from tests.pipeline.spark.test_table_job import LINES, OBJECTS, numbers
from tests.verbs import delete
from tierfs.app import store as app
from tierfs.app.verbs import empty_trash, move, restore
from tierfs.base.words.errors import Conflict, InvalidRequest
from tierfs.pipeline.spark.jobs.live_segments import live_segments
from tierfs.pipeline.spark.jobs.table import TableRows, TableWanted
from tierfs.pipeline.spark.jobs.table_upkeep import TableUpkeep
from tierfs.pipeline.spark.tables import table_files
from tierfs.pipeline.spark.tables.followed_table import RoundFiles
from tierfs.pipeline.spark.tables.iceberg_table import IcebergTable

pytestmark = [pytest.mark.spark, pytest.mark.timeout(420, method="thread")]

DROPPED = TableWanted(("logs",), drops=True)


def killed_at_each_step(run: Callable[[Callable[[str], None]], object]) -> list[str]:
    """Run again and again, each time up to one more step, until nothing ends it; return the steps of the last run."""
    steps: list[str] = []
    allowed = 0

    def kill(step: str) -> None:
        steps.append(step)
        if len(steps) > allowed:
            raise Killed(step)

    for allowed in range(20):  # noqa: B007
        steps.clear()
        with suppress(Killed):
            run(kill)
            return list(steps)
    raise AssertionError(steps)


def test_rows_go_with_their_bytes(lake: Lake) -> None:
    """Not those of segments that were moved, concatenated, or are in the trash."""
    store = lake.store
    for name in ("cut", "gone", "here", "joined", "moved", "trash"):
        append(store, f"logs/{name}", b"".join(b"%s %d\n" % (name.encode(), n) for n in range(4)), seal=name != "here")
    lake.follow("web", DROPPED)
    store.engine.truncate("logs/cut", 10, cold_due_ms=0)  # in the middle of the second line
    delete(store, "logs/gone", recursive=False, now=True)
    append(store, "logs/gone", b"another\n", seal=True)
    store.engine.concat("logs/here", "logs/joined")
    move(store, "logs/moved", "elsewhere")
    delete(store, "logs/trash", recursive=False)
    killed_at_each_step(lambda kill: lake.follow("web", DROPPED, kill))
    rows = {(segment, text) for segment, _, text in lines_of(lake.rows("web"))}
    whole = {(f"logs/{name}", f"{name} {n}") for name in ("here", "joined", "moved", "trash") for n in range(4)}
    assert rows == whole | {("logs/cut", "cut 2"), ("logs/cut", "cut 3"), ("logs/gone", "another")}
    assert len(lake.rows("web")) == lake.table("web").head().rows == len(rows)
    restore(store, "logs/trash")
    assert lake.follow("web", DROPPED) == []
    delete(store, "logs/trash", recursive=False)
    empty_trash(store)
    store.engine.truncate("logs/here", 14, cold_due_ms=0)
    assert [(done.rows, done.dropped) for done in lake.follow("web", DROPPED)] == [(0, 6)]
    rows -= {("logs/trash", f"trash {n}") for n in range(4)} | {("logs/here", "here 0"), ("logs/here", "here 1")}
    assert {(segment, text) for segment, _, text in lines_of(lake.rows("web"))} == rows
    lake.follow("web", LINES)
    store.engine.truncate("logs/here", 28 + 9, cold_due_ms=0)  # behind the first line that was another segment's
    delete(store, "logs/cut", recursive=False, now=True)
    lake.follow("web", LINES)
    assert len(lake.rows("web")) == len(rows)


@pytest.mark.parametrize("lake", ["iceberg"], indirect=True)
def test_bad_lines_go_too_and_a_run_that_goes_on_notices(lake: Lake) -> None:
    wanted = TableWanted(("logs",), TableRows.JSON, schema="n long", drops=True)
    append(lake.store, "logs/a", numbers(0, 2) + b"bad\n", seal=True)
    append(lake.store, "logs/b", numbers(2, 2) + b"worse\n", seal=True)
    with lake.follower("objects", wanted) as follower:
        assert follower.round() is not None
        assert follower.round() is None
        delete(lake.store, "logs/a", recursive=False, now=True)
        done = follower.round()
        assert done is not None
        assert done.dropped == 3
        assert follower.round() is None
    assert sorted(row["n"] for row in lake.rows("objects")) == [2, 3]
    assert [row["line"] for row in lake.rows("objects_bad")] == ["worse"]
    assert lake.offset("objects") == lake.offset("objects_bad")


@pytest.mark.parametrize("lake", ["parquet"], indirect=True)
@pytest.mark.parametrize("files", [1, 2], ids=["parts", "whole"])
def test_rows_that_another_run_adds_meanwhile_never_go(lake: Lake, files: int) -> None:
    """Their segments are younger than what is known of the store: the offset, which has moved, shows it."""
    append(lake.store, "logs/a", b"one\n", seal=True)
    lake.follow("web", DROPPED)
    with lake.store.metadata.read() as txn:
        live = live_segments(txn)
    at = lake.offset("web")
    for number in range(files):
        append(lake.store, f"logs/b{number}", b"two\n", seal=True)
        lake.follow("web", DROPPED)
    if files == 1:
        TableUpkeep(lake.spark, lake.table("web"), lambda _: None).compact(2)
    before = sorted(lines_of(lake.rows("web")))
    upkeep = TableUpkeep(lake.spark, lake.table("web"), lambda _: None)
    with pytest.raises(Conflict, match="another run added rows"):
        upkeep.drop(live, "segment_birth", "offset", at)
    assert sorted(lines_of(lake.rows("web"))) == before
    assert len(before) == 1 + files


@pytest.mark.parametrize("lake", ["parquet"], indirect=True)
def test_rows_whose_bytes_are_unknown_never_go(lake: Lake) -> None:
    append(lake.store, "logs/web", b"one\n", seal=False)
    lake.follow("web", LINES)
    with pytest.raises(InvalidRequest, match="has no column segment_birth"):
        lake.follow("web", DROPPED)


def test_small_files_become_one_of_each_partition(lake: Lake) -> None:
    for number in range(3):
        append(lake.store, "logs/a", numbers(number, 1, day=1) + numbers(10 + number, 1, day=2), seal=False)
        lake.follow("objects", OBJECTS)
    rows = sorted((row["_segment"], row["_offset"], row["n"], row["at"]) for row in lake.rows("objects"))
    offset, count = lake.offset("objects"), lake.table("objects").head().rows
    assert len(lake.table("objects").data_files()) == 6
    tries: list[list[str]] = []

    def run(kill: Callable[[str], None]) -> None:
        with lake.follower("objects", OBJECTS, kill) as follower:
            tries.append([each.path for each in lake.table("objects").data_files()])
            assert (
                sorted((row["_segment"], row["_offset"], row["n"], row["at"]) for row in lake.rows("objects")) == rows
            )
            if len(tries[-1]) > 2:
                assert follower.compact(2) == (6, 2)

    killed_at_each_step(run)
    assert [len(each) for each in tries] == [6, 6, 6]
    assert len(lake.table("objects").data_files()) == 2
    assert sorted((row["_segment"], row["_offset"], row["n"], row["at"]) for row in lake.rows("objects")) == rows
    assert (lake.offset("objects"), lake.table("objects").head().rows) == (offset, count)
    append(lake.store, "logs/a", numbers(3, 1), seal=False)
    assert [done.rows for done in lake.follow("objects", OBJECTS)] == [1]
    written = {path for path in (lake.directory).rglob("*.parquet") if not path.name.startswith(".")}
    if lake.format == "parquet":
        assert len(written) == 3
        return
    with lake.follower("objects", OBJECTS) as follower:
        assert follower.expire(0) > 0
    assert lake.offset("objects") is not None
    assert len(lake.rows("objects")) == 7
    left = {path for path in lake.directory.rglob("*.parquet") if not path.name.startswith(".")}
    assert len(left) == 3


def test_expired_versions_keep_the_last_offset(spark: SparkSession, opened: app.Store, tmp_path: Path) -> None:
    lake = Lake.of(spark, opened, tmp_path / "lake", "iceberg")
    for text in (b"one\n", b"two\n", b"three\n"):
        append(opened, "logs/web", text, seal=False)
        lake.follow("web", LINES)
    with lake.follower("web", LINES) as follower:
        assert follower.compact(2) == (3, 1)  # a version without an offset
        assert follower.expire(3600) == 0
        assert follower.expire(0) == 2
    truth = lines_up_to(opened, lake.offset("web"), ["logs/web"])
    assert len(truth) == 3
    assert lines_of(lake.rows("web")) == truth


def test_a_replacement_fails_after_another_run(lake: Lake) -> None:
    """Whether that run added rows, or replaced the same files."""
    append(lake.store, "logs/web", b"one\n", seal=False)
    lake.follow("web", LINES)
    append(lake.store, "logs/web", b"two\n", seal=False)
    table = lake.table("web")
    head, files = table.head(), table.data_files()
    assert head.offset is not None
    lake.follow("web", LINES)
    nothing = RoundFiles([], head.offset, 0, "")
    with pytest.raises(Conflict):
        table.replace(head, files, nothing, 1)
    table = lake.table("web")
    head, files = table.head(), table.data_files()
    with lake.follower("web", LINES) as follower:
        assert follower.compact(2) == (2, 1)
    with pytest.raises(Conflict):
        table.replace(head, files, nothing, 0)
    assert len(lake.rows("web")) == 2


class Renaming(IcebergTable):
    """A table whose columns another program renames."""

    def rename(self, old: str, new: str) -> None:
        assert self.head().exists
        self._table.updateSchema().renameColumn(old, new).commit()


def test_files_are_read_by_names_that_had_one_meaning(spark: SparkSession, opened: app.Store, tmp_path: Path) -> None:
    lake = Lake.of(spark, opened, tmp_path / "lake", "iceberg")
    append(opened, "logs/web", b"one\n", seal=False)
    lake.follow("web", LINES)
    table = Renaming(spark, "lake.logs.web")
    table.rename("value", "text")
    with pytest.raises(InvalidRequest, match=r"value of lake\.logs\.web was renamed"):
        TableUpkeep(spark, table, lambda _: None).compact(2)


def test_a_round_that_was_killed_after_its_commit_keeps_its_files(
    spark: SparkSession, opened: app.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mark of its files is still there: the next run looks in the snapshots. Files that none has go."""
    lake = Lake.of(spark, opened, tmp_path / "lake", "iceberg")
    data = tmp_path / "lake/logs/web/data"

    def killed(step: str) -> None:
        if step == "commit":
            raise Killed(step)

    def remove(files: table_files.HadoopFiles, path: str) -> None:
        raise Killed(path)

    def staged() -> tuple[int, int]:
        return len(list((data / "_tierfs").glob("[0-9a-f]*"))), len(list(data.glob("tierfs-*")))

    append(opened, "logs/web", b"one\n", seal=False)
    with monkeypatch.context() as patch, suppress(Killed):
        patch.setattr(table_files.HadoopFiles, "remove", remove)
        lake.follow("web", LINES)
    assert staged() == (1, 1)
    append(opened, "logs/web", b"two\n", seal=False)
    with suppress(Killed):
        lake.follow("web", LINES, killed)
    assert staged() == (1, 2)
    assert lines_of(lake.rows("web")) == [("logs/web", 0, "one")]
    assert [done.rows for done in lake.follow("web", LINES)] == [1]
    assert staged() == (0, 2)
    assert lines_of(lake.rows("web")) == [("logs/web", 0, "one"), ("logs/web", 4, "two")]
