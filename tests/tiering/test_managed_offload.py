"""offload_prefix: the ledgers before a position become cold, each as an attempt of its own (cases A5)."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from tests.doubles.scripted_storage import ScriptedStorage
from tests.ledgers import ROOMY, ledger_names, new_ledger, record, written
from tests.stores import TestStore, quiet
from tierfs.base.words.errors import Conflict, DataLoss, InvalidRequest, NotFound, Unavailable
from tierfs.base.words.names import MAX_LEDGER_ID
from tierfs.engine.metadata.tables import INTENTS
from tierfs.engine.segments import positions
from tierfs.engine.segments.positions import EARLIEST, Position
from tierfs.tiering.ledgers.managed import PrefixOffloaded
from tierfs.tiering.ledgers.offload import LedgerRecipe
from tierfs.tiering.objects import Made

TEN = [b"entry %d" % number for number in range(10)]

POLICY = ROOMY


def topic(store: TestStore, closed: int, last: int | None = None) -> list[str]:
    """A managed ledger of so many closed ledgers of ten entries, and an open one of `last` entries."""
    names = [new_ledger(store, TEN, "t") for _ in range(closed)]
    if last is not None:
        names.append(new_ledger(store, TEN[:last], "t", close=False))
    return names


def number(name: str) -> int:
    return int(name.rpartition("/")[2])


def prefix(store: TestStore, ledger: str | int | None = None, entry: int = 0) -> PrefixOffloaded:
    before = None if ledger is None else Position(ledger if isinstance(ledger, int) else number(ledger), entry)
    return store.cold_work().offload_prefix("t", before, quiet)


def offloaded(store: TestStore, names: list[str]) -> list[bool]:
    """Per ledger whether it is, by its context and by its bytes, which agree."""
    found = [record(store, name).offload.complete for name in names]
    assert found == [store.segment(name).cold.count > 0 for name in names]
    return found


def test_ledgers_before_the_position_become_cold_and_the_first_other_one_is_told(store: TestStore) -> None:
    names = topic(store, 2, last=5)
    done = prefix(store, names[2], 3)
    assert done == PrefixOffloaded(f"{number(names[2])}:0", ledgers=2, bytes=140, journal_entries=done.journal_entries)
    assert offloaded(store, names) == [True, True, False]
    assert written(store, names[0]) == TEN
    context = record(store, names[0]).offload
    assert (context.timestamp_ms, context.local_deleted) == (store.clock.now_ms(), False)


EDGES = {
    # closed ledgers and entries of the open one; the position; the first position that is not cold, and what is
    "none: every closed one": (3, None, None, 0, (2, 10), [True, True, True]),
    "in the open one": (1, 5, 1, 0, (1, 0), [True, False]),
    "in the last entry, which is not before it": (2, 1, 1, 9, (1, 0), [True, False, False]),
    "between two": (2, 1, 2, 0, (2, 0), [True, True, False]),
    "behind the last entry": (2, None, 0, 10, (1, 0), [True, False]),
    "in an empty last one": (1, 0, 1, 0, (1, 0), [True, False]),
    "in the only one": (0, 1, 0, 0, (0, 0), [False]),
}


@pytest.mark.parametrize("row", EDGES)
def test_a_position_at_every_edge(store: TestStore, row: str) -> None:
    closed, last, ledger, entry, first_other, cold = EDGES[row]
    names = topic(store, closed, last)
    where = None if ledger is None else names[ledger]
    done = prefix(store, where, entry)
    assert done.first_unoffloaded == f"{number(names[first_other[0]])}:{first_other[1]}"
    assert (done.ledgers, offloaded(store, names)) == (sum(cold), cold)
    before = ledger_names(store)
    again = prefix(store, where, entry)
    assert (again.first_unoffloaded, again.ledgers, again.already_cold) == (done.first_unoffloaded, 0, sum(cold))
    assert ledger_names(store) == before


@pytest.mark.parametrize(
    "position", [EARLIEST, Position(MAX_LEDGER_ID, MAX_LEDGER_ID), Position(0, 11), Position(0, -1), Position(77, 0)]
)
def test_positions_in_none_of_the_ledgers_are_refused(store: TestStore, position: Position) -> None:
    names = topic(store, 1, last=5)
    ledger_id = position.ledger_id or number(names[0])
    with pytest.raises(InvalidRequest, match=r"is not in t|t has no ledger"):
        prefix(store, ledger_id, position.entry_id)
    assert offloaded(store, names) == [False, False]


def test_ledgers_without_entries_are_passed_over(store: TestStore) -> None:
    names = [*topic(store, 1), new_ledger(store, [], "t"), *topic(store, 1, last=1)]
    assert prefix(store).ledgers == 2
    assert offloaded(store, names) == [True, False, True, False]
    assert record(store, names[1]).offload.uuid is None


def test_what_is_no_managed_ledger_is_refused(store: TestStore) -> None:
    (name,) = topic(store, 1)
    with pytest.raises(InvalidRequest, match="is a segment, not a managed ledger"):
        store.cold_work().offload_prefix(name, None, quiet)
    with pytest.raises(NotFound):
        store.cold_work().offload_prefix("nowhere", None, quiet)


@pytest.mark.parametrize("failing", [0, 1, 2])
@pytest.mark.parametrize("put", [1, 3])
def test_a_ledger_that_fails_keeps_no_other_from_being_complete(
    store: TestStore, storage: ScriptedStorage, failing: int, put: int
) -> None:
    names = topic(store, 3, last=5)
    store.cold_work().publish()
    storage.fail("put", Unavailable("away"), on=3 * failing + put)
    with pytest.raises(Unavailable):
        prefix(store, names[3])
    assert offloaded(store, names) == [at != failing for at in range(3)] + [False]
    failed = record(store, names[failing]).offload
    assert (failed.uuid is None, failed.complete) == (False, False)
    prefix(store, names[3])
    assert offloaded(store, names) == [True, True, True, False]
    attempts = [record(store, name).offload.uuid for name in names[:3]]
    assert attempts[failing] != failed.uuid
    assert {key[:36] for key in ledger_names(store)} == set(map(str, attempts)), "the failed one left nothing"


def interrupted(monkeypatch: pytest.MonkeyPatch, happens: Callable[[], object]) -> None:
    """Let something happen between the first ledger's objects and the commit that links them."""
    link = LedgerRecipe.link

    def later(recipe: LedgerRecipe, made: Made) -> None:
        monkeypatch.setattr(LedgerRecipe, "link", link)
        happens()
        link(recipe, made)

    monkeypatch.setattr(LedgerRecipe, "link", later)


