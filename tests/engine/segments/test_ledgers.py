"""Ledgers as segments: entries are committed together with the length, whole, once, and in order."""

from __future__ import annotations

import pytest

from tests.doubles.manual_clock import ManualClock
from tests.stores import TestStore, assert_layout, create_ledger
from tests.upkeep.check.looking import findings
from tierfs.base.bytes.parallel import Attempts
from tierfs.base.words.errors import (
    AlreadyExists,
    Closed,
    Conflict,
    Fenced,
    InvalidRequest,
    NoColdTier,
    NotFound,
    Sealed,
)
from tierfs.base.words.types import ROOT_DIRECTORY
from tierfs.engine.metadata import changes as journal
from tierfs.engine.metadata import directories, entries, policies, tables
from tierfs.engine.metadata import records_pb2 as pb
from tierfs.engine.metadata.tables import ENTRIES
from tierfs.engine.segments import ledgers, positions
from tierfs.engine.segments.managed_ledger import Added, ManagedLedgerWriter
from tierfs.engine.segments.positions import Position
from tierfs.tiering.garbage.retention import Retention
from tierfs.upkeep.check.findings import Kind, Mend

NAME = "topic/00000000000000000007"


@pytest.fixture
def ledger(store: TestStore) -> None:
    create_ledger(store.metadata, NAME)


def append(store: TestStore, *payloads: bytes) -> range:
    writer = store.engine.open_ledger(NAME)
    written = writer.append_entries(payloads)
    store.engine.close_writer(writer)
    return written


def found(store: TestStore, start: int = 0, end: int = 1 << 40) -> list[bytes]:
    """The payloads of entries [start, end)."""
    data = store.read(NAME)
    with store.metadata.read() as txn:
        places = list(entries.placed(txn, store.segment(NAME).id, start, end))
    assert [one.entry_id for one in places] == list(range(start, start + len(places)))
    return [data[one.range.start : one.range.end] for one in places]


def wrong(store: TestStore) -> list[tuple[Kind, Mend | None]]:
    return [(one.kind, one.mend) for one in findings(store) if one.kind is Kind.ENTRIES]


@pytest.mark.parametrize(
    ("groups", "local"),
    [
        ([[b""]], []),
        ([[b"", b""], [b""]], []),
        ([[b"abcd"], [b"e"]], [4, 1]),
        ([[b"abc", b"", b"defghi"], [b""], [b"j"]], [4, 4, 2]),
    ],
    ids=["one empty", "all empty", "a chunk each", "across chunks"],
)
@pytest.mark.parametrize("crash", [False, True])
@pytest.mark.parametrize("policy", [None], ids=["small chunks"])
@pytest.mark.usefixtures("ledger")
def test_entries_cross_chunks_and_may_be_empty(
    store: TestStore, groups: list[list[bytes]], local: list[int], crash: bool
) -> None:
    held: list[bytes] = []
    for group in groups:
        assert append(store, *group) == range(len(held), len(held) + len(group))
        held += group
    if crash:
        writer = store.engine.open_ledger(NAME)
        writer.append_entries([b"abcdef", b"g"])
        store.reopen()  # whole entries stay, and the next writer goes on
        held += [b"abcdef", b"g", b"hi"]
        assert append(store, b"hi").stop == len(held)
    else:
        assert_layout(store, NAME, local=local, cold=[])
    assert found(store) == held
    for start in range(len(held)):
        assert found(store, start, start + 2) == held[start : start + 2]
    assert wrong(store) == []
    store.engine.delete("topic", recursive=True, cold_due_ms=0)
    with store.metadata.read() as txn:
        assert txn.count(ENTRIES.name) == 0


@pytest.mark.usefixtures("ledger")
def test_bytes_and_entries_do_not_mix_and_a_closed_ledger_takes_neither(store: TestStore) -> None:
    store.append("s", b"abc")
    ledger, writer = store.engine.open_ledger(NAME), store.engine.open_writer("s")
    for act, error, words in (
        (lambda: store.engine.open_writer(NAME), InvalidRequest, f"{NAME} is a ledger"),
        (lambda: store.engine.open_ledger("s"), InvalidRequest, "s is not a ledger"),
        (lambda: ledger.append(b"abc"), InvalidRequest, "is a ledger: it takes entries"),
        (lambda: writer.append_entries([b"abc"]), InvalidRequest, "s takes bytes"),
        (lambda: create_ledger(store.metadata, NAME), AlreadyExists, "already exists"),
        (lambda: store.engine.open_ledger("topic/8"), NotFound, "topic/8"),
    ):
        with pytest.raises(error, match=words):
            act()
    store.engine.close_writer(ledger)
    append(store, b"abc")
    store.engine.seal(NAME)
    with pytest.raises(Sealed):
        store.engine.open_ledger(NAME)
    with pytest.raises(InvalidRequest):
        store.engine.unseal(NAME)
    assert found(store) == [b"abc"]


