"""Tables of Delta without Spark: what a commit follows, where the offset is, and which tables are refused."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
from pyspark.sql.types import DateType, IntegerType, LongType, StringType, StructType, TimestampType

from tests.pipeline.spark.test_table_parts import FilesDouble
from tierfs.base.system import extras
from tierfs.base.words.errors import AlreadyExists, Conflict, InvalidRequest, Unavailable
from tierfs.pipeline.commands.table import TableFormat, format_of
from tierfs.pipeline.reader.stream_plan import StreamOffset
from tierfs.pipeline.spark.tables.followed_table import RoundFile, RoundFiles, RowRecipe
from tierfs.pipeline.spark.tables.parquet_footers import ColumnBounds, FileFooter
from tierfs.pipeline.spark.tables.partition_fields import parse_fields

deltalake = pytest.importorskip("deltalake", reason="the package deltalake is not there: make test-deps")

from deltalake.transaction import AddAction, CommitProperties  # noqa: E402

from tierfs.pipeline.spark.tables import delta_storage  # noqa: E402
from tierfs.pipeline.spark.tables.delta_table import DeltaTable  # noqa: E402

SCHEMA = StructType().add("value", StringType()).add("at", TimestampType())
RECIPE = RowRecipe("lines of logs (1)", "lines", partition_by=parse_fields(["day(at)"]))


def up_to(number: int) -> StreamOffset:
    return StreamOffset("s", "lines of logs (1)", number)


def files(*names: str, end: int) -> RoundFiles:
    made = [RoundFile(name, 1, ("2031-01-01",)) for name in names]
    return RoundFiles(made, up_to(end), len(names), "")


class Log(DeltaTable):
    """A table whose files nobody wrote: commits alone."""

    def __init__(self, directory: Path) -> None:
        self.name, self.location, self._address, self._options = "t", str(directory), str(directory), {}
        self._rounds, self._table = MagicMock(), None
        self._files = FilesDouble(is_conditional=False)

    def _added(self, file: RoundFile, fields: Sequence[str], *, is_change: bool) -> AddAction:
        values = dict(zip(fields, file.values, strict=True))
        return AddAction(file.path, file.size_bytes, values, 0, is_change, '{"numRecords": 1}')

    def paths(self) -> list[str]:
        return sorted(each.path.rpartition("/")[2] for each in self.data_files())


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Log:
    """A table with a file of one round."""
    monkeypatch.setattr(FilesDouble, "names", lambda *_: [])
    table = Log(tmp_path / "t")
    table.create(SCHEMA, RECIPE)
    table.commit(table.head(), files("a", end=1))
    return table


def add_elsewhere(log: Log, name: str, custom: dict[str, str] | None = None) -> None:
    """Another program adds a file."""
    table = deltalake.DeltaTable(log.location)
    action = AddAction(name, 1, {"at_day": None}, 0, True, "{}")
    properties = CommitProperties(custom_metadata=custom)
    table.create_write_transaction([action], "append", table.schema(), ["at_day"], commit_properties=properties)


def test_a_new_table_has_parts_of_times_as_columns(log: Log) -> None:
    table = deltalake.DeltaTable(log.location)
    assert [each.name for each in table.schema().fields] == ["value", "at", "at_day"]
    assert table.metadata().partition_columns == ["at_day"]
    head = log.head()
    assert (head.schema, head.recipe, head.offset, head.mark, head.rows) == (SCHEMA, RECIPE, up_to(1), 1, 1)
    assert Log(Path(log.location)).head() == head


def meanwhile(monkeypatch: pytest.MonkeyPatch, do: Callable[[], None]) -> None:
    """Let something happen once, right before the next commit."""
    write = deltalake.DeltaTable.create_write_transaction

    def interrupted(*args: Any, **named: Any) -> None:
        monkeypatch.setattr(deltalake.DeltaTable, "create_write_transaction", write)
        do()
        write(*args, **named)

    monkeypatch.setattr(deltalake.DeltaTable, "create_write_transaction", interrupted)


@pytest.mark.parametrize("is_late", [True, False])
def test_a_commit_of_delta_fails_after_one_of_another_run(
    log: Log, monkeypatch: pytest.MonkeyPatch, is_late: bool
) -> None:
    other = Log(Path(log.location))
    head, late = log.head(), other.head()
    if is_late:
        log.commit(head, files("b", end=2))
    else:
        meanwhile(monkeypatch, lambda: log.commit(head, files("b", end=2)))
    with pytest.raises(Conflict, match="another run added rows to t"):
        other.commit(late, files("c", end=2))
    assert log.paths() == ["a", "b"]


def test_a_commit_of_delta_follows_one_of_another_program(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    head = log.head()
    meanwhile(monkeypatch, lambda: add_elsewhere(log, "x"))
    log.commit(head, files("b", end=2))
    assert log.paths() == ["a", "b", "x"]
    assert (log.head().offset, log.head().mark) == (up_to(2), 3)


def test_a_commit_of_delta_whose_answer_was_lost_is_there_once(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    write = deltalake.DeltaTable.create_write_transaction

    def repeated(*args: Any, **named: Any) -> None:
        write(*args, **named)
        write(*args, **named)

    monkeypatch.setattr(deltalake.DeltaTable, "create_write_transaction", repeated)
    log.commit(log.head(), files("b", end=2))
    assert log.paths() == ["a", "b"]
    assert log.head().mark == 2


def test_an_error_of_the_storage_is_no_conflict(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any, **__: Any) -> None:
        raise deltalake.exceptions.CommitFailedError("no space")

    monkeypatch.setattr(deltalake.DeltaTable, "create_write_transaction", refused)
    with pytest.raises(Unavailable, match="t: no space"):
        log.commit(log.head(), files("b", end=2))
    assert log.paths() == ["a"]


def test_a_file_is_replaced_once(log: Log) -> None:
    """The library itself would remove a file again that another program has replaced."""
    other = Log(Path(log.location))
    old = log.data_files()
    log.replace(log.head(), old, files("b", end=1), 0)
    assert log.paths() == ["b"]
    with pytest.raises(Conflict, match="another program replaced files"):
        other.replace(other.head(), old, files("c", end=1), 0)
    assert log.paths() == ["b"]


def test_a_rollback_takes_the_offset_back(log: Log) -> None:
    log.commit(log.head(), files("b", end=2))
    add_elsewhere(log, "x")
    deltalake.DeltaTable(log.location).restore(1)
    assert (log.head().offset, log.paths()) == (up_to(1), ["a"])
    add_elsewhere(log, "y")
    log.commit(log.head(), files("c", end=3))
    assert (log.head().offset, log.paths()) == (up_to(3), ["a", "c", "y"])
    table = deltalake.DeltaTable(log.location)
    earlier_ms = table.history()[-2]["timestamp"]
    table.restore(datetime.fromtimestamp(earlier_ms / 1000, UTC))
    with pytest.raises(InvalidRequest, match="restored to a time"):
        log.head()


def test_a_log_that_lost_the_offset_is_refused(log: Log) -> None:
    add_elsewhere(log, "x")
    deltalake.DeltaTable(log.location).create_checkpoint()
    for number in (0, 1):
        Path(log.location, f"_delta_log/{number:020d}.json").unlink()
    with pytest.raises(InvalidRequest, match="its end is unknown"):
        Log(Path(log.location)).head()


def test_an_old_offset_is_written_again(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    with log.held():
        assert log.head().mark == 1
    later = time.time_ns() + 8 * 24 * 3600 * 10**9
    monkeypatch.setattr(time, "time_ns", lambda: later)
    with log.held():
        assert (log.head().mark, log.head().offset) == (2, up_to(1))


def cleaned(log: Log) -> int:
    """Let another program commit, and shorten the log; return how many commits are left."""
    add_elsewhere(log, "x")
    table = deltalake.DeltaTable(log.location)
    table.create_checkpoint()
    table.cleanup_metadata()
    return len(table.history())


@pytest.mark.parametrize("is_renewed", [True, False])
def test_a_run_at_rest_keeps_its_offset_in_a_log_that_others_shorten(
    log: Log, monkeypatch: pytest.MonkeyPatch, is_renewed: bool
) -> None:
    add_elsewhere(log, "y")
    log.renew(log.head())
    assert (log.head().mark, cleaned(log)) == (2, 4)  # the offset is young, and so are all commits
    long_ago = time.time() - 40 * 24 * 3600
    for path in (Path(log.location) / "_delta_log").iterdir():
        os.utime(path, (long_ago, long_ago))
    if is_renewed:
        later = time.time_ns() + 8 * 24 * 3600 * 10**9
        with monkeypatch.context() as patch:
            patch.setattr(time, "time_ns", lambda: later)
            log.renew(log.head())
        assert (log.head().mark, cleaned(log)) == (4, 3)
        assert (log.head().offset, Log(Path(log.location)).head().offset) == (up_to(1), up_to(1))
    else:
        assert cleaned(log) == 1
        with pytest.raises(InvalidRequest, match="no commit in the log of t has an offset any more"):
            log.head()


@pytest.mark.parametrize(("kept", "days"), [("interval 1 day", 0.3), ("interval 2 weeks", 4), ("interval 30 days", 8)])
def test_the_age_at_which_an_offset_is_written_again(
    log: Log, monkeypatch: pytest.MonkeyPatch, kept: str, days: float
) -> None:
    deltalake.DeltaTable(log.location).alter.set_table_properties({"delta.logRetentionDuration": kept})
    for part, marks in ((0.8, 2), (1, 3)):
        later = time.time_ns() + int(part * days * 24 * 3600 * 10**9)
        with monkeypatch.context() as patch:
            patch.setattr(time, "time_ns", lambda later=later: later)
            log.renew(log.head())
        assert log.head().mark == marks


def test_a_table_of_others_is_taken_over_if_it_is_plain(tmp_path: Path) -> None:
    def made(name: str, **named: Any) -> Log:
        kinds = (
            StructType()
            .add("value", StringType())
            .add("at", TimestampType())
            .add("at_day", named.pop("of", DateType()))
        )
        schema = deltalake.Schema.from_json(kinds.json())
        deltalake.DeltaTable.create(str(tmp_path / name), schema, **named)
        return Log(tmp_path / name)

    plain = made("plain", partition_by=["at_day"])
    add_elsewhere(plain, "x")
    assert (plain.head().exists, plain.head().recipe) == (True, None)
    plain.create(SCHEMA, RECIPE)
    assert (plain.head().recipe, plain.head().offset, plain.paths()) == (RECIPE, None, ["x"])
    with pytest.raises(InvalidRequest, match="is partitioned by value"):
        made("other", partition_by=["value"]).create(SCHEMA, RECIPE)
    with pytest.raises(InvalidRequest, match="at_day of t is int, not date"):
        made("kind", partition_by=["at_day"], of=IntegerType()).create(SCHEMA, RECIPE)
    constrained = made("constrained")
    deltalake.DeltaTable(constrained.location).alter.add_constraint({"c": "value is not null"})
    with pytest.raises(InvalidRequest, match="needs what tierfs does not write"):
        constrained.head()


def test_what_delta_cannot_have_is_refused(log: Log, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="no columns with such a name: a b"):
        log.widen(StructType().add("a b", StringType()))
    monkeypatch.setattr(FilesDouble, "names", lambda *_: ["data.csv"])
    with pytest.raises(AlreadyExists, match="t is not empty"):
        Log(tmp_path / "full").create(SCHEMA, RECIPE)


def test_columns_and_their_fields_are_added(log: Log) -> None:
    inner = StructType().add("x", LongType())
    schema = StructType([*SCHEMA.fields]).add("o", inner)
    log.widen(schema)
    assert log.head().schema == schema
    wider = StructType([*SCHEMA.fields]).add("o", StructType([*inner.fields]).add("y", StringType()))
    log.widen(wider)
    assert log.head().schema == wider


def test_bounds_have_milliseconds_and_miss_no_row() -> None:
    at = datetime(2031, 1, 1, 10, 0, 0, 123456, tzinfo=UTC)
    columns = {
        "n": ColumnBounds(0, 1, 7),
        "at": ColumnBounds(2, at, at),
        "day": ColumnBounds(0, date(2031, 1, 1), date(2031, 1, 2)),
        "none": ColumnBounds(3),
    }
    assert FileFooter(3, columns).as_delta() == {
        "numRecords": 3,
        "minValues": {"n": 1, "at": "2031-01-01T10:00:00.123Z", "day": "2031-01-01"},
        "maxValues": {"n": 7, "at": "2031-01-01T10:00:00.124Z", "day": "2031-01-02"},
        "nullCount": {"n": 0, "at": 2, "day": 0, "none": 3},
    }


def test_the_library_gets_what_spark_is_told_of_s3() -> None:
    settings = {
        "fs.s3a.access.key": "all",
        "fs.s3a.bucket.lake.access.key": "mine",
        "fs.s3a.secret.key": "secret",
        "fs.s3a.endpoint": "127.0.0.1:9000",
        "fs.s3a.connection.ssl.enabled": "false",
        "fs.s3a.path.style.access": "true",
    }
    configuration = SimpleNamespace(hadoopConfiguration=lambda: settings)
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(_jsc=configuration))
    assert delta_storage.place_of(spark, "s3a://lake/logs/web") == (
        "s3://lake/logs/web",
        {
            "AWS_ACCESS_KEY_ID": "mine",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_ENDPOINT_URL": "http://127.0.0.1:9000",
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "us-east-1",
            "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "false",
        },
    )
    assert delta_storage.place_of(spark, "file:/srv/lake/a%20b") == ("/srv/lake/a b", {})
    with pytest.raises(InvalidRequest, match="on local disks and on S3"):
        delta_storage.place_of(spark, "hdfs://host/lake")


def test_the_format_of_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    assert format_of(None, "lake.logs.web") is TableFormat.ICEBERG
    assert format_of(None, "/lake/web") is TableFormat.PARQUET
    assert format_of("delta", "/lake/web") is TableFormat.DELTA
    with pytest.raises(InvalidRequest, match="for a table in a directory"):
        format_of("delta", "lake.logs.web")
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(extras.MissingPackage, match="a table of Delta needs the package deltalake") as missing:
        format_of("delta", "/lake/web")
    assert "deltalake" in str(missing.value.remedy) or "[delta]" in str(missing.value.remedy)
