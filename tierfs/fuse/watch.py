"""Watch for changes of other processes: the kernel is notified of stale entries within a second."""

from __future__ import annotations

import errno
import itertools
import logging
from collections.abc import Iterable

import pyfuse3
import trio

from tierfs.fuse.tree import Inodes
from tierfs.metadata import tables
from tierfs.metadata.records import TouchRecord
from tierfs.metadata.store import MetadataStore
from tierfs.metadata.tables import TOUCHES

log = logging.getLogger(__name__)

_BATCH = 500
"""Changes passed to the kernel before other tasks run: about 5 ms (one decode, at most two writes to it each)."""

_GONE = frozenset({errno.ENOENT, errno.ENOTCONN, errno.ENODEV})
"""The kernel has forgotten the inode, or the mount is being taken down."""


class ChangeWatcher:
    """Passes changes of other processes to the kernel."""

    def __init__(self, metadata: MetadataStore, inodes: Inodes) -> None:
        """Start at the newest change: construct it before the first request is served."""
        self._metadata = metadata
        self._inodes = inodes
        self._seen_id = metadata.last_transaction_id()
        with metadata.read() as txn:
            self._next_sequence = txn.store.next_change

    async def run(self, poll_s: float) -> None:
        """Poll until cancelled. An error is logged and the poll repeated: it never ends the mount."""
        failing = False
        while True:
            await trio.sleep(poll_s)
            try:
                await self.poll()
                failing = False
            except Exception:
                if not failing:
                    log.exception("changes of other processes do not show until this error ends")
                failing = True

    async def poll(self) -> None:
        """Pass new changes to the kernel; costs two microseconds when there are none."""
        newest_id = self._metadata.last_transaction_id()
        if newest_id == self._seen_id:
            return
        more = True
        while more:
            touches, following = self._next_touches()
            if touches is None:
                log.info("too many changes at once: the kernel forgets everything")
                await self._forget_everything()
            else:
                self._pass_on(touches)
            # Only now: changes that could not be passed on are passed on by the next poll.
            self._next_sequence = following
            more = touches is not None and len(touches) == _BATCH
            await trio.lowlevel.checkpoint()
        self._seen_id = newest_id

    def _next_touches(self) -> tuple[list[TouchRecord] | None, int]:
        """Return the next changes in order, `_BATCH` at most, and the sequence after them.

        The changes are None when some were trimmed before they were read.
        """
        with self._metadata.read() as txn:
            rows = list(itertools.islice(txn.scan(TOUCHES, tables.u64(self._next_sequence)), _BATCH))
            newest = txn.store.next_change
        first = tables.read_u64(rows[0][0]) if rows else newest
        if first != self._next_sequence:
            return None, newest
        return [touch for _, touch in rows], self._next_sequence + len(rows)

    def _pass_on(self, touches: Iterable[TouchRecord]) -> None:
        changed: dict[int, None] = {}
        for touch in touches:
            changed[touch.inode] = None
            if self._inodes.get(touch.parent_inode) is not None:
                changed[touch.parent_inode] = None
                # The _async form: the plain one can deadlock with a request for the same directory.
                pyfuse3.invalidate_entry_async(touch.parent_inode, touch.name.encode(), ignore_enoent=True)
        for inode in changed:
            self._invalidate(inode)

    async def _forget_everything(self) -> None:
        for number, inode in enumerate(self._inodes.numbers(), 1):
            self._invalidate(inode)
            if number % _BATCH == 0:
                await trio.lowlevel.checkpoint()

    def _invalidate(self, inode: int) -> None:
        """Invalidate attributes only: the data form deadlocks with a read in flight, and data never changes."""
        if self._inodes.get(inode) is None:
            return
        try:
            pyfuse3.invalidate_inode(inode, attr_only=True)
        except OSError as exc:
            if exc.errno not in _GONE:
                log.warning("the kernel does not forget inode %d: %s", inode, exc)
