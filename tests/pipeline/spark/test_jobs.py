"""Pipeline jobs with a real Spark: in this process, by the command line, and by spark-submit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests import verbs
from tests.commands import tierfs
from tests.engine.ledger.message_entries import batch, in_batch
from tests.pipeline.reader.reading import fill
from tests.pipeline.reader.test_scrubbing import BOTH, SMALL, cold_ledger, file_of, flip, holder_of
from tests.pipeline.reader.test_scrubbing import store as scrub_store
from tests.pipeline.spark.conftest import SETTINGS
from tests.servers.spark_cluster import ROOT, spark_home
from tests.tiering.adoption.foreign import write_files
from tests.tiering.adoption.pulsar import in_files, offloaded
from tests.tiering.adoption.test_ledger_rescan import lose, rows
from tierfs.app import store
from tierfs.base.bytes.progress import Progress
from tierfs.base.words.errors import AlreadyExists, DataLoss, InvalidRequest, NotFound, TierfsError
from tierfs.base.words.types import Tier
from tierfs.engine.ledger.messages import decode
from tierfs.pipeline.spark.jobs.export import Exporting, IfThere, export
from tierfs.pipeline.spark.jobs.rebuild import rebuild
from tierfs.pipeline.spark.jobs.scrub import scrub
from tierfs.pipeline.spark.jobs.table_run import TableRun, check_run
from tierfs.pipeline.spark.jobs.tasks import Tasks
from tierfs.pipeline.spark.row_types import RowType
from tierfs.pipeline.spark.tables.table_files import HadoopFiles

__all__ = ["scrub_store"]

pytestmark = [pytest.mark.spark, pytest.mark.slow]

CONF = [word for name, value in SETTINGS.items() for word in ("--conf", f"{name}={value}")]


def messages_of(number: int) -> list[bytes]:
    return [f"message {number}.{index}".encode() for index in range(3)]


def pulsar_batch(number: int) -> bytes:
    return batch(*(in_batch(payload) for payload in messages_of(number)))


class Watcher:
    """Keeps what was shown of the progress."""

    def __init__(self) -> None:
        self.last = (0, 0)
        self.tasks = (0, 0)

    def __call__(self, progress: Progress) -> None:
        self.last = (progress.done_bytes, progress.total_bytes)
        self.tasks = (progress.done_items, progress.total_items)


def test_scrub_shows_how_far_it_is_and_names_what_is_wrong(spark: SparkSession, scrub_store: store.Store) -> None:
    watcher = Watcher()
    result = scrub(spark, scrub_store, show=watcher, partition_bytes=1 << 20)
    cold_bytes = len(BOTH) + sum(map(len, SMALL))
    assert result.rows == []
    assert (result.summary["local_bytes"], result.summary["cold_bytes"]) == (cold_bytes + 4, cold_bytes)
    assert watcher.last == (2 * cold_bytes + 4, 2 * cold_bytes + 4)
    assert watcher.tasks[0] == watcher.tasks[1] > 0
    flip(scrub_store, "logs/both", Tier.LOCAL, 500_000)
    flip(scrub_store, "small/3", Tier.COLD, 10)
    gone, _ = holder_of(scrub_store, "logs/both", Tier.COLD, 0)
    file_of(scrub_store, gone).unlink()
    bad = scrub(spark, scrub_store).data_frame(spark).orderBy("segment", "tier").collect()
    block = 500_000 - 500_000 % (1 << 17)
    assert [(row.segment, row.tier, row.offset, row.length, row.fault) for row in bad] == [
        ("logs/both", "cold", 0, gone.length, "missing"),
        ("logs/both", "local", block, 1 << 17, "damaged"),
        ("small/3", "cold", 0, len(SMALL[3]), "damaged"),
    ]
    assert bad[0].object == gone.name


def test_a_cold_tier_that_is_away_makes_nothing_damaged(spark: SparkSession, scrub_store: store.Store) -> None:
    cold_bytes = len(BOTH) + sum(map(len, SMALL))
    (scrub_store.path / "cold").rename(scrub_store.path / "unmounted")
    unseen = scrub(spark, scrub_store).summary  # this process has the directory open, and executors find none
    with store.open_store(scrub_store.path) as again:
        away = scrub(spark, again).summary
    found = [(one["damaged_bytes"], one["unseen_bytes"], one["unreachable_bytes"]) for one in (unseen, away)]
    assert found == [(0, cold_bytes, 0), (0, 0, cold_bytes)]


def test_scrub_looks_for_the_objects_of_ledgers_without_bytes(spark: SparkSession, tmp_path: Path) -> None:
    """No chunk refers to them: nothing is read, and that they are gone has to be seen."""
    empty = offloaded([b"", b""])
    root, path = write_files(tmp_path / "theirs", in_files(empty)), tmp_path / "store"
    tierfs("-q", "init", store=path)
    tierfs("-q", "adopt", "--as", "pulsar", root, "--into", "in", store=path)
    with store.open_store(path) as opened:
        assert (scrub(spark, opened).rows, scrub(spark, opened).summary["absent_objects"]) == ([], 0)
        (root / f"{empty.key}-index").unlink()
        done = scrub(spark, opened)
        ((name, _, key, *_, fault, why),) = done.rows
        assert (name.rpartition("/")[2], key, fault) == (f"{7:020d}", empty.key, "missing")
        assert (done.summary["absent_objects"], f"{empty.key}-index: it is missing" in why) == (1, True)
        (root / empty.key).unlink()
        away = scrub(spark, opened).summary
        assert (away["absent_objects"], away["unreachable_objects"]) == (0, 1)


def fail(number: int, done: object) -> int:
    raise DataLoss(f"task {number}\nhas {{lost}} it", remedy="run: tierfs check")


def test_errors_of_tasks_and_plans_arrive_as_they_were(
    spark: SparkSession, scrub_store: store.Store, tmp_path: Path
) -> None:
    with pytest.raises(NotFound, match="nope does not exist in the store"):
        scrub(spark, scrub_store, ["nope"])
    with pytest.raises(DataLoss) as lost:
        Tasks(spark).run(fail, [7])
    assert (str(lost.value), lost.value.remedy) == ("task 7\\nhas {lost} it", "run: tierfs check")
    target = str(tmp_path / "table")
    refusals: tuple[tuple[str, Exporting, type[TierfsError], str], ...] = (
        ("nope", Exporting(), NotFound, "nope does not exist"),
        ("small", Exporting(partition_by=("day",)), InvalidRequest, "no column day"),
        ("small", Exporting(unbatch=True), InvalidRequest, "--unbatch is only for entries"),
        ("small", Exporting(if_there=IfThere.APPEND), InvalidRequest, "needs a run name"),
    )
    for path, how, error, message in refusals:
        with pytest.raises(error, match=message):
            export(spark, str(scrub_store.path), [path], target, how)
    assert not (tmp_path / "table").exists()


@pytest.fixture
def lines(scrub_store: store.Store) -> list[tuple[str, str]]:
    """Segments of lines, in chunks of both tiers, with and without an end."""
    texts = {"text/a": b"one\r\ntwo\n" * 100, "text/deep/b": "drei\n\nvier äöü".encode(), "text/empty": b""}
    for name, data in texts.items():
        fill(scrub_store, data, name=name, seal=True)
    return sorted((name, line) for name, data in texts.items() for line in data.decode().splitlines())


def test_exported_lines_are_those_of_the_segments(
    spark: SparkSession, scrub_store: store.Store, lines: list[tuple[str, str]], tmp_path: Path
) -> None:
    """What a killed job of Spark left is nothing; a target that holds something is kept, or replaced as a whole."""
    table, path = tmp_path / "table", str(scrub_store.path)
    (table / "_temporary").mkdir(parents=True)
    how = Exporting(partition_by=("segment",), verify=True)
    watcher = Watcher()
    result = export(spark, path, ["text"], str(table), how, show=watcher, total_bytes=1000)
    assert watcher.last == (1000, 1000)
    found = spark.read.parquet(str(table)).select("segment", "value").collect()
    assert sorted(map(tuple, found)) == lines
    assert result.rows[0][2:4] == (len(lines), sum(len(line.encode()) for _, line in lines))
    with pytest.raises(AlreadyExists, match="is not empty"):
        export(spark, path, ["text"], str(table), how)
    again = export(spark, path, ["text"], str(table), Exporting(compression="gzip", if_there=IfThere.OVERWRITE))
    assert again.rows[0][4] == result.rows[0][4]  # the checksum knows no order of rows
    assert spark.read.parquet(str(table)).count() == len(lines)
    export(spark, path, [""], str(tmp_path / "root"), Exporting())
    assert spark.read.parquet(str(tmp_path / "root")).where("segment LIKE 'text/%'").count() == len(lines)


class Killed(BaseException):
    """The end of the driver."""


def test_an_export_that_was_killed_is_finished_by_its_repeat(
    spark: SparkSession,
    scrub_store: store.Store,
    lines: list[tuple[str, str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Before the rows, before they count as whole, between two files, and before the run is done: a run each."""
    target, there = tmp_path / "table", list[tuple[str, str]]()
    for of, step, calls in (
        (TableRun, "begin", 1),
        (TableRun, "complete", 1),
        (HadoopFiles, "move", 2),
        (HadoopFiles, "write", 2),
    ):
        how = Exporting(partition_by=("segment",), if_there=IfThere.APPEND, verify=True, run=step)
        with monkeypatch.context() as patch:
            patch.setattr(of, step, killed_at(calls, getattr(of, step)))
            with pytest.raises(Killed):
                export(spark, str(scrub_store.path), ["text"], str(target), how)
        if there and step == "complete":
            assert spark.read.parquet(str(target)).count() == len(there), "nothing is seen of a run that is not whole"
        there += lines
        done = export(spark, str(scrub_store.path), ["text"], str(target), how)
        found = spark.read.parquet(str(target)).select("segment", "value").collect()
        assert sorted(map(tuple, found)) == sorted(there), step
        assert done.rows[0][2] == len(lines)
        assert not (target / f"_tierfs-{how.run}").exists()
        again = export(spark, str(scrub_store.path), ["text"], str(target), how)
        assert again.summary["repeated"]
    assert spark.read.parquet(str(target)).count() == len(there)
    with pytest.raises(AlreadyExists, match="a run of this name that exported text with other options"):
        export(spark, str(scrub_store.path), ["small"], str(target), how)
    export(spark, str(scrub_store.path), ["text"], str(target), Exporting(if_there=IfThere.OVERWRITE))
    assert spark.read.parquet(str(target)).count() == len(lines)
    assert list(target.glob("_tierfs-*")) == [target / "_tierfs-export.json"], "runs are gone with their rows"