@pytest.mark.usefixtures("ledger")
def test_check_finds_entries_that_do_not_end_with_their_ledger_or_follow_each_other(store: TestStore) -> None:
    append(store, b"abc", b"def")
    segment_id = store.segment(NAME).id
    with store.metadata.read() as txn:
        run = next(iter(entries.runs(txn, segment_id)))
    for lengths in ((3, 2), ()):
        with store.metadata.write() as txn:
            entries.remove(txn, segment_id)
            if lengths:
                entries.append(txn, segment_id, 0, lengths)
        assert wrong(store) == [(Kind.ENTRIES, None)]
    with store.metadata.write() as txn:
        txn.put(ENTRIES, tables.pair(segment_id, 1), run)
        txn.put(ENTRIES, tables.pair(99, 0), run)
    assert (Kind.ENTRIES, None) in wrong(store)
    assert (Kind.ENTRIES, Mend.DROP_ROW) in wrong(store)


BASE = {"chunk_bytes": "65536", "object_bytes": "65536"}

POLICY = BASE | {"ledger_entries": "10"}

HOUR_S = 3600


def set_policy(store: TestStore, **settings: str) -> None:
    with store.metadata.write() as txn:
        policies.put(txn, ROOT_DIRECTORY, BASE | settings)


def opened(store: TestStore, path: str = "t") -> ManagedLedgerWriter:
    return ManagedLedgerWriter(store.engine, path)


def picture(store: TestStore, path: str = "t") -> list[tuple[int, str]]:
    """Entries and state of each ledger, oldest first."""
    with store.metadata.read() as txn:
        return [(one.entries, one.state) for one in ledgers.below(txn, path)]


def ids(store: TestStore) -> list[int]:
    with store.metadata.read() as txn:
        found = positions.members(txn, positions.directory_of(txn, "t"))
        assert positions.newest(txn, positions.directory_of(txn, "t")) == (found[-1] if found else None)
    return [one.ledger_id for one in found]


def spread(added: list[Added]) -> list[Position]:
    """The positions of all entries."""
    return [Position(one.ledger_id, entry_id) for one in added for entry_id in one.ids]


def test_a_full_ledger_is_closed_at_once_and_the_next_is_made_with_the_next_entry(store: TestStore) -> None:
    managed = opened(store)
    added = managed.add_entries([b"%d" % number for number in range(20)])
    assert picture(store) == [(10, "closed"), (10, "closed")]
    added += managed.add_entries([b"20", b"21", b"22"])
    assert picture(store) == [(10, "closed"), (10, "closed"), (3, "open")]
    assert spread(added) == [
        Position(one, at) for one, end in zip(ids(store), (10, 10, 3), strict=True) for at in range(end)
    ]
    assert [store.read(one.segment).decode() for one in added] == ["0123456789", "10111213141516171819", "202122"]
    assert (str(added[0].first), str(added[-1].last)) == (f"{ids(store)[0]}:0", f"{ids(store)[2]}:2")


def test_bytes_and_age_close_a_ledger_too(store: TestStore, clock: ManualClock) -> None:
    set_policy(store, seal_bytes="10", seal_age=str(HOUR_S))
    managed = opened(store)
    managed.add_entries([b"abcd", b"efgh", b"ijkl", b"m"])
    assert picture(store) == [(3, "closed"), (1, "open")]
    clock.advance(HOUR_S)
    managed.add_entries([b"n"])
    assert picture(store) == [(3, "closed"), (1, "closed"), (1, "open")]


def test_the_open_ledger_goes_on_in_the_next_process_and_opening_makes_nothing(store: TestStore) -> None:
    opened(store).close()
    with store.metadata.read() as txn:
        assert directories.find(txn, "t") is None
    with pytest.raises(InvalidRequest):
        opened(store).add([])
    opened(store).add_entries([b"a"] * 4)
    store.reopen()
    managed = opened(store)
    assert managed.add_entries([b"b"] * 7)[0].ids == range(4, 10)
    managed.close()
    opened(store).add_entries([b"c"])
    assert picture(store) == [(10, "closed"), (2, "open")]


def test_a_roll_and_the_holder_close_what_no_writer_will(store: TestStore) -> None:
    managed = opened(store)
    managed.roll()
    managed.add_entries([b"a"])
    managed.roll()
    managed.roll()
    assert picture(store) == [(1, "closed")]
    set_policy(store)
    managed.add_entries([b"a"] * 12)
    set_policy(store, ledger_entries="10")
    other = store.another_engine()
    assert Retention(store.metadata, other, grace_s=0).seal(Attempts()) == 0  # its writer will
    managed.close()
    assert Retention(store.metadata, store.engine, grace_s=0).seal(Attempts()) == 1
    assert picture(store) == [(1, "closed"), (12, "closed")]
    other.close()


