"""The side that serves a ledger: Pulsar's read priorities with each side well, failing or absent (cases A6)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.doubles.scripted_storage import ALWAYS, Read, ScriptedStorage
from tests.ledgers import ROOMY, new_ledger
from tests.reading.test_reader import reader_of
from tests.stores import TestStore, open_test_store
from tierfs.errors import DataLoss, NotFound, Unavailable
from tierfs.metadata import policies
from tierfs.types import ROOT_DIRECTORY, ReadPriority, Tier

ORDER = {
    ReadPriority.LOCAL_ONLY: [Tier.LOCAL],
    ReadPriority.LOCAL_FIRST: [Tier.LOCAL, Tier.COLD],
    ReadPriority.OFFLOADED_ONLY: [Tier.COLD],
    ReadPriority.OFFLOADED_FIRST: [Tier.COLD, Tier.LOCAL],
}
ENTRIES = [bytes([65 + number]) * 100 for number in range(10)]
DATA = b"".join(ENTRIES)


@pytest.fixture
def storage() -> ScriptedStorage:
    return ScriptedStorage()


@pytest.fixture
def store(tmp_path: Path, storage: ScriptedStorage) -> Iterator[TestStore]:
    with open_test_store(tmp_path / "store", policy=ROOMY, cold=storage) as opened:
        yield opened


def ledger_reads(storage: ScriptedStorage) -> list[Read]:
    return [read for read in storage.reads if "-ledger-" in read.name]


def arrange(store: TestStore, storage: ScriptedStorage, local: str, cold: str) -> str:
    """A closed ledger with both sides as they are to be."""
    name = new_ledger(store, ENTRIES)
    if cold != "absent" or local == "absent":
        store.offload()
    if local == "absent":
        store.evict()
        if cold == "absent":
            storage.fail("read", NotFound("the object is gone"), on=ALWAYS, of="-ledger-")
    if local == "damaged":
        (path,) = store.files.root.glob("*/*")
        path.chmod(0o600)
        path.write_bytes(bytes(len(DATA)))
    if cold == "failing":
        storage.fail("read", Unavailable("down"), on=ALWAYS, of="-ledger-")
    storage.reads.clear()
    return name


@pytest.mark.parametrize("priority", list(ReadPriority))
@pytest.mark.parametrize("local", ["ok", "damaged", "absent"])
@pytest.mark.parametrize("cold", ["ok", "failing", "absent"])
async def test_priorities(
    store: TestStore,
    storage: ScriptedStorage,
    priority: ReadPriority,
    local: str,
    cold: str,
    expected_warnings: list[str],
) -> None:
    expected_warnings += ["is read from the", "waits for a tier that does not answer"]
    name = arrange(store, storage, local, cold)
    good = {Tier.LOCAL: local == "ok", Tier.COLD: cold == "ok"}
    async with reader_of(store, deadline_s=0.2 if cold == "failing" else 30) as reader:
        handle = reader.open(store.segment(name).id, priority=priority)
        serves = next((tier for tier in ORDER[priority] if good[tier]), None)
        if serves is None:
            with pytest.raises((DataLoss, Unavailable, NotFound)):
                await handle.read(0, 5000)
        else:
            assert bytes(await handle.read(0, 5000)) == DATA
            assert bytes(await handle.read(250, 300)) == DATA[250:550]
        assert handle.served_from == serves
        handle.close()
    if Tier.COLD not in ORDER[priority] or (ORDER[priority][0] is Tier.LOCAL and local == "ok"):
        assert not ledger_reads(storage)


@pytest.mark.parametrize(("theirs", "serves"), [("bookkeeper-first", Tier.LOCAL), ("tiered-storage-first", Tier.COLD)])
async def test_the_policy_of_the_managed_ledger_decides(
    store: TestStore, storage: ScriptedStorage, theirs: str, serves: Tier
) -> None:
    name = arrange(store, storage, "ok", "ok")
    with store.metadata.write() as txn:
        policies.put(txn, ROOT_DIRECTORY, ROOMY)
        policies.change(txn, "topic", put_settings={"read_priority": ReadPriority(theirs).value})
    async with reader_of(store) as reader:
        handle = reader.open(store.segment(name).id)
        assert bytes(await handle.read(0, 5000)) == DATA
        assert handle.served_from is serves
        handle.close()


async def test_the_tier_serves_as_soon_as_the_local_bytes_are_gone(store: TestStore, storage: ScriptedStorage) -> None:
    name = arrange(store, storage, "ok", "ok")
    async with reader_of(store) as reader:
        handle = reader.open(store.segment(name).id, priority=ReadPriority.LOCAL_FIRST)
        assert bytes(await handle.read(0, 5000)) == DATA
        assert (handle.served_from, ledger_reads(storage)) == (Tier.LOCAL, [])
        store.evict()
        store.cold_work().collect()
        assert bytes(await handle.read(0, 5000)) == DATA  # an open handle goes on, wherever from
        handle.close()
        handle = reader.open(store.segment(name).id, priority=ReadPriority.LOCAL_FIRST)
        assert bytes(await handle.read(0, 5000)) == DATA
        assert handle.served_from is Tier.COLD
        handle.close()
