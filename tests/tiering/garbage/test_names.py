"""Names in rows of garbage and intents are doors: what tierfs does not make is never deleted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.doubles import mutations
from tests.stores import LOCATION, TestStore, open_test_store
from tierfs.base.words.errors import StorageFull
from tierfs.base.words.types import AttemptId, LocationId, SegmentId, Tier
from tierfs.engine.chunkstore.protocol import BufferSource
from tierfs.engine.metadata import chains
from tierfs.engine.metadata.records import GarbageRecord, IntentRecord
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.tables import GARBAGE, INTENTS
from tierfs.tiering import objects
from tierfs.tiering.garbage.collect import Collected, Collector

OF_OTHERS = [
    "precious",
    "tierfs-store",
    "segments/precious",
    "segments/s/1/precious",
    "packs/precious",
    "uploads/precious",
    f"uploads/{'1' * 32}/precious",
    "ledgers/precious",
    f"dumps/1-{'a' * 32}",
    "journal/00000000000000000001",
    "journal/checkpoint-00000000000000000001",
]
"""Objects that stay, whatever row names them."""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[TestStore]:
    with open_test_store(tmp_path / "store") as opened:
        opened.append("s", b"abcd")
        opened.offload()
        kept = everything(opened)
        for name in set(OF_OTHERS) - kept:
            opened.cold.put(name, BufferSource(b"precious"))
        yield opened


def everything(store: TestStore) -> set[str]:
    return {item.name for item in store.cold.list("")}


def test_garbage_that_tierfs_does_not_make_is_kept_with_its_error(store: TestStore) -> None:
    precious = store.path / "precious"
    precious.write_bytes(b"precious")
    cold = [*OF_OTHERS, *(name for name in mutations.NAMES if len(name) < 1000)]
    local = ["../precious", "../../store/precious", "00/../../precious", str(precious), "precious"]
    with store.metadata.write() as txn:
        for tier, names in ((Tier.COLD, cold), (Tier.LOCAL, local)):
            for name in names:
                location = LOCATION if tier is Tier.COLD else LocationId(0)
                chains.add_garbage(txn, GarbageRecord(due_ms=0, tier=tier, location_id=location, name=name))
    before = everything(store)
    collected = store.cold_work().collect()
    assert (collected.deleted, collected.failed) == (0, len(cold) + len(local))
    assert "is not a tierfs name" in collected.error
    assert everything(store) == before
    assert precious.read_bytes() == b"precious"
    with store.metadata.read() as txn:
        assert all("is not a tierfs name" in row.last_error for _, row in txn.scan(GARBAGE))


@pytest.mark.parametrize("name", ["uploads/", "uploads//", "uploads/x/", f"uploads/{'1' * 32}/precious", "segments/"])
def test_an_intent_that_tierfs_does_not_make_deletes_nothing(store: TestStore, name: str) -> None:
    attempt = AttemptId("a" * 32)
    intent = IntentRecord(
        attempt=attempt, location_id=LOCATION, name=name, segment_id=SegmentId(0), start_offset=0, end_offset=0
    )
    with store.metadata.write() as txn:
        txn.put(INTENTS, attempt.encode(), intent)
    before = everything(store)
    objects.abandon_all(store.metadata)
    store.collect()
    assert everything(store) >= before
    assert store.read("s") == b"abcd"


def test_what_an_error_kept_from_being_deleted_is_deleted_by_the_next_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without waiting until rows that were left are looked at again."""
    with open_test_store(tmp_path / "store") as store:
        store.append("s", b"abcd", seal=True)
        store.engine.delete("s", recursive=False, cold_due_ms=0)
        with store.holding() as work:
            work.publish()
            work._dismantle()
        collector = Collector(store.metadata, store.files, lambda _: store.cold)

        def full(_: MetadataStore) -> None:
            raise StorageFull("the disk of the metadata is full")

        with monkeypatch.context() as patched:
            patched.setattr(MetadataStore, "write", full)
            with pytest.raises(StorageFull):
                collector.collect()
        assert collector.collect() == Collected(deleted=1, bytes=4)
        assert collector.collect() == Collected()
