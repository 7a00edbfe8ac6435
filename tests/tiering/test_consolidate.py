"""Consolidate: which chunks become one, and what stays as it is."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.copied import copy_tier
from tests.doubles.scripted_storage import ScriptedStorage, When
from tests.stores import LOCATION, TestStore, assert_layout, open_test_store, quiet
from tests.tiering.cold_pieces import (
    BLOCK,
    GRACE_S,
    POLICY,
    actions,
    assert_grids,
    cold_pieces,
    cut_head,
    objects,
    rows,
)
from tests.upkeep.check.looking import flip_cold
from tierfs.base.words.errors import DataLoss, Unavailable
from tierfs.base.words.types import ChunkState, Tier
from tierfs.engine.chunkstore.memory import MemoryStorage
from tierfs.engine.chunkstore.protocol import BufferSource, ComposedObject
from tierfs.engine.metadata import changes, directories, tables
from tierfs.engine.metadata.tables import GARBAGE, OBJECTS
from tierfs.tiering import consolidate_command
from tierfs.tiering import objects as objects_made
from tierfs.tiering.consolidate import ConsolidateRecipe


@pytest.mark.parametrize("copied", [False, True], ids=["ours", "a copied tier"])
@pytest.mark.parametrize("start", [0, 1, 50_000, BLOCK, 299_999])
def test_small_neighbours_become_one_object(store: TestStore, start: int, copied: bool) -> None:
    """Without the bytes before the segment's start. A block that is cut is read from the old object, by its etag."""
    data = cold_pieces(store, 300_000, 2, BLOCK, 500_001)
    cut_head(store, "s", start)
    if copied:
        copy_tier(store.cold)
    report = store.cold_work().consolidate("", dry_run=True, report=quiet)
    assert_layout(store, "s", local=[], cold=[300_000, 2, BLOCK, 500_001])
    for told in (report, store.consolidate()):
        assert (told.segments, told.objects_before, told.objects_after) == (1, 4, 1)
        assert told.bytes == len(data) - start
    assert_layout(store, "s", local=[], cold=[len(data) - start])
    assert store.read("s", Tier.COLD)[start:] == data[start:]
    assert_grids(store, "s", data)
    report = store.consolidate()
    assert (report.objects_before, report.objects_after, report.merged_chunks, report.journal_entries) == (0, 0, 0, 0)


def test_a_long_chain_is_planned_in_windows(store: TestStore, monkeypatch: pytest.MonkeyPatch) -> None:
    data = cold_pieces(store, *range(100, 111))
    monkeypatch.setattr(consolidate_command, "_WINDOW_CHUNKS", 4)
    with store.metadata.read() as txn:
        segment = directories.segment_by_name(txn, "s")
        planned, following = consolidate_command.asked_for(txn, segment, LOCATION, store.settings)
    assert [(len(action.chunks), action.range.end) for action in planned] == [(4, following)]
    store.consolidate()
    assert_layout(store, "s", local=[], cold=[len(data)])
    assert store.read("s", Tier.COLD) == data


def test_old_objects_stay_for_the_grace_period_and_until_the_journal_names_the_new_one(store: TestStore) -> None:
    data = cold_pieces(store, 100, 200)
    old = objects(store)
    (action,) = actions(store)
    store.cold_work().consolidator.run(action, lambda _: None)
    store.clock.advance(GRACE_S + 1)
    store.cold_work().collector.collect()  # a collection looks first whether anything is due
    assert set(old) < set(objects(store))  # the journal still names them
    store.settle()
    assert len(objects(store)) == 1
    assert store.read("s", Tier.COLD) == data

    data += cold_pieces(store, 300)
    old = objects(store)
    store.consolidate()
    store.clock.advance(GRACE_S - 1)
    store.settle()
    assert set(old) < set(objects(store))
    store.clock.advance(2)
    store.settle()
    assert len(objects(store)) == 1
    assert store.read("s", Tier.COLD) == data


def test_copying_does_not_make_bytes_new(store: TestStore) -> None:
    cold_pieces(store, 100)
    store.clock.advance(500)
    cold_pieces(store, 100)
    made_ms = store.layout("s").cold[1].object.created_ms
    store.clock.advance(500)
    store.consolidate()
    assert store.layout("s").cold[0].object.created_ms == made_ms


def test_adopted_objects_are_copied_and_never_deleted(store: TestStore) -> None:
    cold_pieces(store, 1000, 2000)
    with store.metadata.write() as txn:
        for placed in store.layout("s").cold:
            txn.put(OBJECTS, tables.u64(placed.object.id), replace(placed.object, foreign=True))
    before = objects(store)
    assert store.consolidate().objects_after == 1
    store.clock.advance(GRACE_S + 1)
    store.settle()
    assert set(before) < set(objects(store))


def test_the_journal_names_the_new_chunk_in_one_change(store: TestStore) -> None:
    cold_pieces(store, 100, 200)
    (action,) = actions(store)
    with store.metadata.read() as txn:
        first = txn.store.next_outbox
    store.cold_work().consolidator.run(action, lambda _: None)
    with store.metadata.read() as txn:
        entry = changes.entry_of(txn, 1, first, txn.store.next_outbox - 1, "")
    bodies = [change.WhichOneof("body") for change in entry.changes]
    assert bodies == ["cold_link", "segment", "garbage", "garbage"]  # an end in between calls nothing garbage too early
    link = entry.changes[0].cold_link
    assert [(chunk.start_offset, chunk.length) for chunk in link.chunks] == [(0, 300)]
    assert (link.objects[0].references, link.objects[0].linked_sequence) == (1, first)
    assert len(link.checksums) == 1
    with store.metadata.read() as txn:
        assert {row.after_sequence for _, row in txn.scan(GARBAGE) if row.due_ms > store.clock.now_ms()} == {first}


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


@pytest.mark.parametrize("bad", ["other", "s"])
def test_a_neighbours_bit_in_a_block_of_a_pack_accuses_only_the_neighbour(store: TestStore, bad: str) -> None:
    data = b""
    for _ in range(2):
        for name in ("other", "s"):
            part = os.urandom(3000)
            store.append(name, part)
            data += part if name == "s" else b""
        store.offload()
        store.evict()
    assert len(list(store.cold.list("packs/"))) == 2
    flip_cold(store, bad, 100)
    if bad == "s":
        with pytest.raises(DataLoss, match="does not match its checksum"):
            store.consolidate("s")
        assert [placed.chunk.state for placed in store.layout("s").cold] == [ChunkState.SUSPECT, ChunkState.GOOD]
    else:
        store.consolidate("s")
        assert_layout(store, "s", local=[], cold=[6000])
        assert store.read("s", Tier.COLD) == data
        assert_grids(store, "s", data)


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
    ids=["free space with", "head truncation", "deletion"],
)
def test_what_happens_while_an_object_is_composed_is_planned_anew(
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
