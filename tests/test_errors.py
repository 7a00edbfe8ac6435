"""Errors of reads as callers without trio meet them: each alone, of its own class."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from tests.reading.test_reader import reader_of
from tests.stores import TestStore, open_test_store
from tierfs import errors
from tierfs.errors import Closed, DataLoss, NotFound, Unavailable
from tierfs.reading import loop
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
        loop.run(fail)
    assert isinstance(caught.value.__cause__, ValueError)


def test_a_loop_returns_its_result() -> None:
    async def double(number: int) -> int:
        await trio.lowlevel.checkpoint()
        return 2 * number

    assert loop.run(double, 21) == 42


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
