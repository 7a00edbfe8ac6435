"""A cold tier that does not answer for a while: reads wait for it until their deadline, and end there."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Awaitable
from contextlib import closing
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from tests.doubles.scripted_storage import ALWAYS, ScriptedStorage
from tests.reading.readers import DATA, POLICY, make_cold, reached, reader_of
from tests.stores import TestStore, open_test_store
from tierfs.chunkstore.directory.storage import DirectoryStorage
from tierfs.errors import Fenced, TierfsError, Unavailable
from tierfs.reading.patience import Patience, Waits

DOWN = Unavailable("cannot reach http://cold", remedy="check the network")
DEADLINE_S = 0.5


@pytest.fixture(autouse=True)
def waits(expected_warnings: list[str]) -> None:
    expected_warnings.append("segment s waits for a tier that does not answer: cannot reach http://cold")


async def fails(read: Awaitable[object], error: type[TierfsError], match: str) -> TierfsError:
    with pytest.raises(error, match=match) as failed:
        await read
    return failed.value


@pytest.mark.parametrize(("failures", "told"), [(0, 0), (1, 0), (9, 1)])
async def test_a_read_tries_again_until_the_tier_answers_and_tells_the_operator_once(
    store: TestStore, storage: ScriptedStorage, caplog: pytest.LogCaptureFixture, failures: int, told: int
) -> None:
    make_cold(store)
    storage.reads.clear()
    storage.fail("read", DOWN, on=range(1, failures + 1), of="segments/")
    async with reader_of(store) as reader:
        handle = reader.open(store.segment("s").id)
        assert bytes(await handle.read(0, 1000)) == DATA[:1000]
        handle.close()
    assert len(storage.reads) > failures
    assert [record.levelno for record in caplog.records].count(logging.WARNING) == told


@pytest.mark.parametrize(("pauses", "told"), [(2, 0), (3, 1), (4, 1)])
async def test_the_third_pause_is_told(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, pauses: int, told: int
) -> None:
    with Patience("segment s", Waits()) as patience:
        for _ in range(pauses):
            await patience.pause(DOWN)
    assert [record.levelno for record in caplog.records].count(logging.WARNING) == told


async def test_reads_that_wait_are_counted_with_why_and_no_longer_than_they_do(
    store: TestStore, storage: ScriptedStorage
) -> None:
    make_cold(store)
    storage.fail("read", DOWN, on=ALWAYS)
    async with reader_of(store) as reader, trio.open_nursery() as nursery:
        handle = reader.open(store.segment("s").id)
        nursery.start_soon(handle.read, 0, 1000)
        nursery.start_soon(handle.read, 1000, 1000)
        await reached(lambda: reader.waits.now.reads == 2)
        waiting = reader.waits.now
        assert waiting.why == "cannot reach http://cold"
        assert waiting.longest_s >= 2
        storage.behave()
        await reached(lambda: reader.waits.now.reads == 0)
        handle.close()


async def test_a_read_ends_at_its_deadline_and_says_why(store: TestStore, storage: ScriptedStorage) -> None:
    """The kernel asks once more for the first page of what failed: that waits for no second deadline."""
    make_cold(store)
    storage.fail("read", DOWN, on=ALWAYS)
    async with reader_of(store, deadline_s=DEADLINE_S) as reader:
        handle = reader.open(store.segment("s").id)
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
        assert bytes(await handle.read(200_000, 1000)) == DATA[200_000:201_000]
        handle.close()


async def test_a_segment_deleted_meanwhile_ends_the_read(store: TestStore, storage: ScriptedStorage) -> None:
    make_cold(store)
    storage.reads.clear()
    storage.fail("read", DOWN, on=ALWAYS)
    async with reader_of(store, deadline_s=15) as reader, trio.open_nursery() as nursery:
        handle = reader.open(store.segment("s").id)
        nursery.start_soon(fails, handle.read(0, 1000), Fenced, "deleted")
        await reached(lambda: bool(storage.reads))
        store.engine.delete("s", recursive=False, cold_due_ms=0)
    handle.close()


@pytest.mark.parametrize("code", [errno.ESTALE, errno.EIO])
async def test_errors_of_a_network_filesystem_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    (tmp_path / "cold").mkdir()
    with (
        closing(DirectoryStorage(tmp_path / "cold")) as storage,
        open_test_store(tmp_path / "over", policy=POLICY, cold=storage) as store,
    ):
        make_cold(store)
        left = [OSError(code, os.strerror(code))] * 3
        read = os.preadv

        def fails_at_first(fd: int, buffers: list[memoryview], offset: int, flags: int = 0) -> int:
            if left:
                raise left.pop()
            return read(fd, buffers, offset, flags)

        monkeypatch.setattr(os, "preadv", fails_at_first)
        async with reader_of(store) as reader:
            handle = reader.open(store.segment("s").id)
            assert bytes(await handle.read(0, 1000)) == DATA[:1000]
            handle.close()
        assert not left
