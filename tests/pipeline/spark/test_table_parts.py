"""The parts of tables that need no session: offsets as text, fields of partitions, types."""

from __future__ import annotations

import json
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)

from tests.engine.ledger.message_entries import batch, in_batch
from tests.mount.conftest import append
from tests.verbs import delete
from tierfs.app import store as app
from tierfs.app.setup.create import init_store
from tierfs.app.verbs import empty_trash, move
from tierfs.base.system.locks import LockFile
from tierfs.base.words.errors import Archived, Conflict, DataLoss, InvalidRequest
from tierfs.base.words.types import MIB
from tierfs.engine.metadata import directories
from tierfs.engine.segments.ledgers import make
from tierfs.pipeline.reader.fetching import OR_WAIT
from tierfs.pipeline.reader.stream import PASS_OVER
from tierfs.pipeline.reader.stream_plan import NEW_CHECKPOINT, StreamOffset
from tierfs.pipeline.spark.errors import TierfsException
from tierfs.pipeline.spark.errors import explained as explained_to_people
from tierfs.pipeline.spark.jobs.json_rows import takes, widened
from tierfs.pipeline.spark.jobs.live_segments import LiveSegments, live_segments
from tierfs.pipeline.spark.jobs.session import cause_of
from tierfs.pipeline.spark.jobs.table_words import told_of_a_table
from tierfs.pipeline.spark.jobs.tasks import explained
from tierfs.pipeline.spark.tables import iceberg_types, offset_texts, run_lock
from tierfs.pipeline.spark.tables.followed_table import RoundFiles, RowRecipe, TableFile, TableHead
from tierfs.pipeline.spark.tables.iceberg_table import IcebergTable
from tierfs.pipeline.spark.tables.partition_fields import parse_fields
from tierfs.pipeline.spark.tables.rewriting import bins, steps
from tierfs.pipeline.spark.tables.run_lock import only_run
from tierfs.pipeline.spark.tables.table_files import HadoopFiles

SCHEMA = (
    StructType()
    .add("n", IntegerType())
    .add("amount", DecimalType(10, 2))
    .add("at", TimestampType())
    .add("properties", MapType(StringType(), StringType()))
    .add("parts", ArrayType(StructType().add("payload", BinaryType())))
)


def test_an_offset_of_many_open_segments_is_packed() -> None:
    few = StreamOffset("s", "lines of logs (1)", 9, {3: 7, 4: 1 << 40}, 12)
    many = StreamOffset("s", "lines of logs (1)", 20_000, {birth: birth * 977 for birth in range(1, 10_001)}, 12)
    assert offset_texts.packed(few).startswith('{"bytes":12,')
    assert offset_texts.unpacked(offset_texts.packed(few)) == few
    assert offset_texts.unpacked(offset_texts.packed(many)) == many
    assert len(offset_texts.packed(many)) < 100_000
    for text in ("zlib:%", "zlib:AAAA", "{"):
        with pytest.raises(InvalidRequest, match="no offset that tierfs can read"):
            offset_texts.unpacked(text)


def test_fields_of_partitions() -> None:
    fields = parse_fields(["host", " days(at)", "hour(at)", ""])
    assert [(each.text, each.name) for each in fields] == [
        ("host", "host"),
        ("day(at)", "at_day"),
        ("hour(at)", "at_hour"),
    ]
    for text in ("bucket(8, host)", "day(", "week(at)"):
        with pytest.raises(InvalidRequest, match="no field to partition by"):
            parse_fields([text])
    with pytest.raises(InvalidRequest, match="no column at to partition by"):
        fields[1].require_in(StructType().add("host", "string"))
    with pytest.raises(InvalidRequest, match="needs a time, and at is string"):
        fields[1].require_in(StructType().add("at", "string"))


def test_types_of_iceberg_and_back() -> None:
    schema = iceberg_types.to_iceberg(SCHEMA)
    ids = [each["id"] for each in schema["fields"]]
    assert ids == [1, 2, 3, 4, 5]
    assert iceberg_types.to_spark(schema) == SCHEMA
    assert schema["fields"][2]["type"] == "timestamptz"
    with pytest.raises(InvalidRequest, match="Iceberg has no type for void"):
        iceberg_types.to_iceberg(StructType().add("x", "void"))
    with pytest.raises(InvalidRequest, match="type fixed"):
        iceberg_types.to_spark({"fields": [{"name": "x", "required": False, "type": "fixed[16]"}]})