def states(store: TestStore) -> list[str]:
    with store.metadata.read() as txn:
        return [one.offload.value for one in positions.status(txn, "t", held=True).ledgers]


def test_status_tells_of_an_attempt_from_its_begin_to_its_end(
    store: TestStore, storage: ScriptedStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic(store, 2, last=1)
    store.cold_work().publish()
    assert states(store) == ["none", "none", "none"]
    storage.fail("put", Unavailable("away"), on=2)
    with pytest.raises(Unavailable):
        prefix(store)
    assert states(store) == ["failed", "complete", "none"]
    work, seen = store.cold_work(), list[str]()
    interrupted(monkeypatch, lambda: seen.extend(states(store)))
    work.offload_prefix("t", None, quiet)
    assert seen == ["in progress", "complete", "none"]
    assert states(store) == ["complete", "complete", "none"]


@pytest.mark.parametrize("gone", [0, 1], ids=["at its turn", "before its turn"])
def test_a_ledger_trimmed_during_the_offload_stops_no_other(
    store: TestStore, monkeypatch: pytest.MonkeyPatch, gone: int
) -> None:
    names = topic(store, 2)
    work = store.cold_work()
    interrupted(monkeypatch, lambda: store.engine.delete(names[gone], recursive=False, cold_due_ms=0))
    assert work.offload_prefix("t", None, quiet).ledgers == 1
    kept = names[1 - gone]
    assert offloaded(store, [kept]) == [True]
    assert {key[:36] for key in ledger_names(store)} == {str(record(store, kept).offload.uuid)}
    with store.metadata.read() as txn:
        assert txn.count(INTENTS.name) == 0


def test_removing_a_ledger_removes_what_an_attempt_left(store: TestStore, storage: ScriptedStorage) -> None:
    (name,) = topic(store, 1)
    store.cold_work().publish()
    storage.fail("put", KeyboardInterrupt(), on=3)
    with pytest.raises(KeyboardInterrupt):
        prefix(store)
    with store.metadata.write() as txn:  # as if its intents were lost
        txn.delete_prefix(INTENTS.name, b"")
    assert len(ledger_names(store)) == 1
    store.engine.delete(name, recursive=False, cold_due_ms=0)
    store.cold_work().collect()
    assert ledger_names(store) == []


def test_a_damaged_ledger_is_told_and_the_others_are_complete(store: TestStore) -> None:
    names = topic(store, 2)
    for file in list(store.files.root.glob("*/*"))[:1]:
        file.chmod(0o600)
        file.write_bytes(bytes(70))
    with pytest.raises(DataLoss):
        prefix(store)
    assert sorted(offloaded(store, names)) == [False, True]


def test_a_run_by_hand_is_refused_while_one_by_policy_is_at_work(store: TestStore, storage: ScriptedStorage) -> None:
    names = topic(store, 2)
    other = new_ledger(store, TEN, "other")
    work = store.cold_work()
    put = storage.hold("put", of="-ledger-")
    by_itself = threading.Thread(target=work.managed.offload_one, args=(store.segment(names[0]).id,))
    by_itself.start()
    put.wait_begun()
    with pytest.raises(Conflict, match="an offload of t is in progress"):
        work.offload_prefix("t", None, quiet)
    assert work.offload_prefix("other", None, quiet).ledgers == 1
    put.go_on()
    by_itself.join()
    assert work.offload_prefix("t", None, quiet).ledgers == 1
    assert offloaded(store, [*names, other]) == [True, True, True]


def test_two_runs_by_hand_are_one_and_runs_by_policy_wait_for_it(store: TestStore, storage: ScriptedStorage) -> None:
    names = topic(store, 2)
    work = store.cold_work()
    put = storage.hold("put", of="-ledger-")
    done: set[tuple[str, int]] = set()
    by_hand = threading.Thread(target=lambda: done.add(("hand", work.offload_prefix("t", None, quiet).ledgers)))
    by_hand.start()
    put.wait_begun()
    with pytest.raises(Conflict, match="an offload of t is in progress"):
        work.offload_prefix("t", None, quiet)
    first = store.segment(names[0]).id
    waiting = threading.Thread(target=lambda: done.add(("itself", work.managed.offload_one(first))))
    waiting.start()
    put.go_on()
    by_hand.join()
    waiting.join()
    assert done == {("hand", 2), ("itself", 0)}
    assert offloaded(store, names) == [True, True]
