"""SegmentView: what it loads, what it keeps, and when it notices that the segment changed. Counted, not timed."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.reading.readers import check, make_cold, reading
from tests.stores import LOCATION, TestStore, open_test_store
from tierfs.base.words.errors import Fenced, NotFound
from tierfs.base.words.types import (
    MIB,
    ByteRange,
    ChunkState,
    DirectoryId,
    Inode,
    LocationId,
    ObjectId,
    ReadPriority,
    SegmentId,
    Tier,
)
from tierfs.engine.metadata import tables
from tierfs.engine.metadata.layout import WINDOW_CHUNKS, Layout, PlacedChunk
from tierfs.engine.metadata.records import ChunkRecord, ObjectRecord, SegmentRecord, TierState
from tierfs.engine.metadata.tables import CHUNKS, OBJECTS, SEGMENTS
from tierfs.reading.view import SegmentView, in_object, resolve

CHUNK_BYTES = 4
CHUNK_64K = 64 * 1024


@pytest.fixture
def store(tmp_path: Path) -> Iterator[TestStore]:
    with open_test_store(tmp_path / "store") as opened:
        yield opened


class Decoded:
    """Counts the chunk records that are decoded."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.count = 0
        decode = CHUNKS.codec.decode

        def counting(data: bytes) -> ChunkRecord:
            self.count += 1
            return decode(data)

        patch.setattr(CHUNKS.codec, "decode", counting)


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> Decoded:
    return Decoded(monkeypatch)


def make_long(store: TestStore, chunks: int) -> SegmentRecord:
    """A sealed segment of so many cold chunks of 4 bytes; its bytes exist nowhere."""
    store.append("long", b"abcd", seal=True)
    length = chunks * CHUNK_BYTES
    with store.metadata.write() as txn:
        segment = txn.must_get(SEGMENTS, tables.u64(store.segment("long").id), "the segment")
        holder = ObjectRecord(
            id=txn.allocate_id(),
            tier=Tier.COLD,
            location_id=LOCATION,
            name="o",
            length=length,
            etag="e",
            references=chunks,
        )
        txn.put(OBJECTS, tables.u64(holder.id), holder)
        for start in range(0, length, CHUNK_BYTES):
            following = start + CHUNK_BYTES if start + CHUNK_BYTES < length else 0
            record = ChunkRecord(
                start_offset=start, length=CHUNK_BYTES, next=following, object_id=holder.id, object_offset=start
            )
            txn.put(CHUNKS, tables.chunk(segment.id, Tier.COLD, start), record)
        cold = TierState(count=chunks, bytes=length, first_chunk=0, last_chunk=length - CHUNK_BYTES)
        txn.delete(CHUNKS.name, tables.chunk(segment.id, Tier.LOCAL, 0))
        segment = replace(segment, length=length, local=TierState(), cold=cold)
        txn.put(SEGMENTS, tables.u64(segment.id), segment)
    return segment


def cut_head(store: TestStore, name: str, start_offset: int) -> None:
    """The segment begins at `start_offset` from now on."""
    segment = store.segment(name)
    with store.metadata.write() as txn:
        txn.put(SEGMENTS, tables.u64(segment.id), replace(segment, start_offset=start_offset))


def test_a_segment_of_many_chunks_is_opened_without_loading_them(store: TestStore, decoded: Decoded) -> None:
    segment = make_long(store, 30_000)
    decoded.count = 0
    view = SegmentView(store.metadata, segment.id)
    assert decoded.count == 0
    assert view.layout(0).window.contains(ByteRange(0, CHUNK_BYTES))
    assert decoded.count <= 3
    offsets = random.Random(1).sample(range(segment.length), 200)
    for most in (3 * len(offsets), 0):  # reads that come back load nothing
        decoded.count = 0
        for offset in offsets:
            view.layout(offset)
        assert decoded.count <= most
    for chunk in range(0, 2000, 2):
        view.layout(chunk * CHUNK_BYTES)
        assert len(view._windows) <= 256


