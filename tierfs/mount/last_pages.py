"""LastPages: the last page of each growing file that stays open, read in good time by the mount itself.

The kernel reads whole pages. `tail -n 0 -f` waits at the end of a file whose last page nobody has read. Once the head
is dropped up to there and a line comes, the kernel asks for the page, whose first bytes are gone. With zeros in their
place a reader below the new head would take them for the file's own, as all readers of an inode share its pages. So
the bytes are kept while they are there. A handle that is closed within LOOK_S costs a number in a list.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import closing
from mmap import PAGESIZE

import trio

from tierfs.base.words.errors import BudgetSpent, TierfsError
from tierfs.base.words.types import ReadPriority, SegmentId
from tierfs.mount.inodes import InodeEntry
from tierfs.reading.reader import StoreReader

log = logging.getLogger(__name__)

# Longer than a program takes to read a small file and close it, shorter than one second of `tail -f` (a guess).
LOOK_S = 0.25

# Pages read at once: a cold one waits for its server.
_AT_ONCE = 16


class LastPages:
    """Reads last pages. On the trio loop, beside the mount; `run` ends with it."""

    def __init__(self, reader: StoreReader, is_open: Callable[[int], bool]) -> None:
        """`is_open` tells whether a handle is still open."""
        self._reader = reader
        self._is_open = is_open
        self._young: list[tuple[int, InodeEntry, int, int]] = []
        self._old: list[tuple[int, InodeEntry, int, int]] = []
        """Handles that have been open since the last look, and since the one before: with the end of their segment, and
        their user."""
        self._noted = trio.Event()
        self._limiter = trio.CapacityLimiter(_AT_ONCE)

    def opened(self, handle: int, known: InodeEntry, end: int, uid: int) -> None:
        """Note a handle of a file that may grow, and is read through the kernel's pages.

        `end` is its segment's now; the user who opened it pays for the page.
        """
        self._young.append((handle, known, end, uid))
        self._noted.set()

    async def run(self) -> None:
        """Look at handles that have been open for LOOK_S, until cancelled."""
        async with trio.open_nursery() as nursery:
            while True:
                if not (self._young or self._old):  # a mount at rest wakes up for nothing
                    self._noted = trio.Event()
                    await self._noted.wait()
                await trio.sleep(LOOK_S)
                due, self._old, self._young = self._old, self._young, []
                for handle, known, end, uid in due:
                    if self._is_open(handle):
                        nursery.start_soon(self._keep, known, end, uid)

    async def _keep(self, known: InodeEntry, end: int, uid: int) -> None:
        """Read the page in which a file ended when it was opened, unless a reader has had it, or none is begun."""
        async with self._limiter:
            begin = end - (end - known.start_offset) % PAGESIZE
            if known.tail_end >= end or begin == end:
                return
            try:
                opened = self._reader.open(SegmentId(known.id), priority=ReadPriority.LOCAL_FIRST, uid=uid)
                with closing(opened) as reading:
                    known.note_tail(begin, bytes(await reading.read(begin, end - begin)))
            except BudgetSpent as exc:  # logged once for the user: budgets.py
                log.debug("the last page of segment %d is not kept: %s", known.id, exc)
            except TierfsError as exc:
                log.info("the last page of segment %d is not kept: %s", known.id, exc)
            except Exception:
                log.exception("the last page of segment %d is not kept", known.id)
