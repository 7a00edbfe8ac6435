"""Evictions of many segments at once: the same as of one at a time, in few commits, each of them short."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.doubles.manual_clock import ManualClock
from tests.stores import TestStore, assert_layout
from tests.upkeep.check.looking import findings
from tierfs.base.words.errors import DataLoss
from tierfs.base.words.types import ChunkState, SegmentId, SegmentStatus, Tier
from tierfs.engine.metadata import chains, directories, tables
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.tables import CHUNKS, GARBAGE, OBJECTS, SEGMENTS
from tierfs.engine.metadata.transaction import ReadTransaction, WriteTransaction
from tierfs.tiering import evict
from tierfs.tiering.policy import EvictAction

WHENEVER_MS = 1 << 62


class UndoneError(Exception):
    """Ends a transaction that only looks at what it would do."""


class TickingClock(ManualClock):
    """A clock of which each look takes some time."""

    def __init__(self, tick_s: float) -> None:
        super().__init__()
        self._tick_s = tick_s

    def monotonic_s(self) -> float:
        self.advance(self._tick_s)
        return super().monotonic_s()


def remove(store: TestStore, path: str) -> None:
    """Move it into the trash."""
    store.engine.delete(path, recursive=True, cold_due_ms=store.clock.now_ms(), to_trash=True)


def id_of(store: TestStore, name: str) -> SegmentId:
    return store.segment(name).id


def action(store: TestStore, name: str, *, before_ms: int = WHENEVER_MS, end: int | None = None) -> EvictAction:
    return EvictAction(id_of(store, name), before_ms, end)


def evict_all(store: TestStore, actions: Sequence[EvictAction]) -> dict[SegmentId, evict.Outcome]:
    work = store.cold_work()
    work.publish()
    return {done.segment_id: outcome for done, outcome in work.evict_segments(actions)}


def many(store: TestStore, count: int, directory: str = "d") -> list[EvictAction]:
    """Small sealed segments, all in one pack."""
    for number in range(count):
        store.append(f"{directory}/{number:05}", b"ab", seal=True)
    store.offload()
    return [action(store, f"{directory}/{number:05}") for number in range(count)]


def commits(store: TestStore, work: Callable[[], object]) -> int:
    before = store.metadata.last_transaction_id()
    work()
    return store.metadata.last_transaction_id() - before


def rows(txn: ReadTransaction) -> dict[bytes, list[tuple[bytes, Any]]]:
    """Every row, as its record; of numbers of a row of garbage alone the order."""
    tables_read = (SEGMENTS, CHUNKS, OBJECTS, GARBAGE, tables.TOUCHES, tables.CHECKSUMS)
    return {
        table.name: [(key, replace(record, stored=b"")) for key, record in txn.scan(table)] for table in tables_read
    }


def would_leave(metadata: MetadataStore, actions: Sequence[EvictAction]) -> tuple[list[evict.Evicted], Any]:
    """Return the outcomes and all rows after an eviction that is then undone."""
    kept: list[Any] = []

    def run(txn: WriteTransaction) -> None:
        batch = evict._Eviction(txn, metadata.clock)
        kept.append([batch.drop(each, 1000) for each in actions])
        kept.append((rows(txn), txn.sums))
        raise UndoneError

    with pytest.raises(UndoneError), metadata.write() as txn:
        run(txn)
    return kept[0], kept[1]


def mixed(store: TestStore) -> list[EvictAction]:
    """Segments of each kind that evictions meet."""
    store.append("top", b"ab", seal=True)
    store.append("d/one", b"abc", seal=True)
    store.append("d/long", b"abcdefghijkl", seal=True)
    store.append("d/open", b"ab")
    store.append("d/removed", b"abcd", seal=True)
    store.append("cut", b"abcd", seal=True)
    store.offload()
    store.engine.truncate("cut", 2, cold_due_ms=store.clock.now_ms())
    remove(store, "d/removed")
    store.append("d/young", b"ab", seal=True)
    names = ("top", "d/one", "d/long", "d/open", "cut", "d/young")
    with store.metadata.read() as txn:
        removed = [SegmentId(entry.id) for entry in directories.in_trash(txn)]
    store.settle()
    return [*(action(store, name) for name in names), *(EvictAction(each, WHENEVER_MS) for each in removed)]


def test_the_short_way_leaves_the_rows_that_the_long_one_leaves(
    store: TestStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    actions = mixed(store)
    outcomes, left = would_leave(store.metadata, actions)
    assert [outcome.bytes for outcome in outcomes] == [2, 3, 12, 2, 4, 0, 4]
    short = []
    drop_lone = chains.drop_lone
    monkeypatch.setattr(chains, "drop_lone", lambda txn, lone: short.append(lone.segment.id) or drop_lone(txn, lone))
    would_leave(store.metadata, actions)
    assert len(short) == 4
    monkeypatch.setattr(chains, "lone_chunk", lambda txn, segment_id: None)
    assert would_leave(store.metadata, actions) == (outcomes, left)


def change_cold(store: TestStore, **changes: Any) -> None:
    """Change the record of the cold chunk of segment `s`."""
    with store.metadata.write() as txn:
        key = tables.chunk(id_of(store, "s"), Tier.COLD, 0)
        txn.put(CHUNKS, key, replace(txn.must_get(CHUNKS, key, "a chunk"), **changes))


def change_object(store: TestStore, tier: Tier, **changes: Any) -> None:
    with store.metadata.write() as txn:
        (chunk,) = chains.chunks(txn, id_of(store, "s"), tier)
        record = replace(chains.object_of(txn, chunk), **changes)
        txn.put(OBJECTS, tables.u64(record.id), record)


def change_segment(store: TestStore, **changes: Any) -> None:
    with store.metadata.write() as txn:
        txn.put(SEGMENTS, tables.u64(id_of(store, "s")), replace(store.segment("s"), **changes))


REFUSED: dict[str, Callable[[TestStore], object]] = {
    "suspect": lambda store: change_cold(store, state=ChunkState.SUSPECT),
    "lost": lambda store: change_cold(store, state=ChunkState.LOST),
    "ends too early": lambda store: change_cold(store, length=3),
    "not published": lambda store: change_object(store, Tier.COLD, linked_sequence=1 << 40),
    "made later": lambda store: change_object(store, Tier.COLD, created_ms=store.clock.now_ms() + 1),
    "appended to": lambda store: change_segment(store, active=True, status=SegmentStatus.OPEN),
}


@pytest.mark.parametrize("why", REFUSED)
def test_a_chunk_without_a_good_old_published_whole_copy_stays(store: TestStore, why: str) -> None:
    store.append("s", b"abcd", seal=True)
    store.offload()
    now_ms = store.clock.now_ms()
    assert would_leave(store.metadata, [action(store, "s", before_ms=now_ms)])[0] == [evict.Evicted(1, 4)]
    REFUSED[why](store)
    assert would_leave(store.metadata, [action(store, "s", before_ms=now_ms)])[0] == [evict.Evicted()]


@pytest.mark.parametrize("start", [0, 1, 3])
def test_bytes_before_the_copy_keep_the_chunk_unless_they_are_cut_off(store: TestStore, start: int) -> None:
    store.append("s", b"abcd", seal=True)
    store.offload()
    with store.metadata.write() as txn:
        key = tables.chunk(id_of(store, "s"), Tier.COLD, 0)
        cold = txn.must_get(CHUNKS, key, "a chunk")
        txn.delete(CHUNKS.name, key)
        later = replace(cold, start_offset=1, length=3, object_offset=1, stored=b"")
        txn.put(CHUNKS, tables.chunk(id_of(store, "s"), Tier.COLD, 1), later)
    segment = store.segment("s")
    change_segment(store, start_offset=start, cold=replace(segment.cold, first_chunk=1, last_chunk=1, bytes=3))
    dropped = would_leave(store.metadata, [action(store, "s")])[0]
    assert dropped == [evict.Evicted(1, 4) if start else evict.Evicted()]


@pytest.mark.parametrize(("end", "dropped"), [(3, 0), (4, 4), (5, 4), (0, 0)])
def test_a_chunk_that_ends_after_the_part_stays(store: TestStore, end: int, dropped: int) -> None:
    store.append("s", b"abcd", seal=True)
    store.offload()
    ((_, done),) = evict.evict_some(store.metadata, [action(store, "s", end=end)])
    assert isinstance(done, evict.Evicted)
    assert done.bytes == dropped


def test_a_file_that_two_chunks_share_stays_until_the_last_one_goes(store: TestStore) -> None:
    store.append("s", b"abcd", seal=True)
    store.offload()
    change_object(store, Tier.LOCAL, references=2)
    _, (left, _) = would_leave(store.metadata, [action(store, "s")])
    assert left[GARBAGE.name] == []
    assert len([record for _, record in left[OBJECTS.name] if record.tier is Tier.LOCAL]) == 1


def test_the_sums_of_a_removal_lose_what_pressure_takes(store: TestStore) -> None:
    many(store, 3)
    remove(store, "d")
    with store.metadata.read() as txn:
        (entry,) = directories.in_trash(txn)
        ids = [child.id for child in directories.entries(txn, entry.id)]  # type: ignore[arg-type]
    evict_all(store, [EvictAction(SegmentId(each), WHENEVER_MS) for each in ids[:2]])
    with store.metadata.read() as txn:
        assert directories.directory(txn, entry.id).removal.local_bytes == 2
    assert findings(store) == []


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit takes ten segments, or ten chunks, in place of a thousand."""
    monkeypatch.setattr(evict, "MOST_SEGMENTS", 10)
    monkeypatch.setattr(evict, "_BATCH_CHUNKS", 10)


