"""Consolidate: what every crash and fault leaves, and who may work on the same segment meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.doubles.scripted_storage import ALWAYS, ScriptedStorage, When
from tests.stores import TestStore, assert_layout, open_test_store, quiet
from tests.tiering.cold_pieces import POLICY, actions, cold_pieces, cut_head, objects, rows
from tierfs.chunkstore.memory import MemoryStorage
from tierfs.chunkstore.protocol import BufferSource, ComposedObject
from tierfs.errors import DataLoss, Unavailable
from tierfs.metadata import chains, tables
from tierfs.metadata.tables import SEGMENTS
from tierfs.tiering import objects as objects_made
from tierfs.tiering.consolidate import ConsolidateRecipe
from tierfs.tiering.objects import ChunksMoved
from tierfs.types import ChunkState, Tier


@pytest.fixture
def store(tmp_path: Path) -> Iterator[TestStore]:
    with open_test_store(tmp_path / "store", policy=POLICY) as opened:
        yield opened


class Killed(BaseException):
    """The process ended."""


def dying(owner: object, verb: str, *, after: bool) -> Callable[..., Any]:
    """A method that ends the process before or after it did its work."""
    original = getattr(owner, verb)

    def die(*arguments: Any, **named: Any) -> Any:
        if after:
            original(*arguments, **named)
        raise Killed

    return die


@pytest.mark.parametrize(
    ("owner", "verb", "after", "left", "made"),
    [
        (objects_made, "_intend", False, 0, 0),
        (MemoryStorage, "compose", False, 1, 0),
        (MemoryStorage, "compose", True, 1, 1),
        (ConsolidateRecipe, "verify", True, 1, 1),
        (ConsolidateRecipe, "link", False, 1, 1),
        (ConsolidateRecipe, "link", True, 0, 1),
    ],
)
def test_a_crash_at_any_step_loses_nothing_and_leaves_no_mystery(
    store: TestStore, monkeypatch: pytest.MonkeyPatch, owner: object, verb: str, after: bool, left: int, made: int
) -> None:
    data = cold_pieces(store, 300_000, 200_000)
    with monkeypatch.context() as patch:
        patch.setattr(owner, verb, dying(owner, verb, after=after))
        with pytest.raises(Killed):
            store.consolidate()
    assert (rows(store)[0], len(objects(store))) == (left, 2 + made)
    assert store.read("s", Tier.COLD) == data
    store.consolidate()  # what the next holder does first is to resolve what was left
    assert_layout(store, "s", local=[], cold=[500_000])
    store.clock.advance(2 * 3600)
    store.settle()
    assert len(objects(store)) == 1
    assert rows(store) == (0, 0)
    assert store.read("s", Tier.COLD) == data


def test_a_compose_of_unknown_end_leaves_no_orphan(tmp_path: Path) -> None:
    cold = ScriptedStorage()
    cold.fail("compose", Unavailable("the connection was lost"), on=ALWAYS, when=When.AFTER)
    with open_test_store(tmp_path / "s", policy=POLICY, cold=cold) as store:
        data = cold_pieces(store, 100, 200)
        with pytest.raises(Unavailable):
            store.consolidate()
        assert_layout(store, "s", local=[], cold=[100, 200])
        store.clock.advance(3601)
        store.settle()
        assert len(objects(store)) == 2
        assert store.read("s", Tier.COLD) == data


class CorruptingStorage(MemoryStorage):
    """Composes other bytes than it should."""

    def compose(self, name: str, *arguments: Any, **named: Any) -> ComposedObject:
        made = super().compose(name, *arguments, **named)
        data = bytearray(made.length_bytes)
        self.read_into(name, 0, memoryview(data))
        data[200_000] ^= 1
        return ComposedObject.of(self.put(name, BufferSource(data), create_only=False))


def test_a_copy_that_differs_is_never_linked(tmp_path: Path) -> None:
    with open_test_store(tmp_path / "s", policy=POLICY, cold=CorruptingStorage()) as store:
        data = cold_pieces(store, 100_000, 300_000)
        with pytest.raises(Unavailable, match="the copy differs from its source"):
            store.consolidate()
        assert_layout(store, "s", local=[], cold=[100_000, 300_000])
        assert [placed.chunk.state for placed in store.layout("s").cold] == [ChunkState.GOOD, ChunkState.GOOD]
        assert store.read("s", Tier.COLD) == data
        store.settle()
        assert len(objects(store)) == 2


@pytest.mark.parametrize("at", [0, 100_000, 399_999])
def test_a_byte_damaged_on_its_way_back_is_read_again(tmp_path: Path, at: int) -> None:
    cold = ScriptedStorage()
    with open_test_store(tmp_path / "s", policy=POLICY, cold=cold) as store:
        data = cold_pieces(store, 100_000, 300_000)
        cold.damage(at, of="chunk-", on=1)
        store.consolidate()
        assert_layout(store, "s", local=[], cold=[400_000])
        assert store.read("s", Tier.COLD) == data


def test_a_block_damaged_on_its_way_accuses_no_chunk(tmp_path: Path) -> None:
    """With a cut head the first block is not copied whole, so that it is read from the old object."""
    cold = ScriptedStorage()
    with open_test_store(tmp_path / "s", policy=POLICY, cold=cold) as store:
        data = cold_pieces(store, 100_000, 300_000)
        cut_head(store, "s", 1000)
        cold.damage(2000, of="chunk-", on=1)
        store.consolidate()
        (chunk,) = store.layout("s").cold
        assert chunk.chunk.state is ChunkState.GOOD
        assert store.read("s", Tier.COLD)[1000:] == data[1000:]


@pytest.mark.parametrize("cut", [0, 1000])
def test_a_damaged_piece_becomes_suspect(store: TestStore, cut: int) -> None:
    cold_pieces(store, 100_000, 300_000, 5)
    if cut:
        cut_head(store, "s", cut)
    holder = store.layout("s").cold[0 if cut else 1].object
    held = bytearray(holder.length)
    store.cold.read_into(holder.name, 0, memoryview(held))
    held[0 if cut else 200_000] ^= 1  # with `cut`, bytes that are not copied but share a block with those that are
    assert isinstance(store.cold, MemoryStorage)
    kept = store.cold._objects[holder.name]
    store.cold._objects[holder.name] = replace(kept, data=bytes(held))
    with pytest.raises(DataLoss, match="does not match its checksum"):
        store.consolidate()
    states = [placed.chunk.state for placed in store.layout("s").cold]
    assert states.index(ChunkState.SUSPECT) == (0 if cut else 1)
    assert states.count(ChunkState.SUSPECT) == 1
    store.settle()
    assert len(objects(store)) == 3


def test_chunks_that_moved_are_planned_anew(store: TestStore) -> None:
    data = cold_pieces(store, 100, 200, 300)
    (action,) = actions(store)
    run = store.cold_work().consolidator.run
    run(action, lambda _: None)
    with pytest.raises(ChunksMoved, match="changed meanwhile"):
        run(action, lambda _: None)
    assert rows(store)[0] == 0
    assert store.read("s", Tier.COLD) == data


@pytest.fixture
def meddling(tmp_path: Path) -> Iterator[tuple[TestStore, ScriptedStorage]]:
    cold = ScriptedStorage()
    with open_test_store(tmp_path / "store", policy=POLICY, cold=cold) as opened:
        yield opened, cold


def test_offload_and_evict_while_it_composes(meddling: tuple[TestStore, ScriptedStorage]) -> None:
    store, cold = meddling
    data = cold_pieces(store, 100, 200)
    store.append("s", b"more")

    def meddle() -> None:
        work = store.cold_work()
        work.offload("s", quiet)
        work.evict("s", force=False, dry_run=False, report=quiet)

    cold.do("compose", meddle, when=When.AFTER)
    store.consolidate()
    assert_layout(store, "s", local=[], cold=[304])  # planned anew, with what came
    assert store.read("s", Tier.COLD) == data + b"more"


def test_head_truncation_while_it_composes(meddling: tuple[TestStore, ScriptedStorage]) -> None:
    store, cold = meddling
    data = cold_pieces(store, 100, 200, 300)

    def drop_first() -> None:
        with store.metadata.write() as txn:
            segment = replace(store.segment("s"), start_offset=100)
            first = next(chains.chunks(txn, segment.id, Tier.COLD))
            segment = chains.remove(txn, segment, Tier.COLD, [first], due_ms=txn.now_ms, after_sequence=0)
            txn.put(SEGMENTS, tables.u64(segment.id), segment)

    cold.do("compose", drop_first, when=When.AFTER)
    store.consolidate()
    assert_layout(store, "s", local=[], cold=[500])
    assert store.read("s", Tier.COLD)[100:] == data[100:]
    store.clock.advance(2 * 3600)
    store.settle()
    assert len(objects(store)) == 1


def test_deletion_while_it_composes(meddling: tuple[TestStore, ScriptedStorage]) -> None:
    store, cold = meddling
    cold_pieces(store, 100, 200)
    cold.do(
        "compose", lambda: store.engine.delete("s", recursive=False, cold_due_ms=store.clock.now_ms()), when=When.AFTER
    )
    assert store.consolidate().objects_after == 0
    store.clock.advance(2 * 3600)
    store.settle()
    assert objects(store) == []


def test_an_object_that_was_taken_for_a_dead_ones_is_not_linked(meddling: tuple[TestStore, ScriptedStorage]) -> None:
    store, cold = meddling
    data = cold_pieces(store, 100, 200)
    (action,) = actions(store)
    work = store.cold_work()
    cold.do("compose", work.resolve_crashed, when=When.AFTER)  # what the next holder does first
    with pytest.raises(ChunksMoved, match="a dead process"):
        work.consolidator.run(action, lambda _: None)
    assert_layout(store, "s", local=[], cold=[100, 200])
    work.collect()
    assert len(objects(store)) == 2
    assert store.read("s", Tier.COLD) == data
