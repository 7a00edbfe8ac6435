"""Orphans: objects that no record names are found, all others are not, and only ours are deleted."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fsck.looking import cold_findings
from tests.ledgers import new_ledger, offload
from tests.stores import TestStore, open_test_store
from tierfs.chunkstore.local_files import file_name
from tierfs.chunkstore.protocol import BufferSource, StoredObject
from tierfs.metadata import tables
from tierfs.metadata.tables import GARBAGE, LEDGERS, OBJECTS
from tierfs.types import AttemptId, SegmentId, Tier

HOUR_S = 3600


@pytest.fixture
def store(tmp_path: Path) -> Iterator[TestStore]:
    with open_test_store(tmp_path / "store") as opened:
        opened.append("s", b"abcdefghij", seal=True)
        opened.append("t", b"abc")
        opened.offload()
        opened.append("t", b"de")
        yield opened


def orphans(store: TestStore, grace_s: int = 0) -> set[str]:
    return {one.name for one in store.cold_work().orphans(grace_s=grace_s)}


def cold_object(store: TestStore, *, store_id: str | None = None, epoch: int = 1) -> str:
    name = f"segments/s/1/chunk-{0:020d}-{4:020d}-e{epoch}-{'a' * 32}"
    store.cold.put(name, BufferSource(b"lost"), metadata={"store": store_id or store.metadata.store_id})
    return name


def local_file(store: TestStore) -> str:
    name = file_name(SegmentId(1), 99, AttemptId("f" * 32))
    os.close(store.files.create_file(name))
    return name


def age(store: TestStore) -> None:
    """The clock of the tests stands in the past of the disk's."""
    now_s = store.clock.now_ms() / 1000
    for name in store.files.names():
        os.utime(store.files.root / name, (now_s - HOUR_S, now_s - HOUR_S))


def test_a_healthy_store_has_none(store: TestStore) -> None:
    age(store)
    assert orphans(store) == set()
    store.evict()
    assert orphans(store) == set()


def test_what_nothing_names_is_found_and_deleted(store: TestStore) -> None:
    lost = {cold_object(store), local_file(store)}
    age(store)
    assert orphans(store) == lost
    done = store.cold_work().collect_all(grace_s=0)
    assert (done.deleted, done.failed) == (2, 0)
    assert orphans(store) == set()
    assert lost.isdisjoint({found.name for found in store.cold.list("segments/")} | set(store.files.names()))
    assert store.read("s") == b"abcdefghij"
    assert store.read("t") == b"abcde"


def test_the_young_are_left_alone(store: TestStore) -> None:
    local_file(store)
    age(store)
    assert orphans(store, grace_s=HOUR_S + 1) == set()
    assert len(orphans(store, grace_s=HOUR_S)) == 1


def test_what_another_store_or_a_newer_owner_made_is_not_ours(store: TestStore) -> None:
    cold_object(store, store_id="f" * 32)
    assert orphans(store) == set()
    cold_object(store, epoch=2)
    assert orphans(store) == set()


def test_what_is_in_flight_or_garbage_already_is_named(store: TestStore) -> None:
    age(store)
    store.engine.delete("s", recursive=False, cold_due_ms=store.clock.now_ms() + 10**9)
    with store.metadata.read() as txn:
        assert {row.tier for _, row in txn.scan(GARBAGE)} == {Tier.LOCAL, Tier.COLD}
    assert orphans(store) == set()


@pytest.mark.parametrize(
    "name",
    [
        f"packs/{'9' * 20}-e1-ab-c00000000",
        f"segments/s/{'9' * 24}/chunk-{0:020d}-{4:020d}-e1-ab",
        f"segments/s/1/chunk-{'9' * 20}-{'9' * 20}-e1-ab",
    ],
)
def test_a_number_too_large_for_a_key_is_no_name_of_ours(store: TestStore, name: str) -> None:
    store.cold.put(name, BufferSource(b"theirs"), metadata={"store": store.metadata.store_id})
    ours = cold_object(store)
    assert orphans(store) == {ours}


def listed_prefixes(store: TestStore, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Return the prefixes that the search for orphans, and fsck, list in the bucket."""
    prefixes = set[str]()
    listing = store.cold.list

    def remember(prefix: str) -> Iterator[StoredObject]:
        prefixes.add(prefix)
        return iter(listing(prefix))

    with monkeypatch.context() as patch:
        patch.setattr(store.cold, "list", remember)
        orphans(store)
        cold_findings(store)
    return prefixes


def test_the_root_of_the_bucket_is_listed_where_ledgers_were_offloaded(
    store: TestStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    hexadecimal = set("0123456789abcdef")
    assert hexadecimal.isdisjoint(listed_prefixes(store, monkeypatch))
    offload(store, new_ledger(store, [b"abc"]))
    assert hexadecimal <= listed_prefixes(store, monkeypatch)


def test_objects_of_a_ledger_are_found_in_a_store_that_has_none_any_more(store: TestStore) -> None:
    name = new_ledger(store, [b"abc"])
    segment_id = store.segment(name).id
    offload(store, name)
    objects = {one.name for one in store.cold.list("") if "ledger" in one.name}
    with store.metadata.write() as txn:
        txn.delete(LEDGERS.name, tables.u64(segment_id))
        txn.delete(OBJECTS.name, max(key for key, _ in txn.scan(OBJECTS)))
    assert (len(objects), orphans(store)) == (3, objects)
