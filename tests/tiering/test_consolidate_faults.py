"""Consolidate: what every crash and fault leaves, and who may work on the same segment meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.doubles.scripted_storage import ALWAYS, ScriptedStorage, When
from tests.fsck.looking import flip_cold
from tests.stores import TestStore, assert_layout, open_test_store, quiet
from tests.tiering.cold_pieces import POLICY, actions, cold_pieces, cut_head, objects, rows
from tierfs.chunkstore.memory import MemoryStorage
from tierfs.chunkstore.protocol import BufferSource, ComposedObject
from tierfs.errors import DataLoss, Unavailable
from tierfs.tiering import objects as objects_made
from tierfs.tiering.consolidate import ConsolidateRecipe
from tierfs.tiering.objects import ChunksMoved
from tierfs.types import ChunkState, Tier


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


def test_a_compose_of_unknown_end_leaves_no_orphan(store: TestStore, storage: ScriptedStorage) -> None:
    storage.fail("compose", Unavailable("the connection was lost"), on=ALWAYS, when=When.AFTER)
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


@pytest.mark.parametrize(("start", "at"), [(0, 0), (0, 100_000), (0, 399_999), (1000, 2000)])
def test_a_byte_damaged_on_its_way_back_is_read_again(
    store: TestStore, storage: ScriptedStorage, start: int, at: int
) -> None:
    """And accuses no chunk. With a cut head the first block is not copied whole: it is read from the old object."""
    data = cold_pieces(store, 100_000, 300_000)
    cut_head(store, "s", start)
    storage.damage(at, of="chunk-", on=1)
    store.consolidate()
    assert_layout(store, "s", local=[], cold=[400_000 - start])
    assert [placed.chunk.state for placed in store.layout("s").cold] == [ChunkState.GOOD]
    assert store.read("s", Tier.COLD)[start:] == data[start:]


@pytest.mark.parametrize("cut", [0, 1000])
def test_a_damaged_piece_becomes_suspect(store: TestStore, cut: int) -> None:
    cold_pieces(store, 100_000, 300_000, 5)
    if cut:
        cut_head(store, "s", cut)
    # With `cut`, a byte that is not copied but shares a block with those that are.
    flip_cold(store, "s", 0 if cut else 300_000)
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


DUE_S = 2 * 3600


def offload_and_evict(store: TestStore) -> None:
    work = store.cold_work()
    work.offload("s", quiet)
    work.evict("s", force=False, dry_run=False, report=quiet)


def drop_first(store: TestStore) -> None:
    store.engine.truncate("s", 100, cold_due_ms=store.clock.now_ms())


def remove(store: TestStore) -> None:
    store.engine.delete("s", recursive=False, cold_due_ms=store.clock.now_ms())


@pytest.mark.parametrize(
    ("meddle", "cold"),
    [(offload_and_evict, [304]), (drop_first, [204]), (remove, None)],
    ids=["offload and evict", "head truncation", "deletion"],
)
def test_what_happens_while_it_composes_is_planned_anew(
    store: TestStore, storage: ScriptedStorage, meddle: Callable[[TestStore], None], cold: list[int] | None
) -> None:
    data = cold_pieces(store, 100, 200)
    store.append("s", b"more")
    storage.do("compose", lambda: meddle(store), when=When.AFTER)
    report = store.consolidate()
    if cold is None:
        assert report.objects_after == 0
    else:
        store.offload()
        store.evict()
        store.consolidate()
        assert_layout(store, "s", local=[], cold=cold)
        start = store.segment("s").start_offset
        assert store.read("s", Tier.COLD)[start:] == (data + b"more")[start:]
    store.clock.advance(DUE_S)
    store.settle()
    assert len(objects(store)) == len(cold or [])


def test_an_object_that_was_taken_for_a_dead_ones_is_not_linked(store: TestStore, storage: ScriptedStorage) -> None:
    data = cold_pieces(store, 100, 200)
    (action,) = actions(store)
    work = store.cold_work()
    storage.do("compose", work.resolve_crashed, when=When.AFTER)  # what the next holder does first
    with pytest.raises(ChunksMoved, match="a dead process"):
        work.consolidator.run(action, lambda _: None)
    assert_layout(store, "s", local=[], cold=[100, 200])
    work.collect()
    assert len(objects(store)) == 2
    assert store.read("s", Tier.COLD) == data
