"""Ledgers of the streaming form that grow between two adoptions: what they gained is linked, in one commit."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.commands import tierfs
from tests.doubles.manual_clock import ManualClock
from tests.engine.ledger.pulsar_goldens import PULSAR, made_of
from tests.pipeline.reader.test_stream import ENTRIES, Query
from tests.stores import TestStore, assert_layout, open_test_store
from tests.tiering.adoption.adopting import PLACE, planned, read, run, states
from tests.tiering.adoption.foreign import cat, write_files
from tests.tiering.adoption.pulsar import TOPIC, Offloaded, in_files, in_memory, offloaded, streamed
from tierfs.app import store as app
from tierfs.base.bytes.progress import Meter
from tierfs.base.words.errors import AlreadyExists, Conflict, DataLoss
from tierfs.base.words.types import ROOT_DIRECTORY, SegmentId
from tierfs.engine.metadata import directories, entries, policies, tables
from tierfs.engine.metadata.chain_edits import Editor
from tierfs.engine.metadata.tables import CHUNKS, LEDGERS, LOCATIONS, OBJECTS
from tierfs.engine.segments import ledgers
from tierfs.tiering.adoption.adopt import State, foresee
from tierfs.tiering.adoption.ledger_link import LedgerLinker
from tierfs.tiering.adoption.ledger_read import FoundLedger
from tierfs.tiering.adoption.lost_rows import lost_rows, rescan
from tierfs.tiering.adoption.plan import LedgerPlan

SEVEN = f"in/{TOPIC}/00000000000000000007"
FIRST = streamed(1, [(7, 0, [b"a", b"", b"bc"])], {7: 0})
SECOND = streamed(2, [(7, 3, [b"x" * 100]), (7, 4, [b"", b"d"])], {7: 0})
THIRD = streamed(3, [(7, 6, [b"e"])], {7: 7})
PAYLOADS = [b"a", b"", b"bc", b"x" * 100, b"", b"d", b"e"]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[TestStore]:
    with open_test_store(tmp_path / "store") as opened:
        opened.cold_work().publish()
        yield opened


def test_an_open_ledger_gains_its_next_objects_until_it_is_closed(store: TestStore) -> None:
    theirs = in_memory(FIRST)
    assert states(run(store, theirs)) == [State.ADOPTED]
    opened = store.segment(SEVEN)
    assert (opened.sealed, opened.grows_from > 0, read(store, theirs, SEVEN)) == (False, True, PAYLOADS[:3])
    assert states(run(store, theirs)) == [State.ALREADY]
    theirs = in_memory(FIRST, SECOND)
    (outcome,) = run(store, theirs)
    assert (outcome.state, outcome.new_bytes, read(store, theirs, SEVEN)) == (State.GROWN, 101, PAYLOADS[:6])
    grown = store.segment(SEVEN)
    assert (grown.sealed, grown.id, grown.inode) == (False, opened.id, opened.inode), "readers keep it open"
    theirs = in_memory(FIRST, SECOND, THIRD)
    assert states(run(store, theirs)) == [State.GROWN]
    assert read(store, theirs, SEVEN) == PAYLOADS
    closed = store.segment(SEVEN)
    assert (closed.sealed, closed.grows_from) == (True, 0)
    assert_layout(store, SEVEN, local=[], cold=[3, 101, 1])
    assert states(run(store, theirs)) == [State.ALREADY]


def test_a_ledger_that_seemed_complete_is_opened_for_what_it_gained(store: TestStore) -> None:
    """An index of Pulsar's may count the entries that there were when it was written."""
    before = streamed(1, [(7, 0, [b"a", b"", b"bc"])], {7: 3})
    theirs = in_memory(before)
    assert states(run(store, theirs)) == [State.ADOPTED]
    closed = store.segment(SEVEN)
    assert closed.sealed
    theirs = in_memory(before, SECOND, THIRD)
    assert states(run(store, theirs)) == [State.GROWN]
    grown = store.segment(SEVEN)
    assert (grown.sealed, grown.inode == closed.inode) == (True, False), "the kernel caches what was closed"
    assert read(store, theirs, SEVEN) == PAYLOADS
    assert states(run(store, theirs)) == [State.ALREADY]