@pytest.mark.parametrize("count", [1, 9, 10, 11, 25])
def test_many_segments_share_a_commit(store: TestStore, small_batches: None, count: int) -> None:
    actions = many(store, count)
    done: dict[SegmentId, evict.Outcome] = {}
    made = commits(store, lambda: done.update(evict_all(store, actions)))
    assert list(done) == [each.segment_id for each in actions]
    assert set(done.values()) == {evict.Evicted(1, 2)}
    full = -(-count // 10)
    assert made <= 2 * full, "one to drop them, one to note that their files are gone"
    assert list(store.files.names()) == []
    assert findings(store) == []


def test_a_batch_ends_when_appends_have_waited_long_enough(store: TestStore, monkeypatch: pytest.MonkeyPatch) -> None:
    actions = many(store, 30)
    monkeypatch.setattr(store.metadata, "clock", TickingClock(0.0025))
    outcomes = evict.evict_some(store.metadata, actions)
    assert len(outcomes) == 4, "10 ms"
    monkeypatch.setattr(store.metadata, "clock", TickingClock(1.0))
    assert len(evict.evict_some(store.metadata, actions)) == 1, "of one at least"


def test_the_chunks_of_a_long_segment_go_in_several_commits(store: TestStore, small_batches: None) -> None:
    store.append("d/long", *(b"abcd" for _ in range(21)), seal=True)
    store.append("d/short", b"abcd", seal=True)
    store.offload()
    done = evict_all(store, [action(store, "d/long"), action(store, "d/short")])
    assert list(done.values()) == [evict.Evicted(21, 84), evict.Evicted(1, 4)]
    assert_layout(store, "d/short", local=[], cold=[4])
    assert store.segment("d/long").local.count == 0
    assert findings(store) == []


def test_room_is_made_step_by_step(store: TestStore, monkeypatch: pytest.MonkeyPatch) -> None:
    actions = many(store, 10)
    monkeypatch.setattr(evict, "BATCH_BYTES", 6)
    assert len(evict.evict_some(store.metadata, actions)) == 3
    left: list[int] = []
    for _ in store.cold_work().evict_segments(actions[3:]):
        left.append(len(list(store.files.names())))
    assert left == [10, 10, 10, 4, 4, 4, 1]


def test_damage_of_one_segment_keeps_no_other_and_is_raised_at_the_end(store: TestStore) -> None:
    actions = many(store, 6)
    with store.metadata.write() as txn:
        (chunk,) = chains.chunks(txn, actions[2].segment_id, Tier.LOCAL)
        txn.delete(OBJECTS.name, tables.u64(chunk.object_id))
        txn.put_raw(SEGMENTS.name, tables.u64(actions[4].segment_id), b"\xff")
    with pytest.raises(DataLoss), store.holding() as work:
        work.evict("", force=False, dry_run=False, report=lambda _: None)
    for number in (0, 1, 3, 5):
        assert_layout(store, f"d/{number:05}", local=[], cold=[2])
    assert len(list(store.files.names())) == 2


def test_files_go_after_the_commit_that_drops_them(store: TestStore, monkeypatch: pytest.MonkeyPatch) -> None:
    actions = many(store, 3)
    unlink, seen = os.unlink, []

    def look(*args: Any, **kwargs: Any) -> None:
        with store.metadata.read() as txn:
            seen.append([txn.must_get(SEGMENTS, tables.u64(each.segment_id), "it").local.count for each in actions])
        unlink(*args, **kwargs)

    monkeypatch.setattr(os, "unlink", look)
    evict_all(store, actions)
    assert seen == [[0, 0, 0]] * 3


def test_a_crash_after_the_commit_leaves_files_that_the_next_holder_deletes(store: TestStore) -> None:
    actions = many(store, 3)
    evict.evict_some(store.metadata, actions)
    assert len(list(store.files.names())) == 3
    store.reopen()
    store.settle()
    assert list(store.files.names()) == []
    assert findings(store) == []


def names_in(pages: Iterator[list[directories.Named]]) -> list[str]:
    return [name for page in pages for name, _ in page]


@pytest.mark.parametrize("most", [1, 2, 3, 100])
def test_pages_list_what_one_listing_does(store: TestStore, most: int) -> None:
    for name in ("a", "a-b/x", "b/c/d", "b/c/e", "b/c.", "b0", "c/z", "c/z.d/y", "é/ü"):
        store.append(name, b"ab")
    for path in ("", "b", "b/c", "b/c/d", "c"):
        with store.metadata.read() as txn:
            wanted = [name for name, _ in directories.segments_at(txn, path)]
        pages = list(directories.pages(store.metadata.read, path, most))
        assert names_in(iter(pages)) == wanted
        assert max(map(len, pages)) <= most


def test_pages_go_on_after_names_that_are_gone(store: TestStore) -> None:
    for number in range(6):
        store.append(f"d/{number}/s", b"ab")
    pages = directories.pages(store.metadata.read, "d", 2)
    seen = [name for name, _ in next(pages)]
    for number in (0, 1, 3):
        remove(store, f"d/{number}")
    store.append("d/9/s", b"ab")
    assert seen + names_in(pages) == ["d/0/s", "d/1/s", "d/2/s", "d/4/s", "d/5/s", "d/9/s"]
