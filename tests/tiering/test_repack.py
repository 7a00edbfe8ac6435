"""Repacking: a mostly dead pack moves only within the store's own cold tier, whatever is mounted there meanwhile."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from tests.copied import copy_tier
from tests.faults.two_owners import bucket, fast
from tests.stores import TestStore
from tierfs.base.options.config import OffloadSettings
from tierfs.base.words.errors import WrongColdTier
from tierfs.base.words.types import ROOT_DIRECTORY, Tier
from tierfs.engine.chunkstore.memory import MemoryStorage
from tierfs.engine.chunkstore.protocol import BufferSource
from tierfs.engine.journal.publish import PROOF_S
from tierfs.engine.metadata import directories, tables
from tierfs.engine.metadata.tables import CHUNKS
from tierfs.engine.segments import delete
from tierfs.tiering.packs.format import read_index
from tierfs.tiering.packs.repack import Repack

POLICY = {"chunk_bytes": "1048576", "object_bytes": "1600000"}
SETTINGS = OffloadSettings(relocate_min_bytes=1000)
pytestmark = pytest.mark.parametrize("policy", [POLICY, POLICY | {"compression": "zstd"}], ids=["plain", "compressed"])

KEPT = ("d/s00", "e/s01")


def packs(store: TestStore) -> list[str]:
    return [found.name for found in store.cold.list("packs/")]


def dying_pack(store: TestStore, below: str = "") -> dict[str, bytes]:
    """A pack of which two segments of twenty are left, nowhere but there."""
    kept = [f"{below}{name}" for name in KEPT]
    data = {f"{below}{'de'[number % 2]}/s{number:02d}": os.urandom(3000) for number in range(20)}
    for name, content in data.items():
        store.append(name, content, seal=True)
    store.offload()
    store.evict()
    for name in data.keys() - set(kept):
        store.engine.delete(name, recursive=False, cold_due_ms=0)
    store.cold_work().publish()
    return {name: data[name] for name in kept}


def show(storage: MemoryStorage, content: dict[str, bytes]) -> None:
    """From now on the place holds this."""
    for found in list(storage.list("")):
        storage.delete(found.name)
    for name, data in content.items():
        storage.put(name, BufferSource(data))


def older_copy(store: TestStore) -> dict[str, bytes]:
    """The bucket without its newest slot, which has all objects nevertheless."""
    content = bucket(store.cold)
    del content[max(name for name in content if name.startswith("journal/"))]
    return content


def walk(repacker: Repack) -> None:
    """Look at every object once."""
    while repacker.step() is not None:
        pass


def assert_kept(store: TestStore, data: dict[str, bytes]) -> None:
    """Check that the kept bytes are readable from the cold tier after all due garbage was deleted."""
    store.clock.advance(7200)  # type: ignore[attr-defined]
    store.settle()
    for name, content in data.items():
        assert store.read(name, Tier.COLD) == content


def test_an_older_copy_of_the_bucket_takes_no_pack(store: TestStore) -> None:
    data = dying_pack(store)
    ours, copy = bucket(store.cold), older_copy(store)
    show(store.cold, copy)
    with pytest.raises(WrongColdTier):
        store.cold_work().repacker.step()
    assert bucket(store.cold) == copy
    show(store.cold, ours)
    assert store.cold_work().repacker.step() == sum(map(len, data.values()))
    assert_kept(store, data)


def test_a_copy_that_is_mounted_while_the_pack_is_read_takes_none(
    store: TestStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading up to a gigabyte takes longer than a proof counts."""
    data = dying_pack(store)
    ours, copy = bucket(store.cold), older_copy(store)
    read = MemoryStorage.read_into

    def read_then_exchange(self: MemoryStorage, name: str, *arguments: object, **more: object) -> None:
        read(self, name, *arguments, **more)  # type: ignore[arg-type]
        if name.startswith("packs/") and "if_match" in more:
            fast(store.clock, PROOF_S + 1)
            show(self, copy)

    with monkeypatch.context() as patch:
        patch.setattr(MemoryStorage, "read_into", read_then_exchange)
        with pytest.raises(WrongColdTier):
            store.cold_work().repacker.step()
    assert bucket(store.cold) == copy
    show(store.cold, ours)
    assert_kept(store, data)


def test_a_pack_of_what_is_being_removed_moves_once_that_is_gone(store: TestStore) -> None:
    """Its index would name the segment by what it is hidden under until it is taken apart."""
    data = dying_pack(store)
    repacker = store.cold_work().repacker
    with store.metadata.write() as txn:
        entry = directories.find(txn, "e")
        assert entry is not None
        directories.queue(txn, ROOT_DIRECTORY, entry)
    walk(repacker)
    assert len(packs(store)) == 1
    delete.dismantle_removed(store.metadata, cold_due_ms=0)
    store.cold_work().publish()
    walk(repacker)
    new = max(packs(store))
    index = read_index(store.cold, new, store.cold.stat(new).length_bytes)
    assert [one.path for one in index.entries] == ["d/s00"]
    assert_kept(store, {"d/s00": data["d/s00"]})


@pytest.mark.parametrize("has_crc", [True, False])
def test_a_pack_of_a_copied_tier_moves(store: TestStore, has_crc: bool) -> None:
    """Its etag is another one, and the bytes are proved: by the CRC32C of their chunks or by the blocks they lie in."""
    data = dying_pack(store)
    if not has_crc:
        for name in KEPT:
            forget_crc(store, name)
    copy_tier(store.cold)
    assert store.cold_work().repacker.step() == sum(map(len, data.values()))
    assert_kept(store, data)


def forget_crc(store: TestStore, name: str) -> None:
    """A chunk as a concat of before left it."""
    chunk = store.layout(name).cold[0].chunk
    with store.metadata.write() as txn:
        key = tables.chunk(store.segment(name).id, Tier.COLD, chunk.start_offset)
        txn.put(CHUNKS, key, replace(chunk, crc_length=0))
