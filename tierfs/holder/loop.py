"""Become the store's holder when there is none, and repeat its tasks until it ends.

Every mount runs one such task; so a holder that dies is replaced within seconds by a mount that is there.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import trio

from tierfs.config import BackgroundSettings
from tierfs.errors import Fenced
from tierfs.holder.alone import AloneTools, AloneWork
from tierfs.holder.failures import Failures
from tierfs.holder.lock import HeldElsewhere, Hold
from tierfs.holder.status import BacklogStatus
from tierfs.holder.tasks import STRAYS_EVERY_S, InThread, Task, TaskLoop, TaskOutcome
from tierfs.holder.work import ColdWork
from tierfs.holder.writer import SUSPECTS_EVERY_S, BackgroundWriter
from tierfs.metadata.store import MetadataStore

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class HolderTools:
    """Used by every holder; made by the composition root."""

    holder_path: Path
    metadata: MetadataStore
    settings: Callable[[], BackgroundSettings]
    """Read whenever the work begins."""
    in_thread: InThread


Begin = Callable[[TaskLoop, BackgroundSettings], Sequence[Task]]
"""Begins the work of a holder, and lists what it repeats. Blocks."""


class HolderTask(ABC):
    """Waits until no process holds the store, then holds it and repeats its tasks. One per process."""

    _held_message = "this process holds the store"

    def __init__(self, tools: HolderTools) -> None:
        self._tools = tools
        self._working = trio.CancelScope()
        self.holds = False
        """Whether this process holds the store now."""

    @property
    def backlog(self) -> BacklogStatus | None:
        """Bytes left to offload, as of the last look; None while this process has not looked."""
        return None

    @abstractmethod
    def _connect(self) -> Begin:
        """Connect to the cold tier before the store is held, and each time the work is renewed. Blocks."""

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
        logged, the work begins again.
        """
        logged = ""
        while True:
            takeover_s = self._tools.settings().takeover_s
            try:
                await self._hold_until_fenced(on_held, before_work)
                return
            except HeldElsewhere as exc:
                if not wait:
                    raise
                if str(exc) != logged:
                    log.info("%s; this process waits for its turn", exc)
                logged = str(exc)
            except Exception as exc:
                if str(exc) != logged:
                    log.exception("the background writer ended and begins again every %g s", takeover_s)
                logged = str(exc)
            await trio.sleep(takeover_s)

    async def _hold_until_fenced(self, on_held: Callable[[], None], before_work: Callable[[], Awaitable[None]]) -> None:
        """Hold the store and work. Raises HeldElsewhere."""
        begin = await self._tools.in_thread(self._connect)
        async with self._holding(on_held):
            log.info(self._held_message)
            await before_work()
            while not await self._fenced(begin):
                await self._tools.in_thread.idle()
                begin = await self._tools.in_thread(self._connect)

    @asynccontextmanager
    async def _holding(self, on_held: Callable[[], None]) -> AsyncIterator[None]:
        """Be the holder inside the block; release the lock once no thread is at work.

        Work still in flight may commit: no process may take it for a dead holder's. A cancelled block leaves the lock
        to end with the process; one that failed waits, for this process could not take its own lock again.
        """
        in_thread = self._tools.in_thread
        held = Hold(self._tools.holder_path, self._tools.metadata.clock)
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

    async def _fenced(self, begin: Begin) -> bool:
        """Work until renewed (False), or until another store owns the bucket (True)."""
        fenced = False
        try:
            with trio.CancelScope() as self._working:
                loop, tasks = await self._tools.in_thread(partial(self._begin, begin))
                await loop.run(tasks)
        except* Fenced as group:
            log.error("the background writer stops: %s", group.exceptions[0])
            fenced = True
        return fenced

    def _begin(self, begin: Begin) -> tuple[TaskLoop, Sequence[Task]]:
        settings, metadata = self._tools.settings(), self._tools.metadata
        loop = TaskLoop(metadata, Failures(metadata, settings), self._tools.in_thread)
        return loop, begin(loop, settings)


class OwnerTask(HolderTask):
    """Does the work of the store's owner: the background writer's, or what is left of it without a cold tier."""

    def __init__(self, tools: HolderTools, make_work: Callable[[], ColdWork | AloneTools]) -> None:
        """`make_work` is called each time the work begins: a store may get its cold tier meanwhile."""
        super().__init__(tools)
        self._make_work = make_work
        self._writer: BackgroundWriter | None = None

    @property
    def backlog(self) -> BacklogStatus | None:
        """See HolderTask.backlog."""
        return self._writer.backlog if self.holds and self._writer is not None else None

    def _connect(self) -> Begin:
        self._writer = None
        work = self._make_work()
        if isinstance(work, AloneTools):
            return partial(self._begin_alone, work)
        return partial(self._resolve_and_begin, work)

    def _resolve_and_begin(self, work: ColdWork, loop: TaskLoop, settings: BackgroundSettings) -> Sequence[Task]:
        """Resolve what the previous holder left."""
        work.resolve_crashed()
        self._tools.metadata.count_sums()
        self._writer = BackgroundWriter(work, loop, settings)
        return self._writer.tasks()

    def _begin_alone(self, tools: AloneTools, loop: TaskLoop, settings: BackgroundSettings) -> Sequence[Task]:
        work = AloneWork(tools)

        async def look() -> TaskOutcome:
            return TaskOutcome.DONE if await self._tools.in_thread(work.look) else TaskOutcome.MORE

        async def strays() -> TaskOutcome:
            return TaskOutcome.MORE if await self._tools.in_thread(work.collect_strays) else TaskOutcome.DONE

        return [
            Task(settings.tick_s, {"look": look}),
            Task(STRAYS_EVERY_S, {"strays": strays}),
            Task(settings.tick_s, {"collect": loop.blocking(work.collect)}),
            Task(SUSPECTS_EVERY_S, {"suspects": loop.blocking(work.suspects.look)}),
            Task(settings.lifetimes_every_s, {"lifetimes": loop.blocking(work.end_lifetimes)}),
            # A reader that was killed keeps every page that was replaced since from being used again.
            Task(settings.lifetimes_every_s, {"dead readers": loop.blocking(self._tools.metadata.clear_dead_readers)}),
        ]


class ReplicaTask(HolderTask):
    """Refreshes a replica every few seconds."""

    _held_message = "this process refreshes the replica"

    def __init__(self, tools: HolderTools, make_refresh: Callable[[], Callable[[], object]]) -> None:
        """Take `make_refresh`, which connects and returns what brings the replica up to date, with its result."""
        super().__init__(tools)
        self._make_refresh = make_refresh

    def _connect(self) -> Begin:
        return self._connect_and_begin

    def _connect_and_begin(self, loop: TaskLoop, settings: BackgroundSettings) -> Sequence[Task]:
        refresh = self._make_refresh()
        steps = {
            "dead readers": loop.blocking(self._tools.metadata.clear_dead_readers),
            "refresh": loop.blocking(lambda: log.debug("refreshed: %s", refresh())),
        }
        return [Task(settings.replica_refresh_s, steps)]
