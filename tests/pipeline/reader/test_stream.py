"""Streams over real stores: what batches read of each kind of record, after restarts and as the store grows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests import verbs
from tests.mount.conftest import append
from tests.pipeline.reader.reading import fill, rows_of, store_of
from tests.pipeline.reader.test_lines import lines_of
from tierfs.app import store as app
from tierfs.app.replica import refresh_source
from tierfs.app.setup.create import init_store
from tierfs.app.sources import open_source
from tierfs.base.words.errors import InvalidRequest
from tierfs.base.words.types import ROOT_DIRECTORY
from tierfs.engine.chunkstore.place import Place
from tierfs.engine.metadata import policies
from tierfs.engine.metadata.ledger_records import MAX_RUN_ENTRIES
from tierfs.engine.segments import ledgers
from tierfs.pipeline.reader.block_batches import read_blocks
from tierfs.pipeline.reader.entry_batches import read_entries
from tierfs.pipeline.reader.extents import PlaceConnections, ScannedStore
from tierfs.pipeline.reader.fetching import ScanFetcher
from tierfs.pipeline.reader.line_format import Separator
from tierfs.pipeline.reader.planning import Partition, Reach, Sizes, plan
from tierfs.pipeline.reader.selection import Selection
from tierfs.pipeline.reader.stream import Records, Stream, StreamRead
from tierfs.pipeline.reader.stream_plan import StartPlace, StreamOffset
from tierfs.pipeline.reader.stream_shares import Limits

ANY = Separator()
ALL = Selection(recursive=True)
LINES = StreamRead("lines", ALL, Records.LINES)
BYTES = StreamRead("bytes", ALL, Records.BYTES)
ENTRIES = StreamRead("entries", ALL, Records.ENTRIES)
SIZES = Sizes(max_partition_bytes=9, open_cost_bytes=1)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[app.Store]:
    with store_of(tmp_path / "store") as opened:
        yield opened


@dataclass
class Query:
    """A stream and its checkpoint."""

    store: app.Store
    read: StreamRead = LINES
    rows: list[tuple[object, ...]] = field(default_factory=list)
    log: list[tuple[str, str, list[tuple[object, ...]]]] = field(default_factory=list)
    """Offsets and rows of the batches."""
    checkpoint: str = ""

    def __post_init__(self) -> None:
        self.restart()

    def restart(self, *, latest: bool = False) -> None:
        """As in a new process."""
        self.stream = Stream(
            self.store.metadata, str(self.store.path), self.store.settings.cold, PlaceConnections(), self.read
        )
        if not self.checkpoint:
            first = self.stream.earliest()
            if latest:
                of_entries = self.read.records is Records.ENTRIES
                first = self.stream.starting_at(lambda one, _: StartPlace(one.length, is_entry=of_entries))
            self.checkpoint = json.dumps(first.as_json())

    def trigger(self, limit: int | None = None) -> list[tuple[object, ...]] | None:
        """The rows of one batch; None when there is none."""
        start = StreamOffset.of(json.loads(self.checkpoint))
        end = json.dumps(self.stream.next_offset(start, Limits(limit)).as_json())
        if end == self.checkpoint:
            return None
        rows = self.between(self.checkpoint, end)
        self.log.append((self.checkpoint, end, rows))
        self.rows += rows
        self.checkpoint = end
        return rows

    def drain(self, limit: int | None = None) -> None:
        while self.trigger(limit) is not None:
            pass

    def values(self) -> list[object]:
        """What was read, in any order and under any name."""
        return sorted(row[2] for row in self.rows)  # type: ignore[type-var]

    def between(self, start: str, end: str) -> list[tuple[object, ...]]:
        place, pinned = self.stream.pinned(StreamOffset.of(json.loads(start)), StreamOffset.of(json.loads(end)))
        reach = {Records.LINES: self.read.lines.reach, Records.BYTES: Reach()}.get(
            self.read.records, Reach(cuts_at_entries=True)
        )
        return sorted(row for one in plan(pinned, SIZES, reach) for row in self._rows(place, one))

    def _rows(self, place: ScannedStore, partition: Partition) -> list[tuple[object, ...]]:
        if self.read.records is Records.LINES:
            return [*rows_of(place, partition, self.read.lines)]
        names = [part.source.name for part in partition.parts]
        with ScanFetcher(place, PlaceConnections(), tuple(part.source for part in partition.parts)) as fetcher:
            if self.read.records is Records.BYTES:
                return [
                    (names[one.part], one.offset, one.content)
                    for one in read_blocks(fetcher, partition, 4, with_content=True)
                ]
            return [
                (names[batch.part], entry_id, length)
                for batch in read_entries(fetcher, partition, with_payloads=True)
                for entry_id, length in enumerate(batch.lengths, batch.first_entry_id)
            ]


def lines(name: str, *values: bytes, at: int = 0) -> list[tuple[object, ...]]:
    """Rows of lines that end with LF."""
    found: list[tuple[object, ...]] = []
    for value in values:
        found.append((name, at, value))
        at += len(value) + 1
    return found


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["append", "append", "cold", "seal", "concat", "trigger", "trigger", "restart"]),
        st.sampled_from("abcd"),
        st.sampled_from("abcd"),
        st.lists(st.sampled_from([b"xy", b"z", b"\n", b"\r", b"\r\n"]), min_size=1, max_size=9).map(b"".join),
        st.one_of(st.none(), st.integers(1, 20)),
    ),
    max_size=25,
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
@example(  # a source read in part, one never read, and one of sources
    [
        *(("append", name, "", b"xy\nz\nxy\n", None) for name in "abcd"),
        ("trigger", "", "", b"", 5),
        ("concat", "a", "b", b"", None),
        ("trigger", "", "", b"", 3),
        ("append", "a", "", b"z\n", None),
        ("concat", "c", "a", b"", None),
        ("concat", "c", "d", b"", None),
        ("restart", "", "", b"", None),
    ]
)
def test_every_line_once(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, str, str, bytes, int | None]]
) -> None:
    with (
        TemporaryDirectory(dir=tmp_path_factory.getbasetemp()) as directory,  # of each example 64 MiB
        store_of(Path(directory) / "store") as store,
    ):
        query, truth, sealed = Query(store), dict[str, bytes](), set[str]()
        for what, name, other, data, limit in steps:
            if what == "restart":
                query.restart()
            elif what == "trigger":
                query.trigger(limit)
            elif what == "cold" and name in truth:
                verbs.offload(store, name)
                verbs.evict(store, name, force=True)
            elif what in ("append", "seal") and name not in sealed:
                append(store, name, data, seal=what == "seal")
                truth[name] = truth.get(name, b"") + data
                sealed |= {name} if what == "seal" else set()
            elif what == "concat" and {name, other} <= truth.keys() - sealed and name != other:
                for joined in (name, other):  # a line across the joint is refused
                    append(store, joined, b"\n")
                    truth[joined] += b"\n"
                store.engine.seal(other)
                store.engine.concat(name, other)
                truth[name] += truth.pop(other)
        for name in truth.keys() - sealed:
            append(store, name, b".", seal=True)
            truth[name] += b"."
        query.drain(30)
        assert query.values() == sorted(row[2] for name, data in truth.items() for row in lines_of(data, ANY, name))
        assert StreamOffset.of(json.loads(query.checkpoint)).open == {}
        query.restart()
        for start, end, rows in query.log:
            assert sorted(row[2] for row in query.between(start, end)) == sorted(row[2] for row in rows)  # type: ignore[type-var]


def test_bytes_come_in_blocks_up_to_the_limit(store: app.Store) -> None:
    query = Query(store, BYTES)
    append(store, "a", b"0123456")
    assert query.trigger(5) == [("a", 0, b"0123"), ("a", 4, b"4")]
    append(store, "a", b"7")
    assert query.trigger() == [("a", 5, b"567")]
    append(store, "s", b"89", seal=True)
    query.drain()
    store.engine.concat("a", "s")
    append(store, "a", b"!")
    assert query.trigger() == [("a", 10, b"!")], "bytes have no lines to cross the joint"


def new_ledger(store: app.Store) -> str:
    with store.metadata.write() as txn:
        return ledgers.make(txn, "topic")


def add_entries(store: app.Store, name: str, *payloads: bytes, seal: bool = False) -> None:
    writer = store.engine.open_ledger(name)
    writer.append_entries(list(payloads))
    store.engine.close_writer(writer)
    if seal:
        store.engine.seal(name)


@pytest.mark.parametrize("limit", [None, 1, 4])
def test_entries_and_empty_ones_among_them(store: app.Store, limit: int | None) -> None:
    """An empty entry lies where the next one begins: bytes do not tell whether it was read."""
    name, query, lengths = new_ledger(store), Query(store, ENTRIES), []
    for some in ([3, 0], [0, 0], [2], [0, 5, 1], [0], [0, 0, 2, 0]):
        add_entries(store, name, *(b"x" * length for length in some))
        lengths += some
        query.drain(limit)
        assert query.rows == [(name, entry_id, length) for entry_id, length in enumerate(lengths)]
    query.restart()
    for start, end, rows in query.log:
        assert query.between(start, end) == rows
    cold = Query(store, replace(ENTRIES, cold_only=True))
    assert cold.trigger() is None
    add_entries(store, name, seal=True)
    verbs.offload(store, name)
    verbs.evict(store, name, force=True)
    assert (cold.trigger(), cold.rows) == (query.rows, query.rows)
    assert StreamOffset.of(json.loads(cold.checkpoint)).open == {}
    append(store, "a", b"x\n")
    with pytest.raises(InvalidRequest, match="segment a is not a ledger"):
        Query(store, ENTRIES).trigger()


@pytest.mark.parametrize("limit", [1, 4, 5, 30, 31, 64, 100, 1000])
def test_entries_of_parallel_topics_are_read_side_by_side(store: app.Store, limit: int) -> None:
    """Each has its entries at even times of one day: none comes later than a younger one of another topic."""
    counts = {}
    for number, count in enumerate((8, 16, 64)):
        with store.metadata.write() as txn:
            name = ledgers.make(txn, f"topic{number}")
        add_entries(store, name, *[b"1234"] * count, seal=True)
        counts[name] = count
    query, newest, read = Query(store, ENTRIES), Fraction(-1), 0
    while rows := query.trigger(limit):  # of name, number and length
        times = [Fraction(entry_id, counts[name]) for name, entry_id, _ in rows]
        assert min(times) >= newest
        assert len(rows) * 4 <= limit + 3 * 4
        newest, read = max(times), read + len(rows)
    assert read == sum(counts.values())


def test_a_batch_begins_inside_a_block_of_a_cold_ledger(store: app.Store) -> None:
    """Its first block, which is checked as a whole, begins with the entries of another row."""
    name, count = new_ledger(store), MAX_RUN_ENTRIES + 900
    add_entries(store, name, *[b"x"] * count, seal=True)
    with store.metadata.write() as txn:
        policies.put(txn, ROOT_DIRECTORY, {"object_bytes": "65536"})
    verbs.offload(store, name)
    verbs.evict(store, name, force=True)
    query = Query(store, ENTRIES)
    query.trigger(MAX_RUN_ENTRIES + 100)
    assert query.trigger() == [(name, entry_id, 1) for entry_id in range(MAX_RUN_ENTRIES + 100, count)]


def test_cold_only_is_what_the_cold_tier_has(store: app.Store) -> None:
    query = Query(store, replace(LINES, cold_only=True))
    append(store, "a", b"one\ntwo\nth")
    assert query.trigger() is None
    verbs.offload(store, "a")
    append(store, "a", b"ree\nlast", seal=True)
    assert query.trigger() == lines("a", b"one", b"two")
    verbs.offload(store, "a")
    assert query.trigger() == lines("a", b"three", b"last", at=8)
    # The chunk that holds a new head stays whole: its bytes before the head are not the segment's.
    fill(store, b"0123456\n" * 3, cold_bytes=24)
    store.engine.truncate("s", 20, cold_due_ms=0)
    append(store, "s", b"abc\n")
    assert ("s", 20, b"456\n") in (Query(store, replace(BYTES, cold_only=True)).trigger() or [])


@pytest.mark.parametrize("latest", [False, True])
def test_what_is_there_at_the_begin_is_left_out_or_all_there_is(store: app.Store, latest: bool) -> None:
    append(store, "a", b"old\ntwo\nha")
    append(store, "b", b"sealed", seal=True)
    query = Query(store)
    if latest:
        query.checkpoint = ""
        query.restart(latest=True)
    else:
        query.stream.freeze()
    append(store, "a", b"lf\n")
    append(store, "c", b"new\n")
    if not latest:
        for rows in (lines("a", b"old"), lines("b", b"sealed"), lines("a", b"two", at=4), None):
            assert query.trigger(1) == rows
        query.restart()
    assert query.trigger() == [*lines("a", b"half", at=8), *lines("c", b"new")]


def test_an_idle_store_is_not_listed_again(store: app.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    append(store, "a", b"one\nhalf")
    query = Query(store)
    query.trigger()
    monkeypatch.setattr("tierfs.pipeline.reader.stream_listing.select", lambda *_: pytest.fail("listed"))
    append(store, "a", b" of")
    assert query.trigger() is None
    monkeypatch.setattr("tierfs.pipeline.reader.driver_reader.ScanFetcher", lambda *_: pytest.fail("read"))
    monkeypatch.setattr("tierfs.pipeline.reader.stream.advance", lambda *_: pytest.fail("looked"))
    assert query.trigger() is None


def test_a_bucket_that_is_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "temporary").mkdir()
    (tmp_path / "cold").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    init_store(tmp_path / "store", Place.in_directory(tmp_path / "cold"))
    with app.open_store(tmp_path / "store") as owner:
        append(owner, "a", b"one\ntw")
        verbs.offload(owner)
        with open_source(f"file://{tmp_path / 'cold'}") as replica:
            query = Query(replica)
            assert query.trigger() == lines("a", b"one")
            append(owner, "a", b"o\nthree", seal=True)
            append(owner, "b", b"new\n")
            verbs.settle(owner)
            refresh_source(replica)
            assert query.trigger() is None, "what is not cold yet is shown up to where it is"
            verbs.offload(owner)
            refresh_source(replica)
            assert query.trigger() == [*lines("a", b"two", b"three", at=4), *lines("b", b"new")]
            assert StreamOffset.of(json.loads(query.checkpoint)).open.keys() == {
                one.birth for one in query.stream._listing.known if not one.sealed
            }
