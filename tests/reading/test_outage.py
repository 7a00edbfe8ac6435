"""A cold tier that does not answer for a while: reads wait for it until their deadline, and end there."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trio

from tests.reading.test_reader import DATA, POLICY, WatchedStorage, make_cold, reader_of
from tests.stores import TestStore, open_test_store
from tierfs.chunkstore.directory.storage import DirectoryStorage
from tierfs.chunkstore.protocol import OnReceived
from tierfs.config import ReadSettings
from tierfs.errors import DataLoss, Fenced, TierfsError, Unavailable
from tierfs.metrics import NullMetrics
from tierfs.reading.handle import ReadHandle
from tierfs.reading.reader import Reader
from tierfs.types import ReadPriority, Tier

DOWN = Unavailable("cannot reach http://cold", remedy="check the network")
DEADLINE_S = 0.5
IN_TIME_S = 10.0
LATE_S, POLL_S = 60.0, 0.01


class Failing(WatchedStorage):
    """Raises errors for the next reads, one after the other; the last one again and again when it is `stuck`."""

    def __init__(self) -> None:
        super().__init__()
        self.errors: list[TierfsError] = []
        self.stuck = False

    def read_into(
        self,
        name: str,
        offset: int,
        buffer: memoryview,
        *,
        if_match: str | None = None,
        progress: OnReceived | None = None,
    ) -> None:
        if self.errors and name.startswith("segments/"):
            self.reads.append((name, offset, len(buffer)))
            raise self.errors[0] if self.stuck else self.errors.pop(0)
        super().read_into(name, offset, buffer, if_match=if_match, progress=progress)


@pytest.fixture
def storage() -> Failing:
    return Failing()


@pytest.fixture(autouse=True)
def waits(expected_warnings: list[str]) -> None:
    expected_warnings.append("segment s waits for a tier that does not answer: cannot reach http://cold")


@pytest.fixture
def store(tmp_path: Path, storage: Failing) -> Iterator[TestStore]:
    with open_test_store(tmp_path / "store", policy=POLICY, cold=storage) as opened:
        yield opened


async def test_a_read_tries_again_until_the_tier_answers(store: TestStore, storage: Failing) -> None:
    make_cold(store)
    storage.errors = [DOWN] * 4
    async with reader_of(store) as reader:
        handle = reader.open(store.segment("s").id)
        assert bytes(await handle.read(0, 1000)) == DATA[:1000]
        handle.close()
    assert storage.errors == []


async def test_an_operator_is_told_once_for_a_read(
    store: TestStore, storage: Failing, caplog: pytest.LogCaptureFixture
) -> None:
    make_cold(store)
    storage.errors = [DOWN] * 6
    async with reader_of(store) as reader:
        handle = reader.open(store.segment("s").id)
        await handle.read(0, 1000)
        handle.close()
    assert [record.levelno for record in caplog.records].count(logging.WARNING) == 1


async def test_reads_that_wait_are_counted_with_why_and_no_longer_than_they_do(
    store: TestStore, storage: Failing
) -> None:
    make_cold(store)
    storage.errors, storage.stuck = [DOWN], True
    async with reader_of(store) as reader, trio.open_nursery() as nursery:
        handle = reader.open(store.segment("s").id)
        nursery.start_soon(handle.read, 0, 1000)
        nursery.start_soon(handle.read, 1000, 1000)
        await reached(lambda: reader.waits.now.reads == 2)
        waiting = reader.waits.now
        assert waiting.why == "cannot reach http://cold"
        assert 2 <= waiting.longest_s < LATE_S
        storage.errors, storage.stuck = [], False
        await reached(lambda: reader.waits.now.reads == 0)
        handle.close()


async def test_a_read_ends_at_its_deadline_and_says_why(store: TestStore, storage: Failing) -> None:
    make_cold(store)
    storage.errors, storage.stuck = [DOWN], True
    async with reader_of(store, deadline_s=DEADLINE_S) as reader:
        handle = reader.open(store.segment("s").id)
        started = trio.current_time()
        with pytest.raises(Unavailable, match=r"no answer within 0.5 s: cannot reach http://cold") as failed:
            await handle.read(0, 1000)
        assert DEADLINE_S <= trio.current_time() - started < IN_TIME_S
        assert failed.value.remedy == DOWN.remedy
        storage.errors = []
        assert bytes(await handle.read(1000, 1000)) == DATA[1000:2000]
        handle.close()


async def test_the_kernels_second_try_does_not_wait_for_a_second_deadline(store: TestStore, storage: Failing) -> None:
    make_cold(store)
    storage.errors, storage.stuck = [DOWN], True
    async with reader_of(store, deadline_s=DEADLINE_S) as reader:
        handle = reader.open(store.segment("s").id)
        async with trio.open_nursery() as nursery:
            for offset in (0, 100_000):  # a window and the one after it
                nursery.start_soon(fails, handle.read(offset, 100_000))
        reads = len(storage.reads)
        await fails(handle.read(0, 4096))
        assert len(storage.reads) == reads
        handle.close()


async def reached(condition: Callable[[], bool]) -> None:
    with trio.fail_after(LATE_S):
        while not condition():  # noqa: ASYNC110 - the reader has no event for it
            await trio.sleep(POLL_S)


async def fails(read: object) -> None:
    with pytest.raises(Unavailable):
        await read  # type: ignore[misc]


async def test_another_tier_that_has_the_bytes_is_not_kept_waiting(
    store: TestStore, storage: Failing, expected_warnings: list[str]
) -> None:
    expected_warnings.append("is read from the local tier instead")
    store.append("s", DATA, seal=True)
    store.offload("s")
    storage.errors, storage.stuck = [DOWN], True
    async with reader_of(store) as reader:
        handle = reader.open(store.segment("s").id, priority=ReadPriority.OFFLOADED_FIRST)
        with trio.fail_after(IN_TIME_S):
            assert bytes(await handle.read(0, 1000)) == DATA[:1000]
        assert handle.served_from is Tier.LOCAL
        handle.close()


async def test_a_damaged_copy_is_no_loss_while_the_other_tier_is_away(store: TestStore, storage: Failing) -> None:
    store.append("s", DATA[:1000], seal=True)
    store.offload("s")
    (path,) = store.files.root.glob("*/*")
    path.chmod(0o600)
    path.write_bytes(bytes(1000))
    storage.errors, storage.stuck = [DOWN], True
    async with reader_of(store, deadline_s=DEADLINE_S) as reader:
        handle = reader.open(store.segment("s").id)
        with pytest.raises(Unavailable, match="cannot reach"):
            await handle.read(0, 1000)
        handle.close()


@pytest.mark.parametrize("error", [DataLoss("wrong"), Unavailable("away")])
async def test_what_no_waiting_changes_is_told_at_once(store: TestStore, storage: Failing, error: TierfsError) -> None:
    make_cold(store)
    storage.errors, storage.stuck = [error], True
    priority = ReadPriority.LOCAL_ONLY if isinstance(error, Unavailable) else None
    async with reader_of(store) as reader:
        handle = reader.open(store.segment("s").id, priority=priority)
        with trio.fail_after(IN_TIME_S), pytest.raises(type(error)):
            await handle.read(0, 1000)
        handle.close()


async def test_a_segment_deleted_meanwhile_ends_the_read(store: TestStore, storage: Failing) -> None:
    make_cold(store)
    storage.errors, storage.stuck = [DOWN], True
    async with reader_of(store) as reader, trio.open_nursery() as nursery:
        handle = reader.open(store.segment("s").id)
        nursery.start_soon(stale, handle)
        while not storage.reads:
            await trio.lowlevel.checkpoint()
        store.engine.delete("s", recursive=False, cold_due_ms=0)
    handle.close()


async def stale(handle: ReadHandle) -> None:
    with trio.fail_after(IN_TIME_S), pytest.raises(Fenced, match="deleted"):
        await handle.read(0, 1000)


@pytest.mark.parametrize("code", [errno.ESTALE, errno.EIO])
async def test_errors_of_a_network_filesystem_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    (tmp_path / "cold").mkdir()
    storage = DirectoryStorage(tmp_path / "cold")
    with open_test_store(tmp_path / "store", policy=POLICY, cold=storage) as store:
        make_cold(store)
        left = [OSError(code, os.strerror(code))] * 3
        read = os.preadv

        def fails_at_first(fd: int, buffers: list[memoryview], offset: int, flags: int = 0) -> int:
            if left:
                raise left.pop()
            return read(fd, buffers, offset, flags)

        monkeypatch.setattr(os, "preadv", fails_at_first)
        settings = ReadSettings(deadline_s=10)
        async with Reader(store.metadata, store.files, lambda _: storage, settings, NullMetrics()) as reader:
            handle = reader.open(store.segment("s").id)
            assert bytes(await handle.read(0, 1000)) == DATA[:1000]
            handle.close()
        assert not left
    storage.close()