def test_columns_become_wider_and_never_change() -> None:
    inner = StructType().add("x", IntegerType())
    old = StructType().add("n", IntegerType()).add("ratio", FloatType()).add("name", StringType()).add("o", inner)
    new_inner = StructType().add("x", LongType()).add("y", StringType())
    new = StructType().add("N", LongType()).add("ratio", DoubleType()).add("name", LongType()).add("o", new_inner)
    found = widened(old, new.add("more", StringType()))
    wanted = StructType().add("n", LongType()).add("ratio", DoubleType()).add("name", StringType()).add("o", new_inner)
    assert found == wanted.add("more", StringType())
    assert widened(found, old) == found
    assert takes(LongType(), IntegerType())
    assert not takes(IntegerType(), LongType())
    assert not takes(StringType(), LongType())


def test_a_recipe_is_kept_and_compared() -> None:
    recipe = RowRecipe("lines of logs (1)", "json", "`day` int", (("a", "b + 1"),), parse_fields(["day(at)"]))
    assert RowRecipe.of(recipe.as_text(), "t") == recipe
    recipe.require_same(recipe.at_directories(""), "t")
    with pytest.raises(InvalidRequest, match="t is partitioned by day\\(at\\), not nothing"):
        recipe.require_same(RowRecipe(recipe.read, "json", "", recipe.columns), "t")
    with pytest.raises(InvalidRequest, match="newer tierfs"):
        RowRecipe.of(recipe.as_text().replace('"v": 1', '"v": 3'), "t")
    kept = RowRecipe("lines of logs (1)", "lines", births="store")
    assert RowRecipe.of(kept.as_text(), "t") == kept
    assert '"v": 1' in recipe.as_text()  # as a tierfs reads that knows no births
    assert '"v": 2' in kept.as_text()


def test_bins_of_small_files() -> None:
    def file(name: str, mib: int, partition: str = "p", *, is_exact: bool = True) -> TableFile:
        return TableFile(name, mib * MIB, partition, is_exact)

    small = [
        file("a", 60),
        file("b", 60),
        file("c", 60),
        file("d", 1, "q"),
        file("e", 64),
        file("f", 1, is_exact=False),
    ]
    assert [[each.path for each in found] for found in bins(small, 1)] == [["a", "b"], ["c"], ["d"]]
    assert [[each.path for each in found] for found in bins(small, 2)] == [["a", "b"]]
    many = [[file(str(number), 100)] for number in range(30)]
    assert [len(step) for step in steps(many)] == [11, 11, 8]
    assert [len(step) for step in steps([[file(str(number), 1)] for number in range(70)])] == [64, 6]


def test_what_has_been_lost_since() -> None:
    def live(places: dict[int, int]) -> LiveSegments:
        return LiveSegments(np.array(list(places), np.int64), np.array(list(places.values()), np.int64))

    before = live({3: 0, 7: 10})
    assert not live({3: 0, 7: 10, 9: 0}).has_lost(before)
    assert live({3: 0}).has_lost(before)
    assert live({7: 10, 9: 5}).has_lost(before)
    assert live({3: 0, 7: 11}).has_lost(before)
    assert live({}).has_lost(before)
    assert not live({}).has_lost(live({}))


def test_the_bytes_that_a_store_still_has(tmp_path: Path) -> None:
    """By births: of segments under any name, in the trash, and in the segment that they were concatenated to."""
    init_store(tmp_path / "store")
    with app.open_store(tmp_path / "store") as store:
        for name in ("cut", "gone", "here", "joined", "moved", "trash"):
            append(store, name, b"0123456789", seal=name != "here")
        with store.metadata.write() as txn:
            ledger = make(txn, "topic")
        writer = store.engine.open_ledger(ledger)
        writer.append_entries([batch(in_batch(b"%d" % number)) for number in range(3)])
        store.engine.close_writer(writer)

        def birth(name: str) -> int:
            with store.metadata.read() as txn:
                return directories.segment_by_name(txn, name).birth

        births = {name: birth(name) for name in ("cut", "gone", "here", "joined", "moved", "trash", ledger)}
        store.engine.truncate("cut", 4, cold_due_ms=0)
        delete(store, "gone", recursive=False, now=True)
        store.engine.concat("here", "joined")
        move(store, "moved", "elsewhere")
        delete(store, "trash", recursive=False)

        def live() -> dict[str, int]:
            with store.metadata.read() as txn:
                found = live_segments(txn)
            places = dict(zip(found.births.tolist(), found.firsts.tolist(), strict=True))
            assert sorted(places) == found.births.tolist()
            return {name: places[number] for name, number in births.items() if number in places}

        assert live() == {"cut": 4, "here": 0, "joined": 0, "moved": 0, "trash": 0, ledger: 0}
        store.engine.truncate("here", 13, cold_due_ms=0)
        empty_trash(store)
        assert live() == {"cut": 4, "here": 13, "joined": 3, "moved": 0, ledger: 0}