def test_windows_double_while_reads_go_on(store: TestStore, decoded: Decoded) -> None:
    segment = make_long(store, 1000)
    view = SegmentView(store.metadata, segment.id)
    decoded.count = 0
    windows = []
    for offset in range(500 * CHUNK_BYTES):
        layout = view.layout(offset)
        if not windows or windows[-1] is not layout:
            windows.append(layout)
    sizes = [len(layout.cold) for layout in windows]
    assert sizes[:8] == [1, 2, 4, 8, 16, 32, WINDOW_CHUNKS, WINDOW_CHUNKS]
    assert all(before.window.end == after.window.start for before, after in itertools.pairwise(windows))
    assert decoded.count <= 500 + 3 * len(windows)
    assert len(view.layout(900 * CHUNK_BYTES).cold) == 1, "a jump begins with a small one again"


def test_readers_at_several_places_do_not_push_each_other_out(store: TestStore, decoded: Decoded) -> None:
    places, each = 6, 300
    segment = make_long(store, places * each)
    view = SegmentView(store.metadata, segment.id)
    decoded.count = 0
    for chunk in range(each):
        for place in range(places):
            offset = (place * each + chunk) * CHUNK_BYTES
            assert view.layout(offset).window.contains(ByteRange(offset, offset + CHUNK_BYTES))
    assert decoded.count <= 1.5 * places * each


def test_an_unsealed_segment_is_renewed_when_anybody_commits_and_a_sealed_one_is_not(
    store: TestStore, decoded: Decoded
) -> None:
    store.append("s", b"0123456789")
    view = SegmentView(store.metadata, store.segment("s").id)
    before = view.layout(0)
    view.refresh()
    assert view.layout(0) is before, "nothing was committed"
    store.append("s", b"abcdef")
    assert view.clamp(0, 100) == ByteRange(0, 10)
    view.refresh()
    assert view.clamp(0, 100) == ByteRange(0, 16)
    before = view.layout(0)
    store.append("s", b"gh")
    assert view.layout(16).window.contains(ByteRange(16, 17))
    assert view.layout(0) is not before, "windows of one view are of one instant"
    store.engine.seal("s")
    view.refresh()
    assert view.segment.sealed
    before = view.layout(0)
    store.append("other", b"abc")
    decoded.count = 0
    view.refresh()
    assert view.layout(0) is before
    assert decoded.count == 0
    view.renew()
    assert view.layout(0) is not before


def test_a_cut_head_is_stale_and_the_rest_is_not(store: TestStore) -> None:
    store.append("s", b"0123456789")
    view = SegmentView(store.metadata, store.segment("s").id)
    view.layout(0)
    cut_head(store, "s", 5)
    view.refresh()
    with pytest.raises(Fenced, match="starts at 5 now; bytes from 4 on are deleted"):
        view.clamp(4, 3)
    assert view.clamp(5, 100) == ByteRange(5, 10)
    assert view.layout(5).window.contains(ByteRange(5, 6))


@pytest.mark.parametrize("seal", [False, True])
def test_a_head_cut_after_a_read_began_is_stale(store: TestStore, seal: bool) -> None:
    store.append("s", b"0123456789", seal=seal)
    view = SegmentView(store.metadata, store.segment("s").id)
    assert view.clamp(0, 4) == ByteRange(0, 4)
    cut_head(store, "s", 5)
    if seal:
        assert view.layout(0).holds(0)  # it is read as it was opened: the chunk is still there
        return
    with pytest.raises(Fenced, match="starts at 5 now"):
        view.layout(0)


