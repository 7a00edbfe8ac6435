"""What a reader is given, what it may accuse, and what it holds in memory: each limit at its edge."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from tests.copied import all_adopted, copy_tier
from tests.doubles.scripted_storage import ScriptedStorage
from tests.safety.refused import refused
from tests.stores import TestStore, open_test_store
from tierfs.base.bytes.checksum import block_crcs, crc32c
from tierfs.base.system.metrics import NullMetrics
from tierfs.base.words.errors import DataLoss, NotFound, Unavailable
from tierfs.base.words.types import CRC_BLOCK_BYTES, ByteRange, ChunkState, LocationId, ObjectId, SegmentId, Tier
from tierfs.engine.chunkstore.protocol import BufferSource
from tierfs.engine.metadata import checksums, tables
from tierfs.engine.metadata.layout import PlacedChunk
from tierfs.engine.metadata.records import ChunkRecord, ObjectRecord
from tierfs.engine.metadata.tables import OBJECTS
from tierfs.reading import copies, etags, local, plain_bytes, suspects, verified
from tierfs.reading.copies import CopyMarks
from tierfs.reading.etags import Etags
from tierfs.reading.fetch import buffers, checksum_cache
from tierfs.reading.fetch.buffers import SMALLEST_BYTES, BufferPool
from tierfs.reading.fetch.checked_blocks import BlockDiffers, CheckedBlocks, fetch
from tierfs.reading.fetch.checksum_cache import ChecksumCache
from tierfs.reading.fetch.grid import Grid
from tierfs.reading.local import LocalReader
from tierfs.reading.patience import Unanswered
from tierfs.reading.suspects import Suspects
from tierfs.reading.verified import VerifiedReader
from tierfs.reading.view import _ranked

BLOCK = CRC_BLOCK_BYTES
DATA = bytes(range(256)) * (3 * BLOCK // 256) + b"end"
NAME = f"segments/s/1/chunk-{0:020d}-{len(DATA):020d}-e1-{'a' * 32}"


@pytest.fixture
def cold() -> ScriptedStorage:
    return ScriptedStorage()


@pytest.fixture
def store(tmp_path: Path, cold: ScriptedStorage) -> Iterator[TestStore]:
    policy = {"chunk_bytes": str(len(DATA)), "object_bytes": str(len(DATA))}
    with open_test_store(tmp_path / "store", cold=cold, policy=policy) as opened:
        opened.append("s", DATA, seal=True)
        opened.offload("s")
        yield opened


def holder_of(number: int = 1, **changes: Any) -> ObjectRecord:
    made = ObjectRecord(
        id=ObjectId(number), tier=Tier.COLD, location_id=LocationId(1), name=NAME, length=len(DATA), etag="old"
    )
    return replace(made, **changes)


def whole_grid() -> Grid:
    return Grid(ByteRange(0, len(DATA)), checksums.pack(block_crcs(DATA)))


@given(arrived=st.integers(-2, 2), block=st.integers(0, 3), bad=st.integers(0, 3))
def test_a_block_is_judged_once_all_of_it_has_arrived(arrived: int, block: int, bad: int) -> None:
    edges = [0, BLOCK, 2 * BLOCK, 3 * BLOCK, len(DATA)]
    view = bytearray(DATA)
    view[edges[bad]] ^= 1
    end = max(0, edges[block + 1] + arrived)
    view[end:] = bytes(len(view) - min(end, len(view)))
    found, following = whole_grid().first_bad(memoryview(view), 0, 0, end)
    complete = sum(edge <= end for edge in edges[1:])
    assert (found is not None, following) == ((True, bad) if bad < complete else (False, complete))


@pytest.mark.parametrize("damaged", [0, 1, 2, 3])
def test_a_block_that_differs_is_fetched_once_more_and_then_accused(damaged: int) -> None:
    cold, blocks = ScriptedStorage(), CheckedBlocks(holder_of(), whole_grid(), 0, memoryview(bytearray(len(DATA))))
    etag = cold.put(NAME, BufferSource(DATA)).etag
    blocks.record = holder_of(etag=etag)
    if damaged:
        cold.damage(7, on=range(1, damaged + 1))
    with refused(damaged > 1, BlockDiffers) as error:
        assert fetch(blocks, cold, Etags(None), NullMetrics()) == etag
    assert damaged < 2 or error.value.block == ByteRange(0, BLOCK)
    assert (bytes(blocks.view) == DATA, bool(blocks.filled)) == (damaged < 2, damaged < 2)


class TwoVersions(ScriptedStorage):
    """Delivers half of one version and, as a retry within one call does, all of another."""

    def read_into(self, name: str, offset: int, view: memoryview, **options: Any) -> None:
        if options.get("if_match") is not None:
            super().read_into(name, offset, view, **options)
            return
        progress = options.get("progress")
        view[:] = DATA[offset:]
        if progress is not None:
            progress(2 * BLOCK)
        view[:] = bytes(len(view))
        if progress is not None:
            progress(len(view))


def test_bytes_of_any_version_are_shown_only_when_all_of_them_are_right() -> None:
    cold, blocks = TwoVersions(), CheckedBlocks(holder_of(), whole_grid(), 0, memoryview(bytearray(len(DATA))))
    for number in range(4):  # the etag differs each time, and then none is asked for
        cold.do("read", lambda number=number: cold.put(NAME, BufferSource(DATA + bytes(number)), create_only=False))
    with pytest.raises(DataLoss):
        fetch(blocks, cold, AnyVersion(), NullMetrics())
    assert not blocks.filled


class AnyVersion(Etags):
    """Asks for no etag."""

    def __init__(self) -> None:
        super().__init__(None)

    def attempts(self, holder: ObjectRecord) -> Iterator[etags.Attempt]:
        yield etags.Attempt(self, holder, None)


@given(lengths=st.lists(st.integers(1, 3 * SMALLEST_BYTES), max_size=12), budget=st.integers(1, 6))
def test_buffers_used_and_idle_stay_within_the_budget(lengths: list[int], budget: int) -> None:
    pool, held = BufferPool(budget * SMALLEST_BYTES), []
    for number, length in enumerate(lengths):
        buffer = pool.take(length)
        if buffer is None:
            assert pool.used_bytes + buffers._class_of(length) > pool.budget_bytes
        else:
            held.append(buffer)
        if held and number % 2:
            pool.give_back(held.pop(0))
        assert sum(each.class_bytes for each in held) == pool.used_bytes
        assert pool.used_bytes + pool._idle_bytes <= pool.budget_bytes


def test_remembered_checksums_are_bounded(store: TestStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checksum_cache, "MAX_RUNS", 2)
    cache = ChecksumCache(store.metadata)
    with store.metadata.write() as txn:
        for number in range(100, 105):
            checksums.put_grid(txn, ObjectId(number), [1])
    for number in range(100, 105):
        cache.grid(ObjectId(number), ByteRange(0, 1), BLOCK)
    assert len(cache._runs) == 2


def test_checked_marks_and_open_files_are_bounded(store: TestStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "_CHECKED_OBJECTS", 2)
    reader = LocalReader(store.files, 2, 1, NullMetrics())
    for number in range(5):
        store.append(f"t{number}", b"abc", seal=True)
        (placed,) = store.layout(f"t{number}").local
        reader.mark_checked(placed.object.id, ByteRange(0, BLOCK))
        reader._opened(placed.object.name)
    assert (len(reader._checked), len(reader._open)) == (2, 2)
    reader.close()


def test_a_file_is_closed_after_the_last_read_of_it(store: TestStore) -> None:
    reader = LocalReader(store.files, 1, 1, NullMetrics())
    names = []
    for number in range(2):
        store.append(f"t{number}", b"abc", seal=True)
        names.append(store.layout(f"t{number}").local[0].object.name)
    first = reader._opened(names[0])
    first.users += 1  # a read is under way
    reader._opened(names[1])
    assert store.files.open_for_read(names[0]) != first.fd, "another file would get its number"
    assert first.dropped
    reader.close()


@pytest.mark.parametrize("arrived", [0, 1, 2, 3])
def test_bytes_are_there_at_once_only_if_all_are_in_the_page_cache(store: TestStore, arrived: int) -> None:
    reader = LocalReader(store.files, 1, 1, NullMetrics())
    reader._page_cache = cast(Any, SimpleNamespace(tells=True, read=lambda fd, view, offset: arrived))
    (placed,) = store.layout("s").local
    assert (reader.read_now(placed.object.name, ByteRange(0, 3)) is not None) is (arrived == 3)
    reader.close()


def test_marks_that_wait_are_bounded(store: TestStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copies, "_WAITING", 2)
    monkeypatch.setattr(copies, "_LARGEST_PROVED_BYTES", 3)
    marks = CopyMarks(store.metadata, cast(VerifiedReader, None))
    for length, waiting in ((4, 0), (3, 1)):  # a larger one is read whole by verify alone
        lost = PlacedChunk(chunk(length, state=ChunkState.LOST), holder_of())
        marks.served(SegmentId(1), lost)
        assert len(marks._waiting) == waiting
    for number in range(5):
        marks.failed(SegmentId(2 + number), PlacedChunk(chunk(4), holder_of()), NotFound("gone"))
    assert len(marks._waiting) == 2


def chunk(length: int, start: int = 0, **changes: Any) -> ChunkRecord:
    return replace(ChunkRecord(start_offset=start, length=length, object_id=ObjectId(1)), **changes)


@pytest.mark.parametrize(
    ("error", "accuses"), [(NotFound("gone"), True), (DataLoss("differs"), True), (Unavailable("away"), False)]
)
def test_only_what_is_missing_or_differs_is_accused(store: TestStore, error: Any, accuses: bool) -> None:
    marks = CopyMarks(store.metadata, cast(VerifiedReader, None))
    for number, state in enumerate(ChunkState):
        marks.failed(SegmentId(number), PlacedChunk(chunk(4, state=state), holder_of()), error)
    assert [met.state for met in marks._waiting.values()] == [ChunkState.SUSPECT] * accuses


@pytest.mark.parametrize("state", [ChunkState.SUSPECT, ChunkState.GOOD])
@pytest.mark.parametrize("proves", [True, False])
async def test_a_mark_is_written_only_if_a_second_read_agrees(
    store: TestStore, expected_warnings: list[str], state: ChunkState, proves: bool
) -> None:
    expected_warnings.append("-")
    (placed,) = store.layout("s").cold
    placed = replace(placed, chunk=replace(placed.chunk, state=ChunkState.GOOD))
    if state is ChunkState.GOOD:
        with store.metadata.write() as txn:
            key = tables.chunk(store.segment("s").id, Tier.COLD, 0)
            lost = replace(placed.chunk, state=ChunkState.SUSPECT)
            txn.put(tables.CHUNKS, key, lost)
        placed = replace(placed, chunk=lost)
    reads: list[int] = []

    class Judge:
        def proves(self, _: PlacedChunk, __: object) -> bool:
            reads.append(1)
            return proves

    marks = CopyMarks(store.metadata, cast(VerifiedReader, Judge()))
    for _ in range(2):
        marks._note(copies._Met(store.segment("s").id, placed, state))
        await marks.settle()
    agrees = proves is (state is ChunkState.GOOD)
    assert (store.layout("s").cold[0].chunk.state is state) is agrees
    assert len(reads) == (1 if not proves or agrees else 2) or state is ChunkState.SUSPECT


@pytest.mark.parametrize("states", [(ChunkState.SUSPECT, ChunkState.GOOD), (ChunkState.LOST, ChunkState.SUSPECT)])
def test_a_better_copy_is_read_first(states: tuple[ChunkState, ChunkState]) -> None:
    first, second = (PlacedChunk(chunk(4, state=state), holder_of()) for state in states)
    assert _ranked([first, second]) == (second, first)
    assert _ranked([second, first]) == (second, first)


async def test_a_part_of_a_read_that_just_failed_fails_at_once(autojump_clock: object) -> None:
    unanswered = Unanswered()
    unanswered.add(ByteRange(10, 20), Unavailable("no answer"))
    for asked in (ByteRange(9, 20), ByteRange(10, 21)):
        unanswered.check(asked)
    with pytest.raises(Unavailable):
        unanswered.check(ByteRange(10, 20))
    await trio.sleep(1.1)
    unanswered.check(ByteRange(10, 20))


@given(edges=st.lists(st.integers(1, 9), min_size=2, max_size=10), most=st.integers(9, 20))
def test_a_request_for_payloads_takes_bounded_memory(edges: list[int], most: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plain_bytes, "_MOST_SCRATCH_BYTES", most)
        at, shares = 0, []
        for length in edges:
            shares.append(SimpleNamespace(begin=at, finish=at + length))
            at += length
        groups = list(plain_bytes._payload_requests(cast(Any, iter(shares))))
    assert [share for group in groups for share in group] == shares
    assert all(group[-1].finish - group[0].begin <= most for group in groups)
    for group, following in pairwise(groups):
        assert following[0].finish - group[0].begin > most


@pytest.mark.parametrize("length", [len(DATA) - 1, len(DATA)])
@pytest.mark.parametrize("met", ["new", "other"])
@pytest.mark.parametrize("place", ["same", "another"])
def test_an_etag_is_adopted_only_for_the_object_and_the_bytes_that_proved_right(
    store: TestStore, length: int, met: str, place: str
) -> None:
    (placed,) = store.layout("s").cold
    known = Etags(store.metadata)
    known.meet(placed.object, met, length)
    known.proved(placed.object, "new")
    if place == "another":
        with store.metadata.write() as txn:
            txn.put(OBJECTS, tables.u64(placed.object.id), replace(placed.object, name=NAME))
    known.adopt()
    adopted = store.layout("s").cold[0].object.etag != placed.object.etag
    assert adopted is (length == len(DATA) and met == "new" and place == "same")


def test_etags_that_keep_changing_do_not_fill_the_journal(store: TestStore) -> None:
    known, adopted = Etags(store.metadata), 0
    for number in range(10):
        (placed,) = store.layout("s").cold
        known.meet(placed.object, f"etag{number}", len(DATA))
        known.proved(placed.object, f"etag{number}")
        adopted += known.adopt()
    assert adopted == etags.MOST_ADOPTIONS


@pytest.mark.parametrize("more", [0, 1])
def test_a_chunk_is_proved_by_its_own_checksum_and_in_bounded_memory(
    store: TestStore, monkeypatch: pytest.MonkeyPatch, more: int
) -> None:
    monkeypatch.setattr(verified, "_MOST_WHOLE_BYTES", len(DATA) - more)
    (placed,) = store.layout("s").cold
    own = {"crc32c": crc32c(DATA), "crc_offset": 0, "crc_length": len(DATA)}
    judge = VerifiedReader(store.metadata, lambda _: store.cold, lambda: store.files)
    right = replace(placed, chunk=replace(placed.chunk, **own))
    wrong = replace(placed, chunk=replace(placed.chunk, **own | {"crc32c": crc32c(DATA) ^ 1}))
    assert (judge.whole_chunk(right) is None) == more
    assert judge.whole_chunk(wrong) is None
    assert judge.whole_chunk(placed) is None


@pytest.mark.parametrize("damages", [0, 1, 2])
def test_a_copy_is_accused_only_if_it_fails_again(
    store: TestStore, cold: ScriptedStorage, expected_warnings: list[str], damages: int
) -> None:
    expected_warnings.append("the second read was valid")
    (placed,) = store.layout("s").cold
    if damages:
        cold.damage(BLOCK + 1, on=range(1, 10) if damages > 1 else 10)
    judge = VerifiedReader(store.metadata, lambda _: store.cold, lambda: store.files)
    assert judge.accuse(store.segment("s").id, placed) is (damages > 1)
    assert store.layout("s").cold[0].chunk.state is (ChunkState.SUSPECT if damages > 1 else ChunkState.GOOD)


def suspect(store: TestStore, name: str = "s") -> None:
    with store.metadata.write() as txn:
        key = tables.chunk(store.segment(name).id, Tier.COLD, 0)
        marked = replace(txn.must_get(tables.CHUNKS, key, "the chunk"), state=ChunkState.SUSPECT)
        txn.put(tables.CHUNKS, key, marked)


def test_a_suspect_chunk_is_read_again_less_and_less_often_until_it_proves_right(
    store: TestStore, cold: ScriptedStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    suspect(store)
    cold.damage(1, on=range(1, 10**6))
    looks = Suspects(store.metadata, store.files, lambda _: cold)
    clock: Any = store.clock
    for pause_s in (60, 120, 240, 480):
        before = len(cold.reads)
        assert looks.look() == 0
        tried = len(cold.reads)
        assert tried > before
        clock.advance(pause_s - 1)
        assert looks.look() == 0
        assert len(cold.reads) == tried
        clock.advance(1)
    assert store.layout("s").cold[0].chunk.state is ChunkState.SUSPECT
    cold.behave()
    assert looks.look() == 1
    assert store.layout("s").cold[0].chunk.state is ChunkState.GOOD


def test_the_etag_of_a_suspect_chunk_that_proves_right_is_adopted(store: TestStore) -> None:
    suspect(store)
    copy_tier(store.cold)
    assert Suspects(store.metadata, store.files, lambda _: store.cold).look() == 1
    assert all_adopted(store)


def test_suspects_are_searched_for_only_after_a_change(store: TestStore, monkeypatch: pytest.MonkeyPatch) -> None:
    searches: list[int] = []
    found = suspects.messages
    monkeypatch.setattr(suspects, "messages", lambda *args: searches.append(1) or found(*args))
    looks = Suspects(store.metadata, store.files, lambda _: store.cold)
    for _ in range(3):
        assert looks.look() == 0
    assert not searches
    store.append("t", DATA, seal=True)
    store.offload("t")
    for name in ("s", "t"):  # of one length: the sum is what it was at the last search
        suspect(store, name)
        assert looks.look() == 1
    assert len(searches) == 2