def killed_at(number: int, original: Callable[..., Any]) -> Callable[..., Any]:
    """A step of a run that is the driver's last at its call of this number."""
    calls = []

    def step(*words: Any) -> Any:
        calls.append(words)
        if len(calls) == number:
            raise Killed
        return original(*words)

    return step


@pytest.mark.parametrize("run", ["a/b", "..", "", " ", "x" * 101, "-"])
def test_impossible_names_of_runs_are_refused(run: str) -> None:
    with pytest.raises(InvalidRequest, match="invalid name of a run"):
        check_run(run)


def test_exported_entries_are_unbatched_by_a_transform(
    spark: SparkSession, scrub_store: store.Store, tmp_path: Path
) -> None:
    name = cold_ledger(scrub_store, [pulsar_batch(number) for number in range(5)])
    whole, single = str(tmp_path / "whole"), str(tmp_path / "single")
    export(spark, str(scrub_store.path), [name], whole, Exporting(RowType.ENTRIES, verify=True))
    export(spark, str(scrub_store.path), [name], single, Exporting(RowType.ENTRIES, unbatch=True, verify=True))
    assert [bytes(row.payload) for row in spark.read.parquet(whole).orderBy("entry_id").collect()] == [
        pulsar_batch(number) for number in range(5)
    ]
    taken = spark.read.parquet(single).orderBy("entry_id", "batch_index").collect()
    found = [decode(bytes(row.payload)).messages[0].payload for row in taken]
    assert found == [message for number in range(5) for message in messages_of(number)]


