"""A cold tier that does not answer, or is not mounted: reads wait for it until their deadline, and mark nothing."""

from __future__ import annotations

import errno
import logging
import os
import shutil
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.doubles.scripted_storage import ALWAYS, ScriptedStorage
from tests.reading.readers import POLICY, check, make_cold, reached, reading, states
from tests.stores import TestStore, open_test_store
from tierfs.base.options.config import ReadSettings
from tierfs.base.system.metrics import NullMetrics
from tierfs.base.words.errors import DataLoss, Fenced, NotFound, TierfsError, Unavailable
from tierfs.base.words.types import ByteRange, ChunkState, Tier
from tierfs.engine.chunkstore.directory.storage import DirectoryStorage
from tierfs.engine.chunkstore.protocol import ChunkStorage
from tierfs.engine.chunkstore.read_only import ReadOnlyDirectory
from tierfs.engine.chunkstore.validate import MARK_NAME
from tierfs.engine.metadata import policies, tables
from tierfs.engine.metadata.records import LocationRecord
from tierfs.reading import patience
from tierfs.reading.patience import Patience
from tierfs.reading.reader import StoreReader
from tierfs.reading.view import SegmentView

DOWN = Unavailable("cannot reach http://cold", remedy="check the network")
DEADLINE_S = 0.5


@pytest.fixture(autouse=True)
def waits(expected_warnings: list[str]) -> None:
    expected_warnings.append("is blocked")


async def fails(read: Awaitable[object], error: type[TierfsError], match: str) -> TierfsError:
    with pytest.raises(error, match=match) as failed:
        await read
    return failed.value


def _not_known(*_: object) -> LocationRecord:
    raise NotFound("location 1")


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


async def test_a_read_tries_again_until_the_tier_answers(store: TestStore, storage: ScriptedStorage) -> None:
    make_cold(store)
    storage.reads.clear()
    storage.fail("read", DOWN, on=range(1, 10), of="segments/")
    async with reading(store) as (_, handle):
        await check(handle, 0, 1000)
    assert len(storage.reads) > 9


@pytest.mark.parametrize(
    ("error", "url", "why"),
    [
        (DOWN, "http://cold", "cannot reach http://cold"),
        (None, "http://cold", "no response from memory: at http://cold yet"),
        (None, None, "no response yet"),
    ],
)
async def test_the_operator_is_told_once_of_all_reads_that_wait_long(
    store: TestStore,
    storage: ScriptedStorage,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    error: Unavailable | None,
    url: str | None,
    why: str,
) -> None:
    """Also of a server that takes requests and is silent, whose place is named then."""
    monkeypatch.setattr(patience, "_SILENCE_S", 3600)
    monkeypatch.setattr(patience, "_WAITS_AFTER_S", 0)
    make_cold(store, "d/s")
    with store.metadata.write() as txn:
        place = next(place for _, place in txn.scan(tables.LOCATIONS))
        if url is not None:
            txn.put(tables.LOCATIONS, tables.u32(place.id), replace(place, endpoint_url=url))
    held = [] if error else storage.hold_next(100, "read")
    if error is not None:
        storage.fail("read", error, on=ALWAYS)
    if url is None:  # what is said of a place never ends the reads of a mount
        monkeypatch.setattr(policies, "location", _not_known)
    async with reading(store, "d/s") as (reader, handle), trio.open_nursery() as telling:
        async with trio.open_nursery() as nursery:
            for at in range(3):
                nursery.start_soon(check, handle, 100_000 * at, 1000)
            await reached(lambda: (reader.waits.now.reads, reader.waits.now.why) == (3, why))
            monkeypatch.setattr(patience, "_SILENCE_S", 0.05)
            telling.start_soon(reader.waits.keep_telling)
            await reached(lambda: bool(warnings(caplog)))
            await trio.sleep(0.3)
            told = f"read of segment d/s is blocked (one of 3 reads): {why}"
            assert warnings(caplog) == [told]
            storage.behave()
            for one in held:
                one.go_on()
        telling.cancel_scope.cancel()


def test_no_place_is_named_where_the_local_copy_may_not_answer(store: TestStore) -> None:
    store.append("s", b"abcd", seal=True)
    store.offload("s")
    view = SegmentView(store.metadata, store.segment("s").id)
    assert [view.cold_place(offset) for offset in (0, 3)] == ["", ""]
    store.evict("s")
    assert [view.cold_place(offset) for offset in (0, 3, 4)] == ["memory:", "memory:", ""]


async def test_reads_that_wait_are_counted_with_why_and_no_longer_than_they_do(
    store: TestStore, storage: ScriptedStorage
) -> None:
    make_cold(store)
    storage.fail("read", DOWN, on=ALWAYS)
    async with reading(store) as (reader, handle), trio.open_nursery() as nursery:
        nursery.start_soon(handle.read, 0, 1000)
        nursery.start_soon(handle.read, 1000, 1000)
        await reached(lambda: reader.waits.now.reads == 2)
        waiting = reader.waits.now
        assert waiting.why == "cannot reach http://cold"
        assert waiting.longest_s >= 2
        storage.behave()
        await reached(lambda: reader.waits.now.reads == 0)