def test_a_managed_ledger_has_one_writer(store: TestStore, clock: ManualClock) -> None:
    first = opened(store)
    first.add_entries([b"a"])
    other = store.another_engine()
    with pytest.raises(Conflict, match="is being written by"):
        ManagedLedgerWriter(other, "t")
    second = ManagedLedgerWriter(other, "t", take_over=True)
    second.add_entries([b"b"])
    with pytest.raises(Fenced):
        first.add_entries([b"c"])
    second.add_entries([b"d"] * 8)
    assert picture(store) == [(10, "closed")]
    second.add_entries([b"e"])
    third = opened(store, "u")
    third.add_entries([b"f"])
    assert picture(store) == [(10, "closed"), (1, "open")]
    other.close()


def test_a_closed_managed_ledger_takes_nothing_and_without_an_offloader_every_offload_is_unavailable(
    store: TestStore,
) -> None:
    managed = opened(store)
    managed.add_entries([b"a"] * 21)
    with pytest.raises(NoColdTier, match="needs a cold tier"):
        managed.offload_prefix(Position(ids(store)[1], 0))
    managed.close()
    managed.close()
    for refused in (lambda: managed.add([b"b"]), managed.roll, lambda: managed.offload_prefix(Position(0, 0))):
        with pytest.raises(Closed):
            refused()
    assert picture(store) == [(10, "closed"), (10, "closed"), (1, "open")]
    managed = ManagedLedgerWriter(store.engine, "u", offloader=lambda _, before, extra: Position(before.ledger_id, 0))
    assert managed.offload_prefix(Position(7, 3)) == Position(7, 0)


def test_a_terminated_managed_ledger_takes_nothing_for_good(store: TestStore) -> None:
    managed = opened(store)
    managed.add_entries([b"a"] * 13)
    assert managed.terminate() == Position(ids(store)[1], 2)
    with store.metadata.read() as txn:
        changes = [pb.Change.FromString(data) for _, data in journal.outbox(txn, 0)]
    assert [change.directory.name for change in changes if change.directory.terminated] == ["t"]
    assert picture(store) == [(10, "closed"), (3, "closed")]
    with pytest.raises(Closed):
        managed.add([b"b"])
    with pytest.raises(Sealed, match="t was terminated"):
        opened(store)
    with store.metadata.write() as txn, pytest.raises(Sealed, match="t was terminated"):
        ledgers.make(txn, "t")
    assert store.engine.terminate_managed_ledger("t") == Position(ids(store)[1], 2)
    with pytest.raises(NotFound):
        store.engine.terminate_managed_ledger("nowhere")


def test_a_ledger_that_the_holder_closed_or_trimmed_is_left_for_the_next(store: TestStore, clock: ManualClock) -> None:
    set_policy(store, seal_age=str(HOUR_S))
    managed = opened(store)
    managed.add_entries([b"a"])
    clock.advance(HOUR_S)
    assert Retention(store.metadata, store.engine, grace_s=0).seal(Attempts()) == 1
    assert picture(store) == [(1, "closed")]
    managed.add_entries([b"b"])
    assert picture(store) == [(1, "closed"), (1, "open")]
    managed.close()
    store.engine.delete("t", recursive=True, cold_due_ms=0)
    managed = opened(store)
    managed.add_entries([b"c"])
    assert picture(store) == [(1, "open")]


def test_ids_ascend_whatever_somebody_chose(store: TestStore) -> None:
    with store.metadata.write() as txn:
        ledgers.make(txn, "t", 1_000_000)
        ledgers.make(txn, "t", 5)
    managed = opened(store)
    assert managed.add_entries([b"a"] * 11)[0].ledger_id == 1_000_000
    assert ids(store) == [5, 1_000_000, 1_000_001]
    assert picture(store) == [(0, "open"), (10, "closed"), (1, "open")]


def test_what_is_no_managed_ledger_is_refused(store: TestStore) -> None:
    store.append("t/s", b"x")
    for path in ("t/s", "", "/"):
        with pytest.raises(InvalidRequest):
            opened(store, path)
    opened(store).add_entries([b"beside a segment"])
    assert picture(store) == [(1, "open")]


@pytest.mark.parametrize("text", ["", "1:", ":1", "-1:0", "1:2:3", "a:b", "1:" + "9" * 30])
def test_positions_are_one_number_or_two(text: str) -> None:
    with pytest.raises(InvalidRequest, match="is not a position"):
        Position.parse(text)
    assert str(Position.parse("42:7")) == "42:7"
    assert Position.parse("42") == Position(42, 0)