class JavaError(Py4JJavaError):
    """An exception of Java, of a kind."""

    def __init__(self, kind: str) -> None:
        self.java_exception, self._kind = self, kind

    def __str__(self) -> str:
        return self._kind

    def getClass(self) -> JavaError:
        return self

    def getSimpleName(self) -> str:
        return self._kind


class SnapshotsDouble:
    """A table of Iceberg, as far as commits need one: an overwrite validates only what it is asked to."""

    def __init__(self) -> None:
        self.number, self.offset = 7, StreamOffset("s", "r", 1)
        self.meanwhile: Callable[[], None] = lambda: None
        self._from = 0
        self._validates = False

    def set(self, *_: object) -> SnapshotsDouble:
        return self

    conflictDetectionFilter = set

    def location(self) -> str:
        return "file:/lake/t"

    def newOverwrite(self) -> SnapshotsDouble:
        self._validates = False
        return self

    def validateFromSnapshot(self, number: int) -> SnapshotsDouble:
        self._from = number
        return self

    def validateNoConflictingData(self) -> SnapshotsDouble:
        self._validates = True
        return self

    def commit(self) -> None:
        self.meanwhile()
        self.meanwhile = lambda: None
        if self._validates and self._from != self.number:
            raise JavaError("ValidationException")
        self.number += 1


class Committed(IcebergTable):
    """A table of Iceberg over snapshots of a test."""

    def __init__(self, snapshots: SnapshotsDouble) -> None:
        self.name, self.snapshots = "t", snapshots
        self._table, self._iceberg, self._spark = snapshots, MagicMock(), MagicMock()

    def head(self) -> TableHead:
        return TableHead(exists=True, offset=self.snapshots.offset, mark=self.snapshots.number)


def test_a_commit_of_iceberg_fails_after_one_of_another_run() -> None:
    table = Committed(snapshots := SnapshotsDouble())
    head, end = table.head(), StreamOffset("s", "r", 2)

    def another_run() -> None:
        snapshots.number, snapshots.offset = 8, StreamOffset("s", "r", 3)

    snapshots.meanwhile = another_run
    with pytest.raises(Conflict, match="another run added rows"):
        table.commit(head, RoundFiles([], end, 0, ""))
    assert snapshots.number == 8


def test_a_commit_of_iceberg_follows_one_of_another_program() -> None:
    table = Committed(snapshots := SnapshotsDouble())
    head, end = table.head(), StreamOffset("s", "r", 2)

    def another_program() -> None:
        snapshots.number = 8

    snapshots.meanwhile = another_program
    table.commit(head, RoundFiles([], end, 0, ""))
    assert snapshots.number == 9


class FilesDouble(HadoopFiles):
    """A file system in memory, which creates files conditionally, or not."""

    def __init__(self, *, is_conditional: bool, root: str = "s3a://lake") -> None:
        self.root = root
        self.found: dict[str, Any] = {}
        self.conditional = is_conditional
        self._files: Any = self
        self.refuses = False

    def hasPathCapability(self, path: str, name: str) -> bool:
        assert (path, name) == (self.root, "fs.option.create.conditional.overwrite")
        return self.conditional

    def createFile(self, path: str) -> FilesDouble:
        self._begun = path
        return self

    def must(self, name: str, value: str) -> FilesDouble:
        assert (name, value) == ("fs.option.create.conditional.overwrite", "true")
        return self

    def recursive(self) -> FilesDouble:
        return self

    build = recursive

    def close(self) -> None:
        is_there = self._begun in self.found
        if not is_there and not self.refuses:
            self.found[self._begun] = self._text
        if is_there or self.refuses:
            raise JavaError("RemoteFileChangedException")

    def write(self, path: Any, document: Any = None) -> None:
        if document is None:
            self._text = json.loads(bytes(path))
        else:
            self.found[path] = document

    def exists(self, path: str) -> bool:
        return path in self.found

    def read(self, path: str) -> Any:
        return self.found[path]

    def remove(self, path: str) -> None:
        self.found.pop(path, None)

    def move(self, source: str, goal: str) -> None:
        self.found[goal] = self.found.pop(source)

    @contextmanager
    def locked(self, path: Path, position: int) -> Iterator[None]:
        with closing(LockFile(path)) as lock:
            assert lock.try_lock(start=position, length=1)
            yield

    def _path(self, name: str) -> Any:
        return name


