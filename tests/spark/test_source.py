"""`format("tierfs")` on executors of two workers: equal to the truth, and to what Spark reads by path."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests import verbs
from tests.ledgers import new_ledger
from tests.mount.conftest import Mount, append
from tests.spark.reading import frame, lines_of, sums, sums_by_path, truth
from tierfs.app import store
from tierfs.journal.names import slot_name
from tierfs.segments.create import WholeSegment

pytestmark = [pytest.mark.mount, pytest.mark.spark, pytest.mark.timeout(420, method="thread")]

WORDS = ("tier", "größe", "log, or not", "", "日誌", "𝄞 x", "y" * 60)
SPLIT = "512k"


def text(seed: int, end: str, count: int = 30_000) -> bytes:
    """So many lines, about 1.4 MB: several chunks and splits."""
    chosen = random.Random(seed)
    return b"".join(f"{chosen.choice(WORDS)} {chosen.randbytes(12).hex()}{end}".encode() for _ in range(count))


SOURCES = {
    "lf": text(1, "\n"),
    "crlf": text(2, "\r\n"),
    "cr": text(3, "\r"),
    "mixed": text(4, "\n", 9000) + text(5, "\r\n", 9000) + text(6, "\r", 9000),
    "no-newline-at-end": text(7, "\n") + b"the last line",
    "empty": b"",
    "one-line": b"x" * 3_000_000,
    "newlines": b"\n" * 5000,
}


@pytest.fixture
def filled(store: store.Store) -> store.Store:
    """Every second segment is cold and has left the disk; one has both: cold first, local last."""
    for number, (name, data) in enumerate(SOURCES.items()):
        append(store, f"t/{name}", data, seal=number % 3 == 0)
        if number % 2:
            verbs.offload(store, f"t/{name}")
            verbs.evict(store, f"t/{name}")
    head = text(8, "\n")
    append(store, "t/both", head)
    verbs.offload(store, "t/both")
    verbs.evict(store, "t/both", force=True)
    append(store, "t/both", text(9, "\n") + b"half a li")
    return store


TRUTH = {f"t/{name}": truth(data) for name, data in SOURCES.items() if data} | {
    "t/both": truth(text(8, "\n") + text(9, "\n") + b"half a li")
}


def test_lines_are_those_of_the_path_and_of_the_truth(
    filled: store.Store, mount: Mount, cluster_spark: SparkSession
) -> None:
    table = frame(cluster_spark, filled.path, "t", maxPartitionBytes=SPLIT)
    assert table.rdd.getNumPartitions() > len(SOURCES)
    assert sums(table) == TRUTH
    mnt = mount().path
    assert sums_by_path(cluster_spark.read.text(str(mnt / "t")), mnt) == TRUTH


def test_offsets_tell_where_lines_begin(filled: store.Store, cluster_spark: SparkSession) -> None:
    table = frame(cluster_spark, filled.path, "t/mixed", maxPartitionBytes=SPLIT)
    found = {row.offset: row.value.encode() for row in table.collect()}
    data = SOURCES["mixed"]
    assert list(dict(sorted(found.items())).values()) == lines_of(data)
    assert all(data.startswith(line, offset) for offset, line in found.items())


def test_a_snapshot_is_pinned(store: store.Store, cluster_spark: SparkSession) -> None:
    append(store, "s", b"one\ntwo\nthr")
    table = frame(cluster_spark, store.path, "s")
    assert sums(table) == {"s": truth(b"one\ntwo\nthr")}
    append(store, "s", b"ee\nfour\n")
    verbs.offload(store, "s")
    verbs.evict(store, "s", force=True)
    assert sums(table) == {"s": truth(b"one\ntwo\nthr")}, "the bytes moved meanwhile"
    assert sums(frame(cluster_spark, store.path, "s")) == {"s": truth(b"one\ntwo\nthree\nfour\n")}


def test_the_journal_of_a_bucket_is_enough(filled: store.Store, cluster_spark: SparkSession, tmp_path: Path) -> None:
    """Executors see no store: it was moved away."""
    cold = {name: data for name, data in TRUTH.items() if name not in ("t/both",)}
    for name in cold:
        verbs.offload(filled, name)
    verbs.settle(filled)
    url = f"file://{filled.paths.cold}"
    found = sums(frame(cluster_spark, url, "t", maxPartitionBytes=SPLIT))
    assert found == cold | {"t/both": truth(text(8, "\n"))}, "the tail that is not cold is not there"


def test_bytes_are_all_bytes(filled: store.Store, cluster_spark: SparkSession) -> None:
    table = frame(
        cluster_spark, filled.path, "t/mixed", "t/lf", type="bytes", blockBytes="100k", maxPartitionBytes=SPLIT
    )
    rows = sorted((row.segment, row.offset, row.length, bytes(row.content)) for row in table.collect())
    for name in ("mixed", "lf"):
        mine = [row for row in rows if row[0] == f"t/{name}"]
        assert b"".join(row[3] for row in mine) == SOURCES[name]
        assert all(row[2] == len(row[3]) for row in mine)
        assert sum(row[1] % (100 << 10) == 0 for row in mine) >= len(mine) // 2


@pytest.mark.parametrize("cold", [False, True], ids=["local", "cold"])
def test_entries_of_ledgers(store: store.Store, cluster_spark: SparkSession, cold: bool) -> None:
    chosen = random.Random(5)
    payloads = [chosen.randbytes(chosen.choice((0, 1, 100, 5000))) for _ in range(2000)]
    name = new_ledger(store, payloads, "topic")  # type: ignore[arg-type]
    if cold:
        verbs.offload(store, "topic")
        verbs.evict(store, "topic", force=True)
    table = frame(cluster_spark, store.path, "topic", type="entries", maxPartitionBytes=SPLIT)
    assert table.rdd.getNumPartitions() > 3
    rows = sorted((row.entry_id, row.offset, bytes(row.payload)) for row in table.collect())
    assert [row[2] for row in rows] == payloads
    assert [row[0] for row in rows] == list(range(len(payloads)))
    assert rows[-1][1] == sum(map(len, payloads[:-1]))
    some = frame(cluster_spark, store.path, name, type="entries", startEntry=10, endEntry=20)
    assert sorted(row.entry_id for row in some.collect()) == list(range(10, 20))


def test_segments_tell_what_the_metadata_say(filled: store.Store, cluster_spark: SparkSession) -> None:
    table = frame(cluster_spark, filled.path, "t", type="segments")
    rows = {row.segment: row for row in table.collect()}
    assert {name: row.length for name, row in rows.items()} == {
        f"t/{name}": len(data) for name, data in SOURCES.items()
    } | {"t/both": len(text(8, "\n") + text(9, "\n") + b"half a li")}
    assert (rows["t/crlf"].local_bytes, rows["t/crlf"].cold_bytes) == (0, len(SOURCES["crlf"]))
    assert (rows["t/lf"].local_bytes, rows["t/lf"].cold_bytes) == (len(SOURCES["lf"]), 0)
    assert rows["t/lf"].sealed
    assert not rows["t/both"].sealed


def test_columns_that_are_not_wanted_are_not_made(filled: store.Store, cluster_spark: SparkSession) -> None:
    table = frame(cluster_spark, filled.path, "t/lf", schema="offset long, value string")
    assert table.columns == ["offset", "value"]
    assert table.count() == len(lines_of(SOURCES["lf"]))


def test_ten_thousand_small_segments(store: store.Store, cluster_spark: SparkSession) -> None:
    creator = store.engine.bulk_creator()
    try:
        for first in range(0, 10_000, 500):
            batch = [WholeSegment(f"many/{n:05}", f"line {n}\nof {n}".encode()) for n in range(first, first + 500)]
            assert all(creator.create(batch, seal=True))
    finally:
        creator.close()
    verbs.offload(store, "many")
    verbs.evict(store, "many", force=True)
    table = frame(cluster_spark, store.path, "many")
    assert table.rdd.getNumPartitions() <= 12, "a task costs more than hundreds of them"
    wanted = [line for n in range(10_000) for line in (f"line {n}", f"of {n}")]
    row = table.agg(F.count("*"), F.countDistinct("segment"), F.countDistinct("value")).collect()[0]
    assert tuple(row) == (len(wanted), 10_000, len(set(wanted)))


def test_an_empty_store(store: store.Store, cluster_spark: SparkSession) -> None:
    assert frame(cluster_spark, store.path, "/").count() == 0
    append(store, "empty", b"", seal=True)
    assert frame(cluster_spark, store.path, "empty").collect() == []


ERRORS: dict[str, tuple[dict[str, str], str]] = {
    "store": ({"store": "/nowhere"}, "/nowhere is not a tierfs store; create one with: "),
    "segment": ({"path": "t/missing"}, "t/missing does not exist in the store; look with: tierfs ls"),
    "option": ({"maxBytes": "1"}, "tierfs has no option maxbytes; known: store, "),
    "value": ({"maxPartitionBytes": "many"}, "the option maxPartitionBytes is 'many'; it must be a size, like 128MiB"),
    "credentials": ({"secretKey": "x"}, "the option secretkey is refused: options end up in logs and plans; "),
    "encoding": ({"encoding": "utf-16"}, "lines of utf-16 cannot be found by their bytes; "),
    "tail": (
        {"path": "t/lf", "tail": "error"},
        "segment t/lf: [0-9]+ bytes are only in the store's directory; set the",
    ),
    "priority": ({"path": "t/lf", "readPriority": "offloaded-only"}, "are not in the cold tier, and the read priority"),
    "missing": (
        {"path": "t/lf", "ignoreMissingFiles": "true"},
        "a read cannot pass over missing bytes: a table that is",
    ),
    "no path": ({"path": ""}, "no path is named to read; write load.PATH., OPTIONS .path 'PATH'. of a view, WITH"),
    "zone": (
        {"path": "t/lf", "timeZone": "Mars"},
        "the option timeZone is 'Mars'; it must be a time zone, like Europe",
    ),
    "filter": (
        {"path": "t/lf", "partitionFilter": "day"},
        "the option partitionFilter is 'day'; it must be conditions",
    ),
    "base": ({"path": "t/lf", "basePath": "u"}, "basePath is u, and t/lf is not below it; name the directory that"),
    "kind": ({"path": "t/lf", "type": "entries"}, "segment t/lf is not a ledger; read type lines or bytes"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_bad_input_is_one_clear_line(name: str, filled: store.Store, cluster_spark: SparkSession) -> None:
    options, message = ERRORS[name]
    with pytest.raises(PySparkException) as caught:
        frame(cluster_spark, **{"store": str(filled.path), "path": "/", **options}).count()  # type: ignore[arg-type]
    lines = [line for line in str(caught.value).splitlines() if "TierfsException: " in line]
    assert len(lines) == 1, str(caught.value)
    assert re.search(message, lines[0])
    assert "JVM stacktrace" not in str(caught.value)


def test_a_column_that_is_not_there_is_one_clear_line(filled: store.Store, cluster_spark: SparkSession) -> None:
    with pytest.raises(
        PySparkException, match="rows of type lines have no column text; they have value, segment, offset"
    ):
        frame(cluster_spark, filled.path, "t/lf", schema="text string").count()
    with pytest.raises(PySparkException, match="the column offset is bigint, not int; cast it afterwards"):
        frame(cluster_spark, filled.path, "t/lf", schema="offset int").count()


def test_a_line_over_the_limit(store: store.Store, cluster_spark: SparkSession) -> None:
    append(store, "s", b"short\n" + b"x" * (100 << 20) + b"\n", seal=True)
    with pytest.raises(
        PySparkException, match="segment s: a line at or after byte 6 has more than 16777216 bytes; set the"
    ):
        frame(cluster_spark, store.path, "s").count()
    assert frame(cluster_spark, store.path, "s", maxLineBytes="128m").count() == 2


def test_a_journal_behind_a_gap(store: store.Store, cluster_spark: SparkSession) -> None:
    for _ in range(4):
        append(store, "s", b"x\n")
        verbs.offload(store, "s")
    verbs.settle(store)
    (store.paths.cold / slot_name(3)).unlink()
    with pytest.raises(PySparkException, match=r"journal/0+3 is missing"):
        frame(cluster_spark, f"file://{store.paths.cold}", "s").count()


def test_damage_is_told_and_never_read(store: store.Store, cluster_spark: SparkSession) -> None:
    append(store, "s", text(1, "\n"), seal=True)
    verbs.offload(store, "s")
    verbs.evict(store, "s", force=True)
    chunk = next(path for path in store.paths.cold.rglob("chunk-*") if path.is_file())
    chunk.chmod(0o600)
    with chunk.open("r+b") as file:
        file.seek(500_000)
        file.write(b"!")
    with pytest.raises(PySparkException, match=r"segment s: .* does not match its checksums"):
        frame(cluster_spark, store.path, "s").count()
