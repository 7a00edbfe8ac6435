"""Orphans: objects that no record names are found, all others are not, and only ours are deleted."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.doubles.manual_clock import ManualClock
from tests.ledgers import new_ledger, offload
from tests.stores import TestStore, open_test_store
from tests.upkeep.check.looking import cold_findings
from tierfs.base.words.types import AttemptId, ByteRange, SegmentId, Tier
from tierfs.engine.chunkstore.local_files import file_name
from tierfs.engine.chunkstore.protocol import BufferSource, StoredObject
from tierfs.engine.metadata import tables
from tierfs.engine.metadata.tables import LEDGERS, OBJECTS
from tierfs.engine.segments.active_chunk import ActiveChunk, ChunkDescriptors
from tierfs.tiering.garbage.orphans import Orphan

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


def listed_prefixes(store: TestStore, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Return the prefixes that the search for orphans, and the check, list in the bucket."""
    prefixes = set[str]()
    listing = store.cold.list

    def remember(prefix: str, *, after: str = "") -> Iterator[StoredObject]:
        prefixes.add(prefix)
        return iter(listing(prefix, after=after))

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


CLOCK_AHEAD_MS = 10**14
"""A clock so far ahead of the disk's that every file looks old."""


@pytest.fixture
def ahead(tmp_path: Path) -> Iterator[TestStore]:
    with open_test_store(tmp_path / "store", clock=ManualClock(CLOCK_AHEAD_MS)) as opened:
        yield opened


def between_write_and_commit(monkeypatch: pytest.MonkeyPatch, work: Callable[[], object], *, before_sync: bool) -> None:
    """Do something once while an append's bytes are in their file and its commit has not begun."""
    sync = ChunkDescriptors.sync
    todo = [work]

    def wrapped(self: ChunkDescriptors, chunk: ActiveChunk) -> None:
        if before_sync and todo:
            todo.pop()()
        sync(self, chunk)
        if todo:
            todo.pop()()

    monkeypatch.setattr(ChunkDescriptors, "sync", wrapped)


def delete_listed(ahead: TestStore, listed: list[Orphan]) -> None:
    """Delete the listed orphans as `gc --delete` does."""
    ahead.cold_work()._orphan_finder().discard(listed)
    ahead.cold_work().collect()


@pytest.mark.parametrize("before_sync", [True, False])
def test_a_file_deleted_before_its_first_commit_is_not_acknowledged(
    ahead: TestStore, monkeypatch: pytest.MonkeyPatch, before_sync: bool
) -> None:
    writer = ahead.engine.open_writer("s")
    between_write_and_commit(monkeypatch, lambda: ahead.cold_work().collect_all(grace_s=0), before_sync=before_sync)
    assert writer.append(b"abc") == ByteRange(0, 3)
    assert ahead.read("s") == b"abc"
    assert writer.append(b"defg") == ByteRange(3, 7)
    assert ahead.read("s") == b"abcdefg"


def test_a_deleted_file_of_a_growing_chunk_takes_no_more_bytes(
    ahead: TestStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = ahead.engine.open_writer("s")
    writer.append(b"a")
    grown = ahead.layout("s").local[0].object.name
    between_write_and_commit(monkeypatch, (ahead.files.root / grown).unlink, before_sync=False)
    assert writer.append(b"bc") == ByteRange(1, 3)
    assert [placed.chunk.range for placed in ahead.layout("s").local] == [ByteRange(0, 1), ByteRange(1, 3)]


def test_a_file_that_was_committed_after_the_listing_stays(ahead: TestStore, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = ahead.engine.open_writer("s")
    listed: list[Orphan] = []
    between_write_and_commit(
        monkeypatch, lambda: listed.extend(ahead.cold_work().orphans(grace_s=0)), before_sync=False
    )
    writer.append(b"abc")
    ahead.engine.close_writer(writer)
    ahead.engine.seal("s")
    assert [one.tier for one in listed] == [Tier.LOCAL]
    ahead.append("t", b"x")
    ahead.engine.concat("t", "s")  # its chunk is found under another key from now on
    delete_listed(ahead, listed)
    assert ahead.read("t") == b"xabc"
