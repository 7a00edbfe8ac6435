"""Keeper: become the store's holder when there is none, and run its background writer until it ends.

Every mount runs one; so a holder that dies is replaced within seconds by a mount that is there.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import trio

from tierfs.background import requests
from tierfs.background.holder import HeldElsewhere, Hold
from tierfs.background.runner import BackgroundWriter, InThread
from tierfs.background.status import BacklogStatus
from tierfs.background.troubles import Troubles
from tierfs.background.work import ColdWork
from tierfs.config import BackgroundSettings
from tierfs.errors import Fenced

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class KeeperTools:
    """What a keeper needs; made by the composition root."""

    holder_path: Path
    make_work: Callable[[], ColdWork]
    settings: Callable[[], BackgroundSettings]
    """Asked whenever the work begins."""
    in_thread: InThread


class HolderLoop(ABC):
    """Waits until nobody holds the store, then holds it and works. One per process."""

    def __init__(self, settings: Callable[[], BackgroundSettings]) -> None:
        self._settings = settings
        self._working = trio.CancelScope()
        self.holds = False
        """Whether this process holds the store now."""

    @property
    def backlog(self) -> BacklogStatus | None:
        """What is left to offload, as of the last look; None while nothing was looked at by this process."""
        return None

    @abstractmethod
    async def _hold_once(self, on_held: Callable[[], None]) -> bool:
        """Hold the store and work; True when there is nothing left to do here. Raises HeldElsewhere."""

    def renew(self) -> None:
        """Begin the work anew, with new settings and a new connection to the cold tier; still the holder."""
        self._working.cancel()

    async def run(self, *, wait: bool = True, on_held: Callable[[], None] = lambda: None) -> None:
        """Hold the store and work until cancelled; `on_held` is called once it is held.

        With `wait`, as long as another process holds it this one waits for its turn, else HeldElsewhere is
        raised. Returns for good, with an error in the log, when another store owns the bucket. A failure
        nobody foresaw is logged and the work begun anew.
        """
        told = ""
        while True:
            try:
                if await self._hold_once(on_held):
                    return
            except HeldElsewhere as exc:
                if not wait:
                    raise
                if str(exc) != told:
                    log.info("%s; this process waits for its turn", exc)
                told = str(exc)
            except Exception as exc:
                if str(exc) != told:
                    log.exception("the background writer ended and begins anew every %g s", self._takeover_s)
                told = str(exc)
            await trio.sleep(self._takeover_s)

    @asynccontextmanager
    async def _holding(self, held: Hold, in_thread: InThread, on_held: Callable[[], None]) -> AsyncIterator[None]:
        """Be the holder inside the block; release the lock once no thread is at work.

        What is still in flight may commit: nobody may take it for a dead holder's. A cancelled block leaves the lock
        to end with the process; one that failed waits, for this process could not take its own lock again.
        """
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

    @property
    def _takeover_s(self) -> float:
        return self._settings().takeover_s


class Keeper(HolderLoop):
    """Runs the background writer of a store."""

    def __init__(self, tools: KeeperTools) -> None:
        super().__init__(tools.settings)
        self._tools = tools
        self._writer: BackgroundWriter | None = None

    @property
    def backlog(self) -> BacklogStatus | None:
        """See HolderLoop.backlog."""
        return None if self._writer is None else self._writer.backlog

    async def _hold_once(self, on_held: Callable[[], None]) -> bool:
        """True when there is nothing left to do here: the store is fenced."""
        work = await self._tools.in_thread(self._tools.make_work)
        clock = work.tools.engine.metadata.clock
        async with self._holding(Hold(self._tools.holder_path, clock), self._tools.in_thread, on_held):
            log.info("this process holds the store")
            while not await self._fenced(work):
                await self._tools.in_thread.idle()
                work = await self._tools.in_thread(self._tools.make_work)
            return True

    async def _fenced(self, work: ColdWork) -> bool:
        """Work until renewed (False), or until another store owns the bucket (True)."""
        fenced = False
        try:
            with trio.CancelScope() as self._working:
                await self._work_as_holder(work)
        except* Fenced as group:
            log.error("the background writer stops: %s", group.exceptions[0])
            fenced = True
        return fenced

    async def _work_as_holder(self, work: ColdWork) -> None:
        """Resolve what the holder before left, then work until cancelled."""
        in_thread, settings = self._tools.in_thread, self._tools.settings()
        metadata = work.tools.engine.metadata
        await in_thread(work.resolve_crashed)
        await in_thread(metadata.count_sums)
        await in_thread(lambda: requests.restart(metadata))
        troubles = await in_thread(lambda: Troubles(metadata, settings))
        self._writer = BackgroundWriter(work, troubles, settings, in_thread)
        try:
            await self._writer.run()
        finally:
            self._writer = None
