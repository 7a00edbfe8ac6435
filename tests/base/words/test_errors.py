"""Errors of reads as callers without trio meet them: each alone, of its own class."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from tests import verbs
from tests.pipeline.reader.reading import fill, scan_lines, store_of
from tests.reading.readers import reader_of
from tests.stores import TestStore, open_test_store
from tierfs.base.words import errors
from tierfs.base.words.errors import Closed, DataLoss, InternalError, NotFound, Unavailable
from tierfs.base.words.types import ChunkState, ReadPriority, Tier
from tierfs.engine.chunkstore.memory import MemoryStorage
from tierfs.engine.chunkstore.protocol import OnReceived
from tierfs.engine.metadata import policies
from tierfs.pipeline.reader.line_format import LineFormat
from tierfs.reading.cold import ColdRead
from tierfs.reading.etags import Etags
from tierfs.reading.reader import run_loop
from tierfs.reading.stream import copy_segment, follow_segment


@pytest.fixture
def store(tmp_path: Path) -> Iterator[TestStore]:
    with open_test_store(tmp_path / "store") as opened:
        yield opened


def damage(store: TestStore, name: str) -> None:
    path = store.files.root / store.layout(name).local[0].object.name
    path.chmod(0o600)
    path.write_bytes(b"\0" * path.stat().st_size)


def test_a_copy_of_damaged_bytes_is_data_loss_and_no_group(store: TestStore) -> None:
    store.append("s", b"abcdefgh", seal=True)
    damage(store, "s")
    with pytest.raises(DataLoss, match="do not match their checksum"):
        copy_segment(reader_of(store), store.segment("s"), None, None, None, lambda _: None)


def test_an_error_of_the_writer_of_a_copy_is_that_error(store: TestStore) -> None:
    store.append("s", b"abcdefgh", seal=True)

    def broken(_: object) -> None:
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        copy_segment(reader_of(store), store.segment("s"), None, None, None, broken)


def test_following_a_segment_that_is_deleted_is_not_found_and_no_group(store: TestStore) -> None:
    store.append("s", b"abcdefgh")

    class Deleting:
        """Deletes the segment once its bytes were written."""

        def write(self, data: object) -> None:
            store.engine.delete("s", recursive=False, cold_due_ms=0)

        def flush(self) -> None:
            pass

        def check(self) -> None:
            pass

    with pytest.raises(NotFound, match="was deleted"):
        follow_segment(reader_of(store), store.segment("s"), None, None, Deleting())


async def test_an_error_inside_a_readers_block_is_that_error(store: TestStore) -> None:
    with pytest.raises(Unavailable) as caught:
        async with reader_of(store):
            raise Unavailable("away") from OSError("cause")
    assert isinstance(caught.value.__cause__, OSError)


def test_the_error_of_a_loop_keeps_its_cause() -> None:
    async def fail() -> None:
        async with trio.open_nursery():
            raise DataLoss("gone") from ValueError("why")

    with pytest.raises(DataLoss) as caught:
        run_loop(fail)
    assert isinstance(caught.value.__cause__, ValueError)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (Closed("x"), Closed),
        (ExceptionGroup("", [Closed("x")]), Closed),
        (ExceptionGroup("", [ExceptionGroup("", [Closed("x")])]), Closed),
        (ExceptionGroup("", [AssertionError(), Closed("x")]), Closed),
        (ExceptionGroup("", [AssertionError(), ValueError()]), AssertionError),
        (BaseExceptionGroup("", [Closed("x"), KeyboardInterrupt()]), KeyboardInterrupt),
        (BaseExceptionGroup("", [Closed("x"), ExceptionGroup("", [AssertionError()])]), Closed),
    ],
)
def test_a_group_stands_for_one_error(error: BaseException, kind: type[BaseException]) -> None:
    assert type(errors.leaf(error)) is kind


class Faulty(MemoryStorage):
    """Fails in a way that nobody foresaw."""

    failures = 0

    def read_into(
        self,
        name: str,
        offset: int,
        buffer: memoryview,
        *,
        if_match: str | None = None,
        progress: OnReceived | None = None,
    ) -> None:
        if self.failures and name.startswith("segments/"):
            self.failures -= 1
            raise AssertionError("half a value")
        super().read_into(name, offset, buffer, if_match=if_match, progress=progress)


@pytest.fixture
def faulty(tmp_path: Path) -> Iterator[TestStore]:
    with open_test_store(tmp_path / "faulty", cold=Faulty()) as opened:
        opened.append("s", b"abcdefgh", seal=True)
        opened.offload()
        yield opened


def fail(store: TestStore, times: int) -> None:
    assert isinstance(store.cold, Faulty)
    store.cold.failures = times


@pytest.mark.parametrize("at", ["fetch", "now"])
async def test_a_fault_of_ours_in_a_read_falls_back_to_the_other_tier(
    faulty: TestStore,
    at: str,
    monkeypatch: pytest.MonkeyPatch,
    expected_warnings: list[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    expected_warnings += ["unexpected AssertionError", "is read from the local tier instead"]

    def fault(_: object) -> None:
        raise AssertionError("half a value")

    async with reader_of(faulty) as reader:
        handle = reader.open(faulty.segment("s").id, priority=ReadPriority.OFFLOADED_FIRST)
        if at == "now":
            monkeypatch.setattr(ColdRead, "now", fault)
        fail(faulty, 1000)
        assert bytes(await handle.read(0, 8)) == b"abcdefgh"
        assert handle.served_from is Tier.LOCAL
        handle.close()
    assert "half a value" in caplog.text
    assert any(record.exc_info for record in caplog.records)
    assert {placed.chunk.state for placed in faulty.layout("s").cold} == {ChunkState.GOOD}


async def test_a_fault_of_ours_without_another_copy_names_the_segment_and_accuses_nothing(
    faulty: TestStore, expected_warnings: list[str]
) -> None:
    expected_warnings += ["unexpected AssertionError"]
    faulty.evict()
    async with reader_of(faulty) as reader:
        handle = reader.open(faulty.segment("s").id)
        fail(faulty, 1000)
        with pytest.raises(InternalError, match=r"segment s: .*internal error: AssertionError: half a value"):
            await handle.read(0, 8)
        fail(faulty, 0)
        assert bytes(await handle.read(0, 8)) == b"abcdefgh"
        handle.close()
    assert {placed.chunk.state for placed in faulty.layout("s").cold} == {ChunkState.GOOD}


@pytest.mark.parametrize("evicted", [False, True])
def test_a_fault_of_ours_in_a_scan_falls_back_or_names_the_segment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, expected_warnings: list[str], evicted: bool
) -> None:
    expected_warnings += ["unexpected AssertionError"]
    lines = b"one\ntwo\nthree\n"
    with store_of(tmp_path / "scanned") as store:
        fill(store, lines, seal=True)
        verbs.offload(store, "s")
        if evicted:
            verbs.evict(store, "s", force=True)
        else:
            with store.metadata.write() as txn:
                policies.change(txn, "s", put_settings={"read_priority": "offloaded-first"})

        def fault(*_: object) -> None:
            raise AssertionError("half a value")

        monkeypatch.setattr(Etags, "read_into", fault)
        if evicted:
            with pytest.raises(InternalError, match="segment s: internal error: AssertionError"):
                scan_lines(store, LineFormat())
        else:
            rows = [value for part in scan_lines(store, LineFormat()) for _, _, value in part]
            assert rows == [b"one", b"two", b"three"]
