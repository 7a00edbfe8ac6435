"""`format("tierfs")` equals the truth that plain Python makes of the same bytes, or is one clear line."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests import verbs
from tests.ledgers import new_ledger
from tests.mount.conftest import append
from tests.pipeline.reader.reading import store_of
from tests.pipeline.spark.reading import frame, lines_of, make_cold, refusal, sums, text, told, truth
from tierfs.app import store as app
from tierfs.app.setup.create import init_store
from tierfs.base.words.types import ROOT_DIRECTORY
from tierfs.engine.chunkstore.place import Place
from tierfs.engine.journal.names import slot_name
from tierfs.engine.metadata import policies

pytestmark = [pytest.mark.spark, pytest.mark.timeout(420, method="thread")]

SPLIT = "64k"
MANY = 6000
"""Lines of about 280 kB: several chunks, splits and blocks of checksums."""

SOURCES = {
    "lf": text(1, MANY),
    "crlf": text(2, MANY, "\r\n"),
    "cr": text(3, MANY, "\r"),
    "mixed": text(4, 2000) + text(5, 2000, "\r\n") + text(6, 2000, "\r"),
    "no-newline-at-end": text(7, MANY) + b"the last line",
    "empty": b"",
    "one-line": b"x" * 600_000,
    "newlines": b"\n" * 5000,
}
HEAD = text(8, MANY)
BOTH = HEAD + text(9, MANY) + b"half a li"
TRUTH = {f"t/{name}": truth(data) for name, data in (SOURCES | {"both": BOTH}).items() if data}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[app.Store]:
    with store_of(tmp_path / "store", chunk_bytes=1 << 20, object_bytes=4 << 20) as opened:
        yield opened


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[app.Store]:
    """Every second segment is cold and has left the disk; one has both: cold first, local last."""
    with store_of(tmp_path_factory.mktemp("filled") / "store", chunk_bytes=100_000, object_bytes=200_000) as opened:
        for number, (name, data) in enumerate(SOURCES.items()):
            append(opened, f"t/{name}", data, seal=number % 3 == 0)
            if number % 2:
                make_cold(opened, f"t/{name}")
        append(opened, "t/both", HEAD)
        make_cold(opened, "t/both")
        append(opened, "t/both", BOTH[len(HEAD) :])
        yield opened


def test_lines_are_those_of_the_truth_and_offsets_tell_where_they_begin(filled: app.Store, spark: SparkSession) -> None:
    table = frame(spark, filled.path, "t", maxPartitionBytes=SPLIT)
    assert table.rdd.getNumPartitions() > 2 * len(SOURCES)
    assert sums(table) == TRUTH
    mixed = frame(spark, filled.path, "t/mixed", maxPartitionBytes=SPLIT, schema="offset long, value string")
    assert mixed.columns == ["offset", "value"], "columns that are not wanted are not made"
    found = {row.offset: row.value.encode() for row in mixed.collect()}
    data = SOURCES["mixed"]
    assert list(dict(sorted(found.items())).values()) == lines_of(data)
    assert all(data.startswith(line, offset) for offset, line in found.items())


def test_blocks_of_bytes_and_what_the_metadata_say(filled: app.Store, spark: SparkSession) -> None:
    names = ("t/mixed", "t/lf")
    table = frame(spark, filled.path, *names, type="bytes", blockBytes="10k", maxPartitionBytes=SPLIT)
    rows = sorted((row.segment, row.offset, row.length, bytes(row.content)) for row in table.collect())
    for name in names:
        mine = [row for row in rows if row[0] == name]
        assert b"".join(row[3] for row in mine) == SOURCES[name.removeprefix("t/")]
        assert all(row[2] == len(row[3]) for row in mine)
        assert sum(row[1] % (10 << 10) == 0 for row in mine) >= len(mine) // 2
    told = {row.segment.removeprefix("t/"): row for row in frame(spark, filled.path, "t", type="segments").collect()}
    assert {name: row.length for name, row in told.items()} == {
        name: len(data) for name, data in (SOURCES | {"both": BOTH}).items()
    }
    length = {name: len(data) for name, data in SOURCES.items()}
    assert (told["crlf"].local_bytes, told["crlf"].cold_bytes) == (0, length["crlf"])
    assert (told["lf"].local_bytes, told["lf"].cold_bytes) == (length["lf"], 0)
    assert (told["lf"].sealed, told["both"].sealed) == (True, False)


def test_entries_of_ledgers(store: app.Store, spark: SparkSession) -> None:
    chosen = random.Random(5)
    payloads = [chosen.randbytes(chosen.choice((0, 1, 100, 5000))) for _ in range(500)]
    name = new_ledger(store, payloads, "topic")  # type: ignore[arg-type]
    make_cold(store, "topic")
    table = frame(spark, store.path, "topic", type="entries", maxPartitionBytes=SPLIT)
    assert table.rdd.getNumPartitions() > 3
    rows = sorted((row.entry_id, row.offset, bytes(row.payload)) for row in table.collect())
    assert [row[2] for row in rows] == payloads
    assert [row[0] for row in rows] == list(range(len(payloads)))
    assert rows[-1][1] == sum(map(len, payloads[:-1]))
    some = frame(spark, store.path, name, type="entries", startEntry=10, endEntry=20)
    assert sorted(row.entry_id for row in some.collect()) == list(range(10, 20))


@pytest.mark.parametrize("kind", ["local", pytest.param("webhdfs", marks=pytest.mark.hdfs)])
def test_tasks_read_a_place_with_clients_of_their_own(
    request: pytest.FixtureRequest, tmp_path: Path, spark: SparkSession, kind: str
) -> None:
    url = f"local://{tmp_path}/ü 1" if kind == "local" else request.getfixturevalue("hdfs_root").webhdfs
    data = text(10, MANY)
    init_store(tmp_path / "store", Place.parsed(url))
    with closing(app.open_store(tmp_path / "store")) as opened:
        with opened.metadata.write() as txn:
            policies.put(txn, ROOT_DIRECTORY, {"chunk_bytes": "100000", "object_bytes": "200000"})
        append(opened, "t/cold", data, seal=True)
        make_cold(opened, "t/cold")
        table = frame(spark, opened.path, "t", maxPartitionBytes=SPLIT)
        assert table.rdd.getNumPartitions() > 3
        assert sums(table) == {"t/cold": truth(data)}
    assert sums(frame(spark, url, "t", maxPartitionBytes=SPLIT)) == {"t/cold": truth(data)}, "without a store"


def test_a_snapshot_is_pinned(store: app.Store, spark: SparkSession) -> None:
    append(store, "empty", b"", seal=True)
    assert frame(spark, store.path, "/").collect() == []
    append(store, "s", b"one\ntwo\nthr")
    table = frame(spark, store.path, "s")
    assert sums(table) == {"s": truth(b"one\ntwo\nthr")}
    append(store, "s", b"ee\nfour\n")
    make_cold(store, "s")
    assert sums(table) == {"s": truth(b"one\ntwo\nthr")}, "the bytes moved meanwhile"
    assert sums(frame(spark, store.path, "s")) == {"s": truth(b"one\ntwo\nthree\nfour\n")}


ERRORS: dict[str, tuple[dict[str, str], str]] = {
    "store": ({"store": "/nowhere"}, "/nowhere is not a tierfs store; create one with: "),
    "segment": ({"path": "t/missing"}, "t/missing does not exist in the store; to list names: tierfs ls"),
    "option": ({"maxBytes": "1"}, "unknown option maxbytes; the nearest: maxLineBytes; all options"),
    "of a stream": ({"maxBytesPerTrigger": "1m"}, "unknown option maxbytespertrigger; it is for streams"),
    "of others": ({"charset": "latin-1"}, "unknown option charset; use encoding"),
    "value": ({"maxPartitionBytes": "many"}, "invalid value 'many' for option maxPartitionBytes; expected a size"),
    "credentials": ({"secretKey": "x"}, "the option secretkey is refused: options appear in logs and plans; "),
    "encoding": ({"encoding": "utf-16"}, "line splitting does not support the encoding utf-16; "),
    "tail": ({"tail": "error"}, "segment t/lf: [0-9]+ bytes are only in the store's directory; set the"),
    "priority": ({"readPriority": "offloaded-only"}, "are not in the cold tier, but the read priority"),
    "missing": ({"ignoreMissingFiles": "true"}, "ignoreMissingFiles is not supported: a truncated table"),
    "no path": ({"path": ""}, "no input path given; use load.PATH.; in SQL, OPTIONS .path 'PATH'. or WITH"),
    "zone": ({"timeZone": "Mars"}, "invalid value 'Mars' for option timeZone; expected a time zone, like Europe"),
    "filter": ({"partitionFilter": "day"}, "invalid value 'day' for option partitionFilter; expected conditions"),
    "base": ({"basePath": "u"}, "t/lf is not below the basePath u; set basePath to the directory that"),
    "kind": ({"type": "entries"}, "segment t/lf is not a ledger; read type lines or bytes"),
    "line": (
        {"path": "t/one-line", "maxLineBytes": "599999"},
        "segment t/one-line: a line at or after byte 0 has more than 599999 bytes; set the",
    ),
    "column": ({"schema": "text string"}, "rows of type lines have no column text; they have value, segment, offset"),
    "type": ({"schema": "offset int"}, "the column offset is bigint, not int; read it as that type, and cast"),
}


def test_bad_input_is_one_clear_line(filled: app.Store, spark: SparkSession) -> None:
    """Of the schema, of the plan and of a task by Spark; the others by the source that Spark asks."""
    for name, (changed, message) in ERRORS.items():
        options = {"store": str(filled.path), "path": "t/lf", **changed}
        if name in ("credentials", "tail", "line"):
            line = told(lambda options=options: frame(spark, **options).count())  # type: ignore[misc]
        else:
            line = refusal(**options)
        assert re.search(message, line), name
    assert frame(spark, filled.path, "t/one-line", maxLineBytes="600000").count() == 1


def test_damage_is_told_and_never_read(store: app.Store, spark: SparkSession) -> None:
    append(store, "s", text(1, MANY), seal=True)
    make_cold(store, "s")
    chunk = next(path for path in store.paths.cold.rglob("chunk-*") if path.is_file())
    chunk.chmod(0o600)
    with chunk.open("r+b") as file:
        file.seek(200_000)
        file.write(b"!")
    with pytest.raises(PySparkException, match=r"segment s: .* does not match its checksums"):
        frame(spark, store.path, "s").count()


def test_a_journal_behind_a_gap(store: app.Store) -> None:
    for _ in range(4):
        append(store, "s", b"x\n")
        verbs.offload(store, "s")
    verbs.settle(store)
    (store.paths.cold / slot_name(3)).unlink()
    assert re.search(r"journal/0+3 is missing", refusal(f"file://{store.paths.cold}", "s"))