@pytest.mark.parametrize("is_conditional", [True, False])
def test_a_document_is_created_once(is_conditional: bool) -> None:
    files = FilesDouble(is_conditional=is_conditional)
    assert files.create("1", {"id": "a"}, "aside")
    assert not files.create("1", {"id": "b"}, "aside")
    assert files.found == {"1": {"id": "a"}}


def test_a_repeated_request_of_ones_own_is_no_conflict() -> None:
    """A server that had created the file when its answer was lost refuses the repetition."""
    files = FilesDouble(is_conditional=True)
    files.found["1"] = {"id": "a"}
    assert files.create("1", {"id": "a"}, "aside")
    files.refuses = True
    with pytest.raises(Py4JJavaError, match="RemoteFileChanged"):
        files.create("2", {"id": "c"}, "aside")


def test_an_object_store_without_conditions_is_refused() -> None:
    FilesDouble(is_conditional=True).require_commits()
    FilesDouble(is_conditional=False, root="hdfs://lake").require_commits()
    with pytest.raises(InvalidRequest, match="cannot decide between two runs"):
        FilesDouble(is_conditional=False).require_commits()


def test_a_table_names_its_own_options_and_no_checkpoint() -> None:
    lost = DataLoss("the store is older than the checkpoint", remedy=f"{PASS_OVER}, or {NEW_CHECKPOINT}")
    with pytest.raises(DataLoss, match="older than the table") as caught, told_of_a_table():
        raise lost
    assert caught.value.remedy == "add --skip-lost to continue without the lost rows, or start another table"
    archived = Archived("s is in the archive", remedy=f"run: tierfs thaw --wait s{OR_WAIT}")
    with pytest.raises(Archived) as waiting, told_of_a_table():
        raise archived
    assert waiting.value.remedy == "run: tierfs thaw --wait s"
    other = DataLoss("a chunk is damaged", remedy="run: tierfs check")
    with pytest.raises(DataLoss) as told, told_of_a_table():
        raise other
    assert told.value is other


def test_a_job_has_the_kind_of_the_error_that_its_source_raised() -> None:
    """Exit codes follow from it: a script may repeat what is not available now, and not what must be thawed."""
    with pytest.raises(TierfsException) as of_source, explained_to_people():
        raise Archived("segment s: x is in the archive", remedy=f"run: tierfs thaw --wait s{OR_WAIT}")
    (shown,) = traceback.format_exception_only(of_source.value)
    with pytest.raises(Archived, match=r"x is in the archive; run: tierfs thaw --wait s$"), explained():
        raise PySparkException(f"Traceback\n{shown}\nat org.apache.spark")


def test_the_cause_of_an_error_of_java_has_its_last_reason() -> None:
    trace = ["An error occurred while calling o1.save", ": SparkException: write failed", "\tat a.b(C)"]
    told = cause_of(Exception("\n".join([*trace, "Caused by: IOException: No space left on device", "\tat d"])))
    assert told == "SparkException: write failed: IOException: No space left on device"


def test_a_run_waits_for_the_java_of_a_killed_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver's lock ends with it, while its Java may rename one file more, and write others."""
    files, path = FilesDouble(is_conditional=False), tmp_path / "_tierfs.lock"
    with closing(LockFile(path)) as java:
        assert java.try_lock(start=1, length=1)
        patience_s = run_lock.JAVA_S
        monkeypatch.setattr(run_lock, "JAVA_S", 0.0)
        with pytest.raises(Conflict, match="the Java of a killed run may") as told, only_run(str(tmp_path), "t", files):
            pass
        assert str(path) in (told.value.remedy or "")
        monkeypatch.setattr(run_lock, "JAVA_S", patience_s)
        threading.Timer(0.02, java.close).start()
        first, second = only_run(str(tmp_path), "t", files), only_run(str(tmp_path), "t", files)
        with first, pytest.raises(Conflict, match="another run follows into t"), second:
            pass
