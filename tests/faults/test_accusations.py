"""Accusations: a copy is damaged only if two reads of it differ; a damaged one keeps no other from becoming cold."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.doubles.scripted_storage import ScriptedStorage
from tests.stores import TestStore, open_test_store
from tests.tiering.test_repack import POLICY as PACKED
from tests.tiering.test_repack import dying_pack
from tests.upkeep.check.looking import flip_cold, flip_local
from tierfs.base.options.config import OffloadSettings
from tierfs.base.system import osio
from tierfs.base.words.errors import DataLoss, NotFound, TierfsError, Unavailable
from tierfs.base.words.types import ChunkState, Tier
from tierfs.engine.metadata import chains
from tierfs.engine.metadata.tables import GARBAGE, INTENTS
from tierfs.tiering.offload_source import ChunkSource
from tierfs.upkeep.holder.work import ColdWork

GOOD, SUSPECT = ChunkState.GOOD, ChunkState.SUSPECT

ONE_OBJECT = {"chunk_bytes": "10", "object_bytes": "100"}
"""Ten chunks of a segment in one object; `PACKED`: one pack for those of many."""


@pytest.fixture(params=["one object", "one pack"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[TestStore]:
    policy = ONE_OBJECT if request.param == "one object" else {**PACKED, "chunk_bytes": "10"}
    with open_test_store(tmp_path / "store", policy=policy, settings=OffloadSettings()) as opened:
        yield opened


def fill(store: TestStore, name: str = "s", chunks: int = 10) -> bytes:
    data = os.urandom(10 * chunks)
    store.append(name, data, seal=True)
    return data


def states(store: TestStore, name: str, tier: Tier) -> list[ChunkState]:
    with store.metadata.read() as txn:
        return [chunk.state for chunk in chains.chunks(txn, store.segment(name).id, tier)]


def cold_ranges(store: TestStore, name: str) -> list[tuple[int, int]]:
    return [(placed.range.start, placed.range.end) for placed in store.layout(name).cold]


def missing_file(store: TestStore, name: str, offset: int) -> None:
    (store.files.root / store.layout(name).local[offset // 10].object.name).unlink()


@pytest.mark.parametrize("damaged", [(0,), (4,), (9,), (0, 9), (3, 4), (1, 3, 5, 7, 9), tuple(range(10))])
@pytest.mark.parametrize("missing", [False, True])
def test_only_the_damaged_chunks_of_an_object_stay(store: TestStore, damaged: tuple[int, ...], missing: bool) -> None:
    fill(store, "a")
    data = fill(store)
    fill(store, "z")
    for number in damaged:
        (missing_file if missing else flip_local)(store, "s", 10 * number)
    with pytest.raises(NotFound if missing else DataLoss):
        store.offload()
    wanted = [GOOD if missing or number not in damaged else SUSPECT for number in range(10)]
    assert states(store, "s", Tier.LOCAL) == wanted
    cold = {offset for start, end in cold_ranges(store, "s") for offset in range(start, end)}
    assert cold == {offset for offset in range(100) if offset // 10 not in damaged}
    for other in "az":
        assert cold_ranges(store, other) == [(0, 100)]
        assert states(store, other, Tier.LOCAL) == [GOOD] * 10
    whole = store.read("s", Tier.COLD)
    assert all(whole[offset] == data[offset] for offset in cold)


def test_a_single_wrong_read_of_a_file_accuses_nobody(store: TestStore, monkeypatch: pytest.MonkeyPatch) -> None:
    data = {name: fill(store, name) for name in "as"}
    read_all, wrong = osio.read_all, [True]

    def read(fd: int, view: memoryview, offset: int) -> int:
        done = read_all(fd, view, offset)
        if wrong and wrong.pop():
            view[0] ^= 1
        return done

    monkeypatch.setattr(osio, "read_all", read)
    with pytest.raises(Unavailable, match="the second read succeeded"):
        store.offload()
    assert states(store, "a", Tier.LOCAL) == states(store, "s", Tier.LOCAL) == [GOOD] * 10
    assert not all(cold_ranges(store, name) for name in "as")
    store.offload()
    assert all(store.read(name, Tier.COLD) == content for name, content in data.items())


class OfOurs(Exception):
    """A defect."""


def test_a_failure_of_ours_accuses_nobody_and_leaves_bounded_garbage(
    store: TestStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = fill(store, "a")
    fill(store)
    read = ChunkSource.read

    def fail(self: ChunkSource, offset: int, length_bytes: int) -> Any:
        raise OfOurs

    monkeypatch.setattr(ChunkSource, "read", fail)
    for _ in range(3):
        with pytest.raises(OfOurs):
            store.offload()
    assert states(store, "a", Tier.LOCAL) == states(store, "s", Tier.LOCAL) == [GOOD] * 10
    with store.metadata.read() as txn:
        assert txn.count(INTENTS.name) == 0, "nothing would ever delete their objects"
    monkeypatch.setattr(ChunkSource, "read", read)
    store.offload()
    assert store.read("a", Tier.COLD) == data
    store.clock.advance(2 * 3600)
    store.settle()
    with store.metadata.read() as txn:
        assert txn.count(GARBAGE.name) == 0


def test_bytes_that_were_not_read_are_no_damage(store: TestStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A storage that reads less than it stores is a defect; the files are right."""
    fill(store, "a")
    fill(store)
    verified = ChunkSource.verified_grid

    def verify(self: ChunkSource) -> Any:
        self._cuts.popitem()
        return verified(self)

    monkeypatch.setattr(ChunkSource, "verified_grid", verify)
    with pytest.raises(TierfsError) as raised:
        store.offload()
    assert not isinstance(raised.value, DataLoss)
    assert states(store, "a", Tier.LOCAL) == states(store, "s", Tier.LOCAL) == [GOOD] * 10


def repack(work: ColdWork) -> None:
    while work.repacker.step() is not None:
        pass


@pytest.fixture
def packed(tmp_path: Path) -> Iterator[TestStore]:
    settings = OffloadSettings(relocate_min_bytes=1000)
    with open_test_store(tmp_path / "packed", policy=PACKED, settings=settings) as opened:
        yield opened


@pytest.mark.parametrize("reads", [range(1, 2), range(2, 3), range(3, 4), range(4, 5)])
def test_a_wrong_byte_on_the_wire_keeps_no_pack_from_moving(packed: TestStore, reads: range) -> None:
    """The reads of a repack: its trailer, its index, and two live chunks."""
    data = dying_pack(packed)
    cold = ScriptedStorage(packed.cold)
    packed.cold = cold
    cold.damage(0, on=reads, of="packs/")
    with packed.holding() as work:
        repack(work)
        cold.behave()
        assert all(states(packed, name, Tier.COLD) == [GOOD] for name in data)
    (layout,) = {packed.layout(name).cold[0].object.id for name in data}
    assert all(packed.read(name, Tier.COLD) == content for name, content in data.items())
    with packed.metadata.read() as txn:
        (record,) = (txn.get(chains.OBJECTS, key) for key, _ in txn.scan_raw(chains.OBJECTS.name))
        assert record is not None
        assert (record.id, record.references) == (layout, 2)


def test_a_neighbours_bit_in_a_shared_block_accuses_only_the_neighbour(packed: TestStore) -> None:
    first, second = dying_pack(packed)
    flip_cold(packed, second, 5)
    with packed.holding() as work, pytest.raises(DataLoss):
        repack(work)
    assert states(packed, first, Tier.COLD) == [GOOD]
    assert states(packed, second, Tier.COLD) == [SUSPECT]