async def test_a_read_ends_at_its_deadline_and_says_why(store: TestStore, storage: ScriptedStorage) -> None:
    """The kernel asks once more for the first page of what failed: that waits for no second deadline."""
    make_cold(store)
    storage.fail("read", DOWN, on=ALWAYS)
    async with reading(store, deadline_s=DEADLINE_S) as (_, handle):
        started = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fails, handle.read(100_000, 100_000), Unavailable, "no answer")  # the window after it
            error = await fails(
                handle.read(0, 100_000), Unavailable, r"no answer within 0.5 s: cannot reach http://cold"
            )
        assert trio.current_time() - started >= DEADLINE_S
        assert error.remedy == DOWN.remedy
        reads = len(storage.reads)
        await fails(handle.read(0, 4096), Unavailable, "no answer")
        assert len(storage.reads) == reads
        storage.behave()
        await check(handle, 200_000, 1000)


async def test_a_segment_deleted_meanwhile_ends_the_read(store: TestStore, storage: ScriptedStorage) -> None:
    make_cold(store)
    storage.reads.clear()
    storage.fail("read", DOWN, on=ALWAYS)
    async with reading(store, deadline_s=15) as (_, handle), trio.open_nursery() as nursery:
        nursery.start_soon(fails, handle.read(0, 1000), Fenced, "deleted")
        await reached(lambda: bool(storage.reads))
        store.engine.delete("s", recursive=False, cold_due_ms=0)


class Place:
    """A directory whose content goes and comes back, as that of a mount point does."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._away = path.with_name(f"{path.name}-away")
        path.mkdir()

    def unmount(self) -> None:
        self.path.rename(self._away)
        self.path.mkdir()

    def mount(self) -> None:
        self.path.rmdir()
        self._away.rename(self.path)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "cold")


@pytest.fixture
def placed(tmp_path: Path, place: Place) -> Iterator[TestStore]:
    """A store whose segment `s` is cold, in objects of a directory."""
    with (
        closing(DirectoryStorage(place.path)) as storage,
        open_test_store(tmp_path / "over", policy=POLICY, cold=storage) as opened,
    ):
        make_cold(opened)
        yield opened


def reader_at(store: TestStore, storage: ChunkStorage, deadline_s: float = 60.0) -> StoreReader:
    return StoreReader(
        store.metadata, store.files, lambda _: storage, ReadSettings(deadline_s=deadline_s), NullMetrics()
    )


@pytest.mark.parametrize("code", [errno.ESTALE, errno.EIO])
async def test_errors_of_a_network_filesystem_pass(
    placed: TestStore, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    left = [OSError(code, os.strerror(code))] * 3
    read = os.preadv

    def fails_at_first(fd: int, buffers: list[memoryview], offset: int, flags: int = 0) -> int:
        if left:
            raise left.pop()
        return read(fd, buffers, offset, flags)

    monkeypatch.setattr(os, "preadv", fails_at_first)
    async with reading(placed) as (_, handle):
        await check(handle, 0, 1000)
    assert not left


@pytest.mark.parametrize("kind", [DirectoryStorage, ReadOnlyDirectory])
async def test_a_read_begun_before_the_mount_gets_its_bytes_after_it(
    placed: TestStore, place: Place, kind: type[DirectoryStorage] | type[ReadOnlyDirectory]
) -> None:
    place.unmount()
    with closing(kind(place.path)) as storage:
        async with reader_at(placed, storage) as reader:
            handle = reader.open(placed.segment("s").id)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(check, handle, 700_005, 100)
                await reached(lambda: reader.waits.now.reads == 1)
                assert "nothing seems to be mounted" in reader.waits.now.why
                place.mount()
            handle.close()
    assert set(states(placed, Tier.COLD)) == {ChunkState.GOOD}


def unmarked(place: Place) -> None:
    (place.path / MARK_NAME).unlink()
    shutil.rmtree(place.path / "segments")


def emptied(place: Place) -> None:
    shutil.rmtree(place.path / "segments")


@pytest.mark.parametrize(
    ("change", "error", "message", "first"),
    [
        (Place.unmount, Unavailable, r"no answer within 0.5 s: nothing seems to be mounted at .*cold", ChunkState.GOOD),
        (unmarked, Unavailable, MARK_NAME, ChunkState.GOOD),
        (emptied, DataLoss, "does not exist|not found|No such", ChunkState.SUSPECT),
    ],
    ids=["unmounted", "unmarked", "emptied"],
)
async def test_only_what_is_missing_in_a_place_of_ours_is_lost(
    placed: TestStore,
    place: Place,
    change: Callable[[Place], None],
    error: type[TierfsError],
    message: str,
    first: ChunkState,
) -> None:
    if change is Place.unmount:  # a storage that is open holds the directory that it found
        change(place)
    with closing(DirectoryStorage(place.path)) as storage:
        if change is not Place.unmount:
            change(place)
        async with reader_at(placed, storage, DEADLINE_S) as reader:
            handle = reader.open(placed.segment("s").id)
            await fails(handle.read(0, 100), error, message)
            handle.close()
    assert states(placed, Tier.COLD)[:2] == [first, ChunkState.GOOD]


async def test_time_in_which_the_process_did_not_run_is_no_silence_of_a_tier(
    store: TestStore, mock_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """It was stopped, or asleep with its machine, or had no processor."""
    store.append("s", b"bytes")
    async with reading(store) as (reader, handle):
        await wait_all_tasks_blocked()
        with Patience(handle._view, ByteRange(0, 1), reader.waits, 0):
            mock_clock.jump(3600)
            await wait_all_tasks_blocked()
            assert (reader.waits.now.reads, warnings(caplog)) == (0, [])
            for _ in range(20):
                mock_clock.jump(0.5)
                await wait_all_tasks_blocked()
            assert reader.waits.now.reads == 1
            assert 10 <= reader.waits.now.longest_s < 11
            assert len(warnings(caplog)) == 1