def test_rows_of_entries_are_rebuilt_once(spark: SparkSession, scrub_store: store.Store) -> None:
    names = [cold_ledger(scrub_store), cold_ledger(scrub_store)]
    before = rows(scrub_store)
    lose(scrub_store)
    (scrub_store.path / "cold" / holder_of(scrub_store, names[1], Tier.COLD, 0)[0].name).unlink()
    watcher = Watcher()
    result = rebuild(spark, scrub_store, show=watcher)
    assert watcher.tasks[0] == watcher.tasks[1] > 0
    assert [(row[0], row[4]) for row in result.rows] == [(names[0], True), (names[1], False)]
    assert rows(scrub_store)[names[0]] == before[names[0]]
    assert [row[0] for row in rebuild(spark, scrub_store).rows] == [names[1]]


def submit(*words: object) -> Any:
    """Run a job with spark-submit; its JSON."""
    script = tierfs("pipeline", "--script").out.strip()
    command = [spark_home() / "bin" / "spark-submit", "--master", "local[1]", *CONF, script, *words, "--json"]
    environment = os.environ | {
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(ROOT),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    line = [str(word) for word in command]
    done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stdout
    return json.loads(done.stdout.splitlines()[-1])


def test_spark_submit_takes_the_same_words(spark: SparkSession, scrub_store: store.Store, tmp_path: Path) -> None:
    table = spark.createDataFrame([("a", "1"), ("b", "2"), ("a", "3")], "k string, value string")
    table.coalesce(1).write.json(str(tmp_path / "table"))
    words = ["--key", "k", "--format", "json", "--into", "t", "--order-by", "value"]
    words += ["--application", "x", "--version", "1", "--store", str(scrub_store.path)]
    found = submit("ingest", tmp_path / "table", *words)
    assert found["rows"] == [{"segment": "t/a", "bytes": 4}, {"segment": "t/b", "bytes": 2}]
    read = bytearray()
    verbs.cat(scrub_store, "t/a", None, None, None, read.extend)
    assert read == b"1\n3\n"