async def test_a_handle_outlives_a_cut_between_its_refresh_and_its_look_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The read that meets the cut is stale; the next ones are served although nothing is committed meanwhile."""
    data = bytes(range(256)) * (3 * CHUNK_64K // 256)
    policy = {"chunk_bytes": str(CHUNK_64K)}
    with open_test_store(tmp_path / "other", policy=policy) as store:
        store.append("s", data)
        async with reading(store) as (_, handle):
            clamp = SegmentView.clamp

            def cut_after(view: SegmentView, offset: int, size_bytes: int) -> ByteRange:
                wanted = clamp(view, offset, size_bytes)
                monkeypatch.setattr(SegmentView, "clamp", clamp)
                store.engine.truncate("s", 2 * CHUNK_64K, cold_due_ms=0)
                return wanted

            monkeypatch.setattr(SegmentView, "clamp", cut_after)
            with pytest.raises(Fenced, match="starts at 131072 now"):
                await handle.read(0, 10)
            with pytest.raises(Fenced, match="starts at 131072 now"):
                await handle.read(2 * CHUNK_64K - 1, 10)
            assert bytes(await handle.read(2 * CHUNK_64K, 10)) == data[:10]
            assert bytes(await handle.read(len(data) - 1, 10)) == data[-1:]


@pytest.mark.parametrize("seal", [False, True])
def test_a_deleted_segment_is_stale(store: TestStore, seal: bool) -> None:
    store.append("s", b"0123456789", seal=seal)
    view = SegmentView(store.metadata, store.segment("s").id)
    view.layout(0)
    store.engine.delete("s", recursive=False, cold_due_ms=0)
    if seal:
        view.refresh()
        view.layout(0)  # what it holds is still good
    else:
        with pytest.raises(Fenced, match="deleted"):
            view.refresh()
    with pytest.raises(Fenced, match="deleted"):
        view.renew()
    with pytest.raises(Fenced, match="deleted"):
        view.layout(9)
    with pytest.raises(NotFound):
        SegmentView(store.metadata, view.segment.id)


async def test_read_ahead_of_bytes_that_were_cut_off_disturbs_no_read(tmp_path: Path) -> None:
    """A reader near the end of its window goes on behind the cut."""
    data, cut = bytes(range(256)) * (4 * MIB // 256), 3 * MIB // 2
    policy = {"chunk_bytes": str(4 * MIB), "object_bytes": str(4 * MIB)}
    with open_test_store(tmp_path / "other", policy=policy) as store:
        make_cold(store, "s", data)
        async with reading(store) as (_, handle):
            await check(handle, 0, 1000, data)
            cut_head(store, "s", cut)
            handle._view.renew()
            await check(handle, cut, 1000, data)


RESOLVED_BYTES = 40


@st.composite
def chunks_of(draw: st.DrawFn, tier: Tier) -> tuple[PlacedChunk, ...]:
    cuts = sorted(draw(st.sets(st.integers(0, RESOLVED_BYTES), max_size=8)))
    placed = []
    for number, (start, end) in enumerate(itertools.pairwise(cuts)):
        if draw(st.booleans()):
            state = draw(st.sampled_from(list(ChunkState)))
            object_id = ObjectId(1 + number + 100 * tier)
            offset = draw(st.integers(0, 5))
            chunk = ChunkRecord(
                start_offset=start, length=end - start, object_id=object_id, object_offset=offset, state=state
            )
            holder = ObjectRecord(
                id=object_id, tier=tier, location_id=LocationId(1), name="n", etag="e", length=offset + end - start
            )
            placed.append(PlacedChunk(chunk, holder))
    return tuple(placed)


def copies_of_a_byte(layout: Layout, offset: int, tiers: tuple[Tier, ...]) -> list[tuple[int, int]]:
    """Object and offset in it of every copy of one byte, best first."""
    found: list[tuple[ChunkState, int, int]] = []
    for tier in tiers:
        for placed in layout.chunks(tier):
            chunk = placed.chunk
            if chunk.start_offset <= offset < chunk.end_offset:
                found.append((chunk.state, placed.object.id, offset - chunk.start_offset + chunk.object_offset))
    return [(object_id, at) for _, object_id, at in sorted(found, key=lambda copy: copy[0])]


@given(
    chunks_of(Tier.LOCAL),
    chunks_of(Tier.COLD),
    st.integers(0, RESOLVED_BYTES),
    st.integers(0, RESOLVED_BYTES),
    st.sampled_from(list(ReadPriority)),
)
def test_every_byte_has_its_copies_in_order(
    local: tuple[PlacedChunk, ...], cold: tuple[PlacedChunk, ...], one: int, other: int, priority: ReadPriority
) -> None:
    segment = SegmentRecord(id=SegmentId(1), parent_id=DirectoryId(1), name="s", inode=Inode(2), length=RESOLVED_BYTES)
    layout = Layout(segment, ByteRange(0, RESOLVED_BYTES), local, cold, 1)
    wanted = ByteRange(min(one, other), max(one, other))
    at = wanted.start
    for piece in resolve(layout, wanted, priority.tiers):
        assert piece.range.start == at
        assert piece.range
        for offset in range(piece.range.start, piece.range.end):
            copies = [
                (placed.object.id, in_object(piece.range, placed).start + offset - piece.range.start)
                for placed in piece.candidates
            ]
            assert copies == copies_of_a_byte(layout, offset, priority.tiers)
        at = piece.range.end
    assert at == wanted.end
