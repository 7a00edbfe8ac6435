"""Watch for changes of all processes: the kernel is notified of stale entries within a second.

Appends write no change of their own, as they are many: the rows of the open segments whose attributes the kernel caches
are compared instead, after each poll that finds a commit.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

import pyfuse3
import trio

from tierfs.engine.metadata import records_pb2 as pb
from tierfs.engine.metadata import tables
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.tables import SEGMENTS
from tierfs.mount.growth import GrowingFiles
from tierfs.mount.inodes import Inodes
from tierfs.tiering.changed_segments import changes_since

log = logging.getLogger(__name__)

# Changes passed to the kernel before other tasks run: about 5 ms (one decode, at most two writes to it each).
_BATCH = 500

# Rows compared before other tasks run: about 1 ms.
_ROWS = 2000

# Rest between two comparisons, in durations of the last one: they take a tenth of a core at most, which 100,000 open
# segments reach (measured: 0.6 microseconds each).
_REST = 9


class ChangeWatcher:
    """Passes changes of other processes to the kernel."""

    def __init__(self, metadata: MetadataStore, inodes: Inodes, growth: GrowingFiles) -> None:
        """Start at the newest change: construct it before the first request is served."""
        self._metadata = metadata
        self._inodes = inodes
        self._growth = growth
        self._seen_id = metadata.last_transaction_id()
        self._compared_id = self._seen_id
        self._compare_due_s = 0.0
        with metadata.read() as txn:
            self._position = txn.store.next_change

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
                    log.exception("changes of other processes are not visible until this error is resolved")
                failing = True

    async def poll(self) -> None:
        """Pass new changes to the kernel; costs two microseconds when there are none."""
        behind, self._inodes.behind = self._inodes.behind, set()
        for inode in behind:
            self._growth.changed(inode)
        newest_id = self._metadata.last_transaction_id()
        if newest_id != self._seen_id:
            await self._pass_on_touches()
            self._seen_id = newest_id
        if newest_id != self._compared_id and trio.current_time() >= self._compare_due_s:
            await self._compare_rows()
            self._compared_id = newest_id

    async def _pass_on_touches(self) -> None:
        more = True
        while more:
            changes = changes_since(self._metadata, self._position, _BATCH)
            if changes.complete:
                self._pass_on(changes.touches)
            else:
                log.info("too many changes at once: all cached names and pages of the kernel are invalidated")
                await self._forget_everything()
            # Only now: changes that could not be passed on are passed on by the next poll.
            self._position = changes.following
            more = changes.complete and len(changes.touches) == _BATCH
            await trio.lowlevel.checkpoint()

    async def _compare_rows(self) -> None:
        """Tell the kernel of open segments whose row is another than the one it caches attributes of."""
        begun_s = trio.current_time()
        entries = list(self._inodes.may_grow.items())
        for first in range(0, len(entries), _ROWS):
            self._compare(entries[first : first + _ROWS])
            await trio.lowlevel.checkpoint()
        self._compare_due_s = trio.current_time() + _REST * (trio.current_time() - begun_s)

    def _compare(self, batch: Iterable[tuple[int, int]]) -> None:
        keys = {inode: tables.u64(known.id) for inode, _ in batch if (known := self._inodes.get(inode)) is not None}
        with self._metadata.read() as txn:
            rows = dict(txn.cursor_raw(SEGMENTS.name).getmulti(list(keys.values())))
        for inode, version in batch:
            if inode not in keys or hash(rows.get(keys[inode])) != version:
                # The kernel asks again, which enters the newer row.
                self._inodes.may_grow.pop(inode, None)
                self._growth.changed(inode)

    def _pass_on(self, touches: Iterable[pb.TouchRecord]) -> None:
        changed: dict[int, None] = {}
        for touch in touches:
            changed[touch.inode] = None
            if self._inodes.get(touch.parent_inode) is not None:
                changed[touch.parent_inode] = None
                # The _async form: the plain one can deadlock with a request for the same directory.
                pyfuse3.invalidate_entry_async(touch.parent_inode, touch.name.encode(), ignore_enoent=True)
        for inode in changed:
            self._growth.changed(inode)

    async def _forget_everything(self) -> None:
        for number, inode in enumerate(self._inodes.numbers(), 1):
            self._growth.changed(inode)
            if number % _BATCH == 0:
                await trio.lowlevel.checkpoint()