def test_an_object_of_empty_entries_has_rows_alone(store: TestStore) -> None:
    empty = streamed(2, [(7, 3, [b"", b""])], {7: 0})
    theirs = in_memory(FIRST)
    run(store, theirs)
    for _ in range(2):
        theirs = in_memory(FIRST, empty)
        assert states(run(store, theirs))[0] in (State.GROWN, State.ALREADY)
        assert read(store, theirs, SEVEN) == [*PAYLOADS[:3], b"", b""]
    theirs = in_memory(FIRST, empty, streamed(3, [(7, 5, [b"e"])], {7: 6}))
    assert states(run(store, theirs)) == [State.GROWN]
    assert read(store, theirs, SEVEN) == [*PAYLOADS[:3], b"", b"", b"e"]


@pytest.mark.parametrize(
    ("then", "error", "said"),
    [
        ([SECOND], AlreadyExists, f"{FIRST.key} is missing or has changed"),
        ([FIRST, THIRD], DataLoss, "entries 3 to 5 are in none of its objects"),
        ([FIRST, streamed(2, [(7, 2, [b"bc", b"x"])], {7: 0})], AlreadyExists, "already has entry 2, the first of"),
        (
            [FIRST, streamed(2, [(7, 3, [b"x"])], {7: 6})],
            DataLoss,
            "2 of 6 entries are not in its object, from entry 4 on",
        ),
        ([FIRST, streamed(2, [(7, 3, [b"x"]), (7, 4, [b"y" * 99])], {7: 0}, shift=1)], DataLoss, ""),
        ([offloaded([b"another", b"form"])], AlreadyExists, "is missing or has changed"),
    ],
    ids=["gone", "a part is missing", "overlap", "a tail is missing", "damage", "offloaded again"],
)
def test_what_is_refused_leaves_the_ledger_as_it_was(
    store: TestStore, then: list[Offloaded], error: type[Exception], said: str
) -> None:
    theirs = in_memory(FIRST)
    run(store, theirs)
    before, rows = store.segment(SEVEN), counts_of(store)
    (outcome,) = run(store, in_memory(*then))
    assert (outcome.state, type(outcome.error), said in str(outcome.error)) == (State.FAILED, error, True), (
        outcome.error
    )
    assert (store.segment(SEVEN), counts_of(store)) == (before, rows)
    assert read(store, theirs, SEVEN) == PAYLOADS[:3]


def counts_of(store: TestStore) -> tuple[int, dict[str, int]]:
    """Entries of the ledger, and rows of tables."""
    with store.metadata.read() as txn:
        kept = {table.name: txn.count(table.name) for table in (tables.ENTRIES, OBJECTS, CHUNKS, LEDGERS, LOCATIONS)}
        return entries.count(txn, store.segment(SEVEN).id), kept


def test_a_changed_object_is_not_what_was_linked(store: TestStore) -> None:
    run(store, in_memory(FIRST))
    other = streamed(1, [(7, 0, [b"b", b"", b"bc"])], {7: 0})
    (outcome,) = run(store, in_memory(other, SECOND))
    assert (outcome.state, "has changed" in str(outcome.error)) == (State.FAILED, True)


def test_a_dry_run_foretells_the_growth_of_a_ledger(store: TestStore) -> None:
    run(store, in_memory(FIRST))
    for objects, state in (([FIRST], State.ALREADY), ([FIRST, SECOND], State.WOULD_GROW), ([], None)):
        for plan in planned(in_memory(*objects)).segments:
            assert foresee(store.metadata, plan, PLACE).state is state


def test_a_ledger_that_changed_meanwhile_is_left_alone(store: TestStore) -> None:
    run(store, in_memory(FIRST))
    theirs = in_memory(FIRST, SECOND)
    linker = LedgerLinker(store.metadata, PLACE, None)
    (plan,) = planned(theirs).segments
    assert isinstance(plan, LedgerPlan)
    growth = linker.growth(plan)
    assert growth is not None
    store.engine.seal(SEVEN)
    with pytest.raises(Conflict, match="was changed meanwhile"):
        linker.grow(growth, FoundLedger(), linker.rows_of(growth.segment))
    assert states(run(store, theirs)) == [State.GROWN]
    assert read(store, theirs, SEVEN) == PAYLOADS[:6]


