"""Become the store's holder when there is none, and repeat its tasks until it ends.

Every mount runs one such task; so a holder that dies is replaced within seconds by a mount that is there.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import trio

from tierfs.base.options.config import BackgroundSettings
from tierfs.base.words.errors import Fenced, ReadOnlyDisk, leaf
from tierfs.engine.metadata.store import MetadataStore
from tierfs.upkeep.holder.failures import Failures
from tierfs.upkeep.holder.lock import HeldElsewhere, Hold
from tierfs.upkeep.holder.status import BacklogStatus
from tierfs.upkeep.holder.tasks import InThread, TaskLoop, TaskTable

log = logging.getLogger(__name__)


# Begins the work of a holder; see holder/kinds.py. Blocks.
Begin = Callable[[TaskLoop, BackgroundSettings], TaskTable]


class HolderTask:
    """Waits until no process holds the store, then holds it and repeats its tasks. One per process."""

    def __init__(
        self,
        holder_path: Path,
        metadata: MetadataStore,
        settings: Callable[[], BackgroundSettings],
        in_thread: InThread,
        connect: Callable[[], Begin],
    ) -> None:
        """Take the `settings`, read whenever the work begins, and `connect`, which blocks.

        It connects to the cold tier before the store is held, and each time the work is renewed: a store may get its
        cold tier meanwhile.
        """
        self._holder_path = holder_path
        self._metadata = metadata
        self._settings = settings
        self._in_thread = in_thread
        self._connect = connect
        self._working = trio.CancelScope()
        self._table = TaskTable([])
        self.holds = False
        """Whether this process is the holder of the store now."""

    @property
    def backlog(self) -> BacklogStatus | None:
        """Bytes left to offload, as of the last look; None while this process has not looked."""
        return self._table.backlog() if self.holds else None

    def renew(self) -> None:
        """Begin the work again, with new settings and a new connection to the cold tier; still the holder."""
        self._working.cancel()

    async def run(
        self,
        *,
        wait: bool = True,
        on_held: Callable[[], None] = lambda: None,
        before_work: Callable[[], Awaitable[None]] = trio.lowlevel.checkpoint,
    ) -> None:
        """Hold the store and work until cancelled; `on_held` is called once it is held, then `before_work` awaited.

        While another process holds it, this one waits for its turn with `wait`, and else raises HeldElsewhere. Returns
        for good, with an error in the log, when another store owns the bucket. After an unforeseen failure, which is
        logged, the work begins again. Without `wait` it raises Fenced instead.
        """
        logged = ""
        while True:
            takeover_s = self._settings().takeover_s
            try:
                fence = await self._hold_until_fenced(on_held, before_work)
                if not wait:
                    raise fence
                return
            except Fenced:
                raise
            except HeldElsewhere as exc:
                if not wait:
                    raise
                if str(exc) != logged:
                    log.info("%s; this process waits for its turn", exc)
                logged = str(exc)
            except ReadOnlyDisk as exc:
                if not wait:
                    raise
                if str(exc) != logged:
                    log.warning("%s; the background work starts once the disk accepts changes again", exc)
                logged = str(exc)
            except Exception as exc:
                if str(exc) != logged:
                    log.exception("the background writer failed and is restarted every %g s", takeover_s)
                logged = str(exc)
            await trio.sleep(takeover_s)

    async def _hold_until_fenced(
        self, on_held: Callable[[], None], before_work: Callable[[], Awaitable[None]]
    ) -> Fenced:
        """Hold the store and work; return what ended it. Raises HeldElsewhere."""
        begin = await self._in_thread(self._connect)
        async with self._holding(on_held):
            log.info("this process is the holder of the store")
            await before_work()
            renewed = False
            while (fence := await self._fenced(begin, renewed=renewed)) is None:
                await self._in_thread.idle()
                begin, renewed = await self._in_thread(self._connect), True
            return fence

    @asynccontextmanager
    async def _holding(self, on_held: Callable[[], None]) -> AsyncIterator[None]:
        """Be the holder inside the block; release the lock once no thread is at work.

        Work still in flight may commit: no process may take it for a dead holder's. A cancelled block leaves the lock
        to end with the process; one that failed waits, for this process could not take its own lock again.
        """
        in_thread = self._in_thread
        held = Hold(self._holder_path, self._metadata.clock)
        try:
            self.holds = True
            on_held()
            yield
        except Exception:
            self.holds = False
            await in_thread.idle()
            raise
        finally:
            self.holds = False
            if not in_thread.busy:
                held.release()

    async def _fenced(self, begin: Begin, *, renewed: bool) -> Fenced | None:
        """Work until renewed (None), or until another store owns the bucket."""
        fence: Fenced | None = None
        try:
            with trio.CancelScope() as self._working:
                loop, self._table = await self._in_thread(partial(self._begin, begin, renewed=renewed))
                await loop.run(self._table.tasks)
        except* Fenced as group:
            newer = leaf(group)
            assert isinstance(newer, Fenced)
            log.error("the background writer stops: %s", newer)
            fence = newer
        finally:
            self._table = TaskTable([])
        return fence

    def _begin(self, begin: Begin, *, renewed: bool) -> tuple[TaskLoop, TaskTable]:
        settings = self._settings()
        failures = Failures(self._metadata, settings)
        if renewed:  # with new keys, or at another address: what failed so far need not wait for minutes
            failures.retry_all()
        loop = TaskLoop(self._metadata, failures, self._in_thread)
        return loop, begin(loop, settings)
