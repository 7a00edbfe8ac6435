"""Managed ledgers: entries continue in the next ledger when policy closes one, in one order of positions."""

from __future__ import annotations

import pytest

from tests.stores import TestStore
from tierfs.clock import ManualClock
from tierfs.config import WriteSettings
from tierfs.errors import Closed, Conflict, Fenced, InvalidRequest, NoColdTier, NotFound, Sealed
from tierfs.metadata import changes as journal
from tierfs.metadata import directories, policies
from tierfs.metadata import records_pb2 as pb
from tierfs.retention.retention import Retention
from tierfs.segments import ledgers, positions
from tierfs.segments.engine import Engine
from tierfs.segments.managed_ledger import Added, ManagedLedger
from tierfs.segments.positions import Position
from tierfs.types import ROOT_DIRECTORY

BASE = {"chunk_bytes": "65536", "object_bytes": "65536"}
POLICY = BASE | {"ledger_entries": "10"}
HOUR_S = 3600


def set_policy(store: TestStore, **settings: str) -> None:
    with store.metadata.write() as txn:
        policies.put(txn, ROOT_DIRECTORY, BASE | settings)


def opened(store: TestStore, path: str = "t") -> ManagedLedger:
    return ManagedLedger(store.engine, path)


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


def test_a_roll_closes_the_open_ledger(store: TestStore) -> None:
    managed = opened(store)
    managed.roll()
    managed.add_entries([b"a"])
    managed.roll()
    managed.roll()
    assert picture(store) == [(1, "closed")]
    managed.add_entries([b"b"])
    assert picture(store) == [(1, "closed"), (1, "open")]


def test_there_is_one_writer(store: TestStore, clock: ManualClock) -> None:
    first = opened(store)
    first.add_entries([b"a"])
    other = open_engine(store)
    with pytest.raises(Conflict, match="is being written by"):
        ManagedLedger(other, "t")
    second = ManagedLedger(other, "t", take_over=True)
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


def open_engine(store: TestStore) -> Engine:
    """The engine that another process would have."""
    return Engine(store.metadata, store.files, store.path / "writers", store.clock, WriteSettings())


def test_a_closed_one_takes_nothing(store: TestStore) -> None:
    managed = opened(store)
    managed.add_entries([b"a"] * 21)
    managed.close()
    managed.close()
    for refused in (lambda: managed.add([b"b"]), managed.roll, lambda: managed.offload_prefix(Position(0, 0))):
        with pytest.raises(Closed):
            refused()
    assert picture(store) == [(10, "closed"), (10, "closed"), (1, "open")]


def test_without_an_offloader_every_offload_is_unavailable(store: TestStore) -> None:
    managed = opened(store)
    managed.add_entries([b"a"] * 11)
    with pytest.raises(NoColdTier, match="needs a cold tier"):
        managed.offload_prefix(Position(ids(store)[1], 0))
    managed = ManagedLedger(store.engine, "u", offloader=lambda path, before: Position(before.ledger_id, 0))
    assert managed.offload_prefix(Position(7, 3)) == Position(7, 0)


def test_a_terminated_one_takes_nothing_for_good(store: TestStore) -> None:
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
    assert Retention(store.metadata, store.engine, grace_s=0).seal() == 1
    assert picture(store) == [(1, "closed")]
    managed.add_entries([b"b"])
    assert picture(store) == [(1, "closed"), (1, "open")]
    managed.close()
    store.engine.delete("t", recursive=True, cold_due_ms=0)
    managed = opened(store)
    managed.add_entries([b"c"])
    assert picture(store) == [(1, "open")]


def test_the_holder_closes_what_no_writer_will(store: TestStore) -> None:
    set_policy(store)
    managed = opened(store)
    managed.add_entries([b"a"] * 12)
    set_policy(store, ledger_entries="10")
    other = open_engine(store)
    assert Retention(store.metadata, other, grace_s=0).seal() == 0  # its writer will
    managed.close()
    assert Retention(store.metadata, store.engine, grace_s=0).seal() == 1
    assert picture(store) == [(12, "closed")]
    other.close()


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