@pytest.mark.parametrize("step", ["link_objects", "put"])
def test_a_crash_at_each_step_changes_nothing(store: TestStore, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    class Crash(BaseException):
        pass

    def crash(*_: object, **__: object) -> None:
        raise Crash

    run(store, in_memory(FIRST))
    before, rows = store.segment(SEVEN), counts_of(store)
    with monkeypatch.context() as patch:
        patch.setattr(Editor, step, crash)
        with pytest.raises(Crash):
            run(store, in_memory(FIRST, SECOND))
    assert (store.segment(SEVEN), counts_of(store)) == (before, rows)
    assert states(run(store, in_memory(FIRST, SECOND))) == [State.GROWN]


def test_nothing_else_ends_or_appends_to_a_ledger_that_grows(store: TestStore) -> None:
    with store.metadata.write() as txn:
        policies.put(txn, ROOT_DIRECTORY, {"ledger_entries": "1", "seal_age": "1"})
    run(store, in_memory(FIRST))
    assert isinstance(store.clock, ManualClock)
    store.clock.advance(10**6)
    segment = store.segment(SEVEN)
    with store.metadata.read() as txn:
        assert not ledgers.is_due(txn, segment, policies.effective(txn, segment), store.clock.now_ms())
    with pytest.raises(Conflict, match="follows s3://theirs/offloaded and does not accept local appends") as refused:
        store.engine.open_ledger(SEVEN)
    assert refused.value.remedy == "to stop following: tierfs adopt --stop its place, tierfs seal it"


def test_what_pulsar_itself_wrote_grows(tmp_path: Path) -> None:
    """Ledger 22 lies in two objects, which came one after the other."""
    store, theirs, expected = tmp_path / "store", tmp_path / "theirs", made_of("streaming")[22]
    tierfs("-q", "init", "--cold", "none", store=store)
    theirs.mkdir()
    for index, (state, count) in zip(
        sorted((PULSAR / "streaming").glob("*-index")), [("adopted", 3), ("grown", 7)], strict=True
    ):
        for file in index.parent.glob(f"{index.name.removesuffix('-index')}*"):
            shutil.copy(file, theirs)
        done = tierfs("-q", "adopt", "--as", "pulsar", theirs, "--into", "in", "--json", store=store, check=False)
        name = f"in/unknown/{22:020d}"
        assert {row["segment"]: row["state"] for row in done.json["segments"]}[name] == state
        entries = [json.loads(line) for line in tierfs("ledger", "read", name, "--json", store=store).out.splitlines()]
        assert [entry["sha256"] for entry in entries] == expected[:count]
    assert len(expected) == 7


def test_a_stream_reads_what_a_ledger_gains(tmp_path: Path) -> None:
    store, theirs = tmp_path / "store", tmp_path / "theirs"
    tierfs("-q", "init", "--cold", "none", store=store)
    with app.open_store(store) as opened:
        query = Query(opened, ENTRIES)
        for objects, read_before, count in ((FIRST, 0, 3), (SECOND, 3, 6), (THIRD, 6, 7)):
            write_files(theirs, in_files(objects))
            tierfs("-q", "adopt", "--as", "pulsar", theirs, "--into", "in", store=store)
            assert query.trigger() == [(SEVEN, number, len(PAYLOADS[number])) for number in range(read_before, count)]
        assert query.trigger() is None


def test_an_open_ledger_is_sound_recovered_and_restored_from_its_objects(tmp_path: Path) -> None:
    store, cold, other = (tmp_path / name for name in ("store", "cold", "other"))
    cold.mkdir()
    tierfs("-q", "init", "--cold-dir", cold, store=store)
    for added in (FIRST, SECOND):
        theirs = write_files(tmp_path / "theirs", in_files(added))
        tierfs("-q", "adopt", "--as", "pulsar", theirs, "--into", "in", store=store)
        assert tierfs("-q", "check", "--read", store=store).code == 0
        assert tierfs("ledger", "verify", "in", "--json", store=store).json["state"] == "ok"
    assert cat(store, SEVEN) == b"".join(PAYLOADS[:6])
    tierfs("-q", "recover", "--cold-dir", cold, "--yes", store=other)
    again = write_files(tmp_path / "theirs", in_files(THIRD))
    done = tierfs("-q", "adopt", "--as", "pulsar", again, "--into", "in", "--json", store=other)
    assert [row["state"] for row in done.json["segments"]] == ["grown"]
    assert cat(other, SEVEN) == b"".join(PAYLOADS)
    assert tierfs("-q", "check", "--read", store=other).code == 0
    with app.open_store(store) as opened:
        with opened.metadata.write() as txn:
            entries.remove(txn, SegmentId(directories.segment_by_name(txn, SEVEN).id))
        (lost,) = lost_rows(opened.metadata)
        for copy in cold.glob("ledgers/*"):
            copy.unlink()
        runs = rescan(lost, opened.storage_of, Meter())
    assert sum(len(run.lengths) for run in runs) == 6
