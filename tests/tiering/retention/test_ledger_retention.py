"""Ledgers lose their local bytes after the lag, and go as a whole once they are no longer kept (cases A6)."""

from __future__ import annotations

from uuid import UUID

import pytest

from tests.doubles.manual_clock import ManualClock
from tests.ledgers import ROOMY, ledger_names, new_ledger, record
from tests.stores import TestStore, quiet
from tierfs.base.bytes.parallel import Attempts
from tierfs.base.options.config import BackgroundSettings, Settings
from tierfs.base.options.precedence import Host
from tierfs.base.words.types import ROOT_DIRECTORY
from tierfs.engine.metadata import changes as journal
from tierfs.engine.metadata import policies
from tierfs.engine.metadata import records_pb2 as pb
from tierfs.engine.metadata.transaction import WriteTransaction
from tierfs.engine.segments import ledgers
from tierfs.tiering.garbage.lifetimes import Expiry, Member
from tierfs.tiering.garbage.retention import Expired, Retention
from tierfs.tiering.planner import Planner
from tierfs.tiering.policy import DiskView
from tierfs.tiering.snapshot import Snapshots
from tierfs.upkeep.holder.status import store_status

MINUTE_S = 60
TEN = [b"entry %d" % number for number in range(10)]
SIZE = 70
ENOUGH = DiskView(0, 0, high_used_bytes=1 << 50, high_local_bytes=1 << 50, high_unoffloaded_bytes=1 << 50)

POLICY = ROOMY


def set_policy(store: TestStore, **settings: int) -> None:
    with store.metadata.write() as txn:
        policies.put(txn, ROOT_DIRECTORY, ROOMY | {key: str(value) for key, value in settings.items()})


def hold(store: TestStore) -> Expired:
    """Act as a holder at one instant: evict what is due, let expire what is not kept, publish and collect."""
    planner = Planner()
    Snapshots(store.metadata, planner).refresh()
    work = store.cold_work()
    list(work.evict_segments(planner.next(ENOUGH, store.clock.now_ms()).evictions))
    done = retention(store).expire(Attempts())
    work.publish()
    work.collect()
    return done


def retention(store: TestStore) -> Retention:
    return Retention(store.metadata, store.engine, grace_s=0)


def held(store: TestStore) -> list[tuple[int, str]]:
    """Return the number of each ledger, with the tiers that hold it: local, cold."""
    with store.metadata.read() as txn:
        found = [(one.ledger_id, store.segment(one.segment)) for one in ledgers.below(txn, "")]
    return [(number or 0, "l" * bool(one.local.bytes) + "c" * bool(one.cold.bytes)) for number, one in found]


def tiers(store: TestStore) -> list[str]:
    return [where for _, where in held(store)]


def test_the_lag_passes_then_the_retention(store: TestStore, clock: ManualClock) -> None:
    set_policy(store, deletion_lag=5 * MINUTE_S, retention_age=10 * MINUTE_S)
    name = new_ledger(store, TEN, "t")
    new_ledger(store, TEN[:1], "t", close=False)
    clock.advance(MINUTE_S)
    store.cold_work().offload_prefix("t", None, quiet)
    clock.advance(MINUTE_S)
    hold(store)
    assert tiers(store) == ["lc", "l"]
    assert not record(store, name).offload.local_deleted
    clock.advance(5 * MINUTE_S)
    hold(store)
    assert tiers(store) == ["c", "l"]
    assert record(store, name).offload.local_deleted
    clock.advance(5 * MINUTE_S)
    assert hold(store) == Expired(removed=1, bytes=SIZE)
    assert tiers(store) == ["l"]
    assert ledger_names(store) == []


def test_the_context_is_in_the_commit_that_drops_the_last_chunk_and_in_the_journal(store: TestStore) -> None:
    name = new_ledger(store, TEN, "t")
    store.offload()
    assert store.evict("t").bytes == SIZE
    with store.metadata.read() as txn:
        changes = [pb.Change.FromString(data) for _, data in journal.outbox(txn, 0)]
    told = [change.ledger.offload.local_deleted for change in changes if change.HasField("ledger")]
    assert told == [True]
    assert record(store, name).offload.local_deleted


def test_whole_closed_ledgers_go_from_the_oldest_on_by_age(store: TestStore, clock: ManualClock) -> None:
    set_policy(store, retention_age=3 * MINUTE_S)
    for _ in range(4):
        new_ledger(store, TEN, "t")
        clock.advance(MINUTE_S)
    new_ledger(store, TEN, "t", close=False)
    store.offload()
    assert hold(store).removed == 2
    assert tiers(store) == ["lc", "lc", "l"]
    status = store_status(store.metadata, store.files, store.paths.holder, store.path, allowed="")
    assert status.next_expiry_ms == clock.now_ms() + MINUTE_S * 1000
    clock.advance(100 * MINUTE_S)
    assert hold(store).removed == 2
    assert tiers(store) == ["l"]
    assert store.segment(open_name(store)).start_offset == 0


def open_name(store: TestStore) -> str:
    with store.metadata.read() as txn:
        return [one.segment for one in ledgers.below(txn, "t")][-1]


@pytest.mark.parametrize(("kept", "left"), [(1, 1), (SIZE, 1), (SIZE + 1, 2), (2 * SIZE, 2), (1000, 5)])
def test_whole_closed_ledgers_go_by_size(store: TestStore, kept: int, left: int) -> None:
    set_policy(store, retention_bytes=kept)
    for _ in range(4):
        new_ledger(store, TEN, "t")
    new_ledger(store, TEN, "t", close=False)
    new_ledger(store, TEN, "other")  # one that is alone is the newest
    store.offload()
    hold(store)
    assert tiers(store) == ["lc"] * left + ["l"]


def test_ledgers_that_are_not_cold_stay_unless_told_otherwise(store: TestStore, clock: ManualClock) -> None:
    set_policy(store, retention_age=MINUTE_S)
    new_ledger(store, TEN, "t")
    new_ledger(store, TEN, "t")
    clock.advance(2 * MINUTE_S)
    assert hold(store) == Expired()
    store.cold_work().ledgers.offload(store.segment(open_name(store)).id, UUID(int=1))
    store.cold_work().publish()
    assert hold(store) == Expired()  # an older one stays, so this one does too
    name = new_ledger(store, TEN, "t", close=False)
    clock.advance(2 * MINUTE_S)
    assert hold(store) == Expired()
    status = store_status(store.metadata, store.files, store.paths.holder, store.path, allowed="")
    assert status.overdue_bytes == 2 * SIZE, "the open one is not complete"
    store.metadata.host = Host.of(Settings(background=BackgroundSettings(retention_needs_offload=False)))
    assert retention(store).expire(Attempts()) == Expired(removed=2, bytes=2 * SIZE)
    assert store.segment(name).range.length_bytes == SIZE  # the open one stays, and whole


def test_what_changed_since_the_look_is_not_taken(
    store: TestStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_policy(store, retention_age=MINUTE_S)
    for _ in range(3):
        new_ledger(store, [b"x"], "t")
    store.offload()
    clock.advance(MINUTE_S)
    again = Retention._looked_at_again

    def later(self: Retention, txn: WriteTransaction, batch: list[Expiry]) -> list[Member]:
        policies.put(txn, ROOT_DIRECTORY, ROOMY | {"retention_age": str(2 * MINUTE_S)})
        return again(self, txn, batch)

    monkeypatch.setattr(Retention, "_looked_at_again", later)
    assert retention(store).expire(Attempts()) == Expired()
    assert len(held(store)) == 3
