"""LastPages: which last pages the mount reads by itself. Without a mount."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from tierfs.base.words.errors import Unavailable
from tierfs.base.words.types import EntryKind, ReadPriority, SegmentId
from tierfs.mount.inodes import InodeEntry
from tierfs.mount.last_pages import LOOK_S, LastPages

READER = 1001


class Reads:
    """A reader that notes what it is asked for."""

    def __init__(self, error: Exception | None = None) -> None:
        self.asked: list[tuple[int, int]] = []
        self.error = error
        self.opened = 0

    def open(self, segment_id: SegmentId, *, priority: ReadPriority, uid: int) -> Reads:
        assert (segment_id, priority, uid) == (7, ReadPriority.LOCAL_FIRST, READER), "who opened the file pays"
        self.opened += 1
        return self

    def close(self) -> None:
        self.opened -= 1

    async def read(self, offset: int, size_bytes: int) -> bytes:
        self.asked.append((offset, size_bytes))
        if self.error is not None:
            raise self.error
        return b"x" * size_bytes


async def looked(reads: Reads, *opened: tuple[int, InodeEntry, int], still_open: set[int]) -> None:
    """Open handles, and let the mount look twice."""
    reader: Any = reads
    pages = LastPages(reader, lambda handle: handle in still_open)
    async with trio.open_nursery() as nursery:
        for handle in opened:
            pages.opened(*handle, uid=READER)
        nursery.start_soon(pages.run)
        await trio.sleep(3 * LOOK_S)
        nursery.cancel_scope.cancel()
    assert reads.opened == 0


def entry(**fields: Any) -> InodeEntry:
    return InodeEntry(EntryKind.SEGMENT, 7, **fields)


@pytest.mark.parametrize(
    ("start", "end", "asked"),
    [
        (0, 1, [(0, 1)]),
        (0, 4095, [(0, 4095)]),
        (0, 4096, []),
        (0, 4097, [(4096, 1)]),
        (10, 10, []),
        (10, 4107, [(4106, 1)]),
    ],
)
async def test_the_last_page_is_read_by_the_view_of_the_handle(
    autojump_clock: Any, start: int, end: int, asked: list[tuple[int, int]]
) -> None:
    reads, known = Reads(), entry(start_offset=start)
    await looked(reads, (1, known, end), still_open={1})
    assert reads.asked == asked
    assert (known.tail, known.tail_end) == ((b"x" * asked[0][1], end) if asked else (b"", 0))


async def test_handles_that_were_closed_and_pages_that_were_read_cost_nothing(autojump_clock: Any) -> None:
    reads, read_on = Reads(), entry()
    read_on.note_tail(0, b"newer")
    await looked(reads, (1, entry(), 5), (2, read_on, 3), still_open={2})
    assert (reads.asked, read_on.tail) == ([], b"newer")


async def test_an_error_is_no_end(autojump_clock: Any, caplog: pytest.LogCaptureFixture) -> None:
    reads, known = Reads(Unavailable("away")), entry()
    await looked(reads, (1, known, 5), (2, known, 6), still_open={1, 2})
    assert (sorted(reads.asked), known.tail) == ([(0, 5), (0, 6)], b"")
