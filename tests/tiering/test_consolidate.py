"""Consolidate: which chunks become one, and what stays as it is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.copied import copy_tier
from tests.stores import LOCATION, TestStore, assert_layout, open_test_store, quiet
from tests.tiering.cold_pieces import BLOCK, GRACE_S, POLICY, actions, assert_grids, cold_pieces, cut_head, objects
from tierfs.checksum import block_crcs
from tierfs.chunkstore.protocol import BufferSource
from tierfs.config import OffloadSettings
from tierfs.errors import Fenced
from tierfs.metadata import chain, chains, changes, checksums, directories, tables
from tierfs.metadata.records import ChunkRecord, ObjectRecord
from tierfs.metadata.tables import CHUNKS, GARBAGE, OBJECTS, SEGMENTS
from tierfs.tiering import consolidate_command
from tierfs.types import ChunkState, ObjectId, Tier


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
    with store.metadata.read() as txn:
        segment = directories.segment_by_name(txn, "s")
        window = consolidate_command.asked_for(txn, segment, LOCATION, store.settings, 0, window_chunks=4)
    assert [(len(action.chunks), action.range.end) for action in window.actions] == [(4, window.next_offset)]
    monkeypatch.setattr(consolidate_command, "_WINDOW_CHUNKS", 4)
    store.consolidate()
    assert_layout(store, "s", local=[], cold=[len(data)])
    assert store.read("s", Tier.COLD) == data


def test_a_thousand_tiny_objects_become_one(store: TestStore) -> None:
    data = b"".join(number.to_bytes(4, "big") * 9 for number in range(1000))
    for at in range(0, len(data), 36):
        link_object(store, data[at : at + 36], at, len(data))
    assert len(store.layout("s").cold) == 64  # a window of them
    assert store.consolidate().objects_before == 1000
    assert_layout(store, "s", local=[], cold=[len(data)])
    assert store.read("s", Tier.COLD) == data


def link_object(store: TestStore, data: bytes, start: int, length: int) -> None:
    """One cold object and its chunk, without the way there."""
    if not start:
        store.append("s", b"")
    stored = store.cold.put(f"segments/s/2/chunk-{start:020d}-{start + len(data):020d}-e1-aa", BufferSource(data))
    with store.metadata.write() as txn:
        segment = replace(directories.segment_by_name(txn, "s"), length=length)
        holder = ObjectRecord(
            id=ObjectId(txn.allocate_id()),
            tier=Tier.COLD,
            location_id=LOCATION,
            name=stored.name,
            length=len(data),
            etag=stored.etag,
        )
        checksums.put_grid(txn, holder.id, block_crcs(data))
        chunk = ChunkRecord(start_offset=start, length=len(data), object_id=holder.id)
        txn.put(SEGMENTS, tables.u64(segment.id), chains.insert(txn, segment, Tier.COLD, chunk, holder))


def test_old_objects_stay_for_the_grace_period_and_until_the_journal_names_the_new_one(store: TestStore) -> None:
    data = cold_pieces(store, 100, 200)
    old = objects(store)
    (action,) = actions(store)
    store.cold_work().consolidator.run(action, lambda _: None)
    store.clock.advance(GRACE_S + 1)
    store.cold_work().collect()
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


def test_a_mostly_dead_object_is_copied_without_its_head(tmp_path: Path) -> None:
    settings = OffloadSettings(relocate_min_bytes=1)
    with open_test_store(tmp_path / "s", policy=POLICY, settings=settings) as store:
        data = cold_pieces(store, 1_000_000)
        cut_head(store, "s", 799_999)
        assert store.consolidate().objects_after == 0
        cut_head(store, "s", 800_000)
        report = store.consolidate()
        assert (report.objects_before, report.objects_after, report.bytes) == (1, 1, 200_000)
        assert_layout(store, "s", local=[], cold=[200_000])
        assert store.read("s", Tier.COLD)[800_000:] == data[800_000:]
        store.clock.advance(GRACE_S + 1)
        store.settle()
        assert [found.length_bytes for found in store.cold.list("segments/")] == [200_000]


def test_parts_of_one_object_merge_without_moving_a_byte(store: TestStore) -> None:
    data = cold_pieces(store, 700_000, 10)
    split_first_chunk(store, 300_001)
    assert_layout(store, "s", local=[], cold=[300_001, 399_999, 10])
    before = objects(store)
    (merge, join) = actions(store)
    assert (merge.merges, join.merges) == (True, False)
    store.cold_work().consolidator.run(merge, lambda _: None)
    assert_layout(store, "s", local=[], cold=[700_000, 10])
    assert store.layout("s").cold[0].object.references == 1
    assert objects(store) == before
    store.consolidate()
    assert_layout(store, "s", local=[], cold=[700_010])
    assert store.read("s", Tier.COLD) == data


def split_first_chunk(store: TestStore, at: int) -> None:
    """Two chunks that follow each other in one object, as concatenation leaves them."""
    with store.metadata.write() as txn:
        segment = directories.segment_by_name(txn, "s")
        first = next(chains.chunks(txn, segment.id, Tier.COLD))
        holder = replace(chains.object_of(txn, first), references=2)
        txn.put(OBJECTS, tables.u64(holder.id), holder)
        second = replace(first, start_offset=at, length=first.length - at, object_offset=at)
        txn.put(CHUNKS, tables.chunk(segment.id, Tier.COLD, 0), replace(first, length=at, next=at))
        txn.put(CHUNKS, tables.chunk(segment.id, Tier.COLD, at), second)
        cold = replace(segment.cold, count=segment.cold.count + 1)
        txn.put(SEGMENTS, tables.u64(segment.id), replace(segment, cold=cold))


def test_an_object_that_another_segment_uses_stays(store: TestStore) -> None:
    data = cold_pieces(store, 1000, 2000)
    with store.metadata.write() as txn:
        shared = store.layout("s").cold[0].object
        txn.put(OBJECTS, tables.u64(shared.id), replace(shared, references=2))
    store.consolidate()
    store.clock.advance(GRACE_S + 1)
    store.settle()
    assert store.read("s", Tier.COLD) == data
    assert len(objects(store)) == 2
    with store.metadata.read() as txn:
        assert txn.must_get(OBJECTS, tables.u64(shared.id), "shared").references == 1
        assert list(checksums.runs(txn, shared.id))


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


def test_objects_of_another_location_and_suspect_chunks_are_left_alone(store: TestStore) -> None:
    cold_pieces(store, 10, 20, 30, 40, 50)
    with store.metadata.write() as txn:
        placed = store.layout("s").cold
        elsewhere = placed[1].object
        txn.put(OBJECTS, tables.u64(elsewhere.id), replace(elsewhere, location_id=LOCATION + 1))
        key = tables.chunk(store.segment("s").id, Tier.COLD, placed[4].chunk.start_offset)
        txn.put(CHUNKS, key, replace(placed[4].chunk, state=ChunkState.SUSPECT))
    store.consolidate()
    assert_layout(store, "s", local=[], cold=[10, 20, 70, 50])


def test_a_lost_extent_is_never_inside_a_run(store: TestStore) -> None:
    cold_pieces(store, 10, 20, 30, 40, 50)
    with store.metadata.write() as txn:
        segment = store.segment("s")
        lost = store.layout("s").cold[2].chunk
        segment = chains.remove(txn, segment, Tier.COLD, [lost], due_ms=txn.now_ms, after_sequence=0)
        txn.put(SEGMENTS, tables.u64(segment.id), segment)
        extent = replace(lost, object_id=ObjectId(0), state=ChunkState.LOST)
        previous = chains.chunk_at(txn, segment.id, Tier.COLD, lost.start_offset - 1)
        following = next(chains.chunks(txn, segment.id, Tier.COLD, lost.end_offset))
        edit = chain.insert(segment.cold, extent, previous=previous, following=following)
        for record in edit.put:
            txn.put(CHUNKS, tables.chunk(segment.id, Tier.COLD, record.start_offset), record)
        txn.put(SEGMENTS, tables.u64(segment.id), replace(segment, cold=edit.state))
    store.consolidate()
    with store.metadata.read() as txn:
        chunks = list(chains.chunks(txn, segment.id, Tier.COLD))
    assert [(chunk.length, chunk.lost) for chunk in chunks] == [(30, False), (30, True), (90, False)]


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


def test_a_second_store_owner_stops_it(store: TestStore) -> None:
    cold_pieces(store, 100, 200)
    (action,) = actions(store)
    with store.metadata.write() as txn:
        txn.update_store(journal=replace(txn.store.journal, fenced_by_epoch=9))
    with pytest.raises(Fenced):
        store.cold_work().consolidator.run(action, lambda _: None)
    assert len(objects(store)) == 2
