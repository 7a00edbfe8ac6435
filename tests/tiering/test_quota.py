"""The quota of the cold tier: what counts, and that nothing is begun that does not fit."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.ledgers import new_ledger
from tests.ledgers import offload as offload_ledger
from tests.stores import TestStore, assert_layout
from tests.tiering.test_objects import DATA, Nothing
from tests.tiering.test_repack import SETTINGS, dying_pack
from tests.upkeep.holder.holding import set_policy
from tierfs.app.batches.job import BatchJobs
from tierfs.base.words.errors import QuotaReached, StorageFull, Unavailable
from tierfs.base.words.types import Ack, AttemptId, ByteRange, SegmentId
from tierfs.engine.metadata.store import new_id
from tierfs.engine.metadata.tables import INTENTS
from tierfs.tiering import objects, quota
from tierfs.tiering.garbage import ballast
from tierfs.tiering.packs.repack import Repack
from tierfs.tiering.quota import ColdUse


def limit(store: TestStore, quota_bytes: int) -> None:
    store.metadata.host = replace(store.metadata.host, cold_quota_bytes=quota_bytes)


def use(store: TestStore) -> ColdUse:
    with store.metadata.read() as txn:
        return quota.use_of(txn)


def stored_bytes(store: TestStore) -> int:
    """What a listing of the bucket would be billed for, without what describes the bytes."""
    beside = ("journal/", "tierfs-store", "ledgers/")
    listed = (found for found in store.cold.list("") if not found.name.startswith(beside))
    return sum(found.length_bytes for found in listed if not found.name.endswith("-index"))


def test_what_counts_is_what_the_bucket_holds(store: TestStore) -> None:
    store.append("a", b"12345678", seal=True)
    store.append("b", b"123456789", seal=True)
    ledger = new_ledger(store, [b"entry"])
    store.offload("a")
    store.offload("b")
    offload_ledger(store, ledger)
    assert use(store).object_bytes == use(store).bytes == stored_bytes(store) > 17 + len(b"entry")
    store.engine.delete("b", recursive=False, cold_due_ms=0)
    assert (use(store).garbage_bytes, use(store).bytes) == (9, stored_bytes(store))
    store.settle()
    assert (use(store).garbage_bytes, use(store).bytes) == (0, stored_bytes(store))


@pytest.mark.parametrize("room_bytes", [0, 7, 8])
def test_an_object_is_made_only_if_it_fits(store: TestStore, room_bytes: int) -> None:
    store.append("a", b"first", seal=True)
    store.offload("a")
    store.append("b", b"12345678", seal=True)
    limit(store, use(store).bytes + room_bytes)
    assert (use(store).room_bytes, use(store).keeps_out(None)) == (room_bytes, not room_bytes)
    if room_bytes == 8:
        store.offload("b")
        assert use(store).room_bytes == 0
        return
    before = {found.name for found in store.cold.list("segments/")}
    with pytest.raises(
        QuotaReached, match=rf"has 5 B of {5 + room_bytes} B \(cold.quota_bytes\): no room for 8 B more"
    ):
        store.offload("b")
    assert {found.name for found in store.cold.list("segments/")} == before
    with store.metadata.read() as txn:
        assert txn.count(INTENTS.name) == 0
    assert store.read("b") == b"12345678"
    assert_layout(store, "b", local=[4, 4], cold=[])


def test_what_is_being_made_counts(store: TestStore) -> None:
    store.append("a", b"12345678", seal=True)
    limit(store, 100)
    with store.metadata.write() as txn:
        objects.intend(txn, AttemptId(new_id()), txn.store.cold_location_id, "x", SegmentId(1), ByteRange(0, 93))
    assert (use(store).making_bytes, use(store).room_bytes) == (93, 7)
    with pytest.raises(QuotaReached):
        store.offload("a")


def test_an_object_that_failed_counts_once_until_it_is_deleted(store: TestStore) -> None:
    with pytest.raises(Unavailable):
        objects.make(store.metadata, store.cold_work().cold, Nothing(store, {"write": Unavailable("away")}))
    assert (use(store).garbage_bytes, use(store).making_bytes) == (len(DATA), 0)
    store.settle()
    assert use(store).bytes == stored_bytes(store) == 0


def test_an_append_that_waits_for_the_cold_tier_is_refused_whole(store: TestStore) -> None:
    store.append("a", b"first", ack=Ack.COLD)
    before = use(store).bytes
    for room_bytes in (before, 0):
        limit(store, before + room_bytes)
        with pytest.raises(QuotaReached):
            store.append("a", b"x" * before, ack=Ack.COLD)
        assert (store.read("a"), use(store).bytes, store.segment("a").length) == (b"first", before, 5)
    limit(store, 3 * before)
    store.append("a", b"again", ack=Ack.COLD)
    assert store.read("a") == b"firstagain"


def test_a_ledger_counts_with_its_frames(store: TestStore) -> None:
    ledger = new_ledger(store, [b"entry"])
    limit(store, 20)
    with pytest.raises(QuotaReached):
        offload_ledger(store, ledger)
    limit(store, 0)
    offload_ledger(store, ledger)
    assert use(store).bytes == stored_bytes(store) > 20


def test_a_write_of_many_tasks_is_refused_before_it_begins(store: TestStore) -> None:
    store.append("a", b"12345678", seal=True)
    store.offload("a")
    work = store.cold_work()
    jobs = BatchJobs(store.metadata, work.cold)
    limit(store, 8)
    with pytest.raises(QuotaReached):
        jobs.begin("out")
    limit(store, 9)
    assert jobs.begin("out").job


def test_joining_is_refused_and_what_frees_bytes_goes_on(store: TestStore) -> None:
    set_policy(store, object_bytes="1600000", chunk_bytes="1048576")
    data = dying_pack(store)
    limit(store, 1)
    work = store.cold_work()
    repack = Repack(store.metadata, work.cold, SETTINGS)
    moved = [moved for _ in range(5) if (moved := repack.step())]
    assert moved == [6000]
    work.publish()
    assert {name: store.read(name) for name in data} == data
    for part in (b"1234", b"5678"):
        limit(store, 0)
        store.append("joined", part)
        store.offload("joined")
    limit(store, use(store).bytes)
    with pytest.raises(QuotaReached):
        store.consolidate("joined")
    assert store.read("joined") == b"12345678"


def test_the_room_for_a_full_disk_is_kept(store: TestStore) -> None:
    tries = 0

    def refused() -> None:
        nonlocal tries
        tries += 1
        raise QuotaReached("full")

    ballast.create(store.paths.ballast)
    with pytest.raises(StorageFull):
        ballast.with_room(store.paths.ballast, refused)
    assert tries == 1
