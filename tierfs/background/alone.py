"""Alone: the loop of the holder of a store without a cold tier, in place of the background writer."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

import trio

from tierfs.background.alone_work import AloneTools, AloneWork
from tierfs.background.holder import Hold
from tierfs.background.keeper import HolderLoop
from tierfs.background.runner import PAUSE_S, InThread
from tierfs.background.troubles import Troubles
from tierfs.config import BackgroundSettings

log = logging.getLogger(__name__)


class Alone(HolderLoop):
    """Keeps a store without a cold tier for as long as this process holds it."""

    def __init__(self, tools: AloneTools, in_thread: InThread, settings: Callable[[], BackgroundSettings]) -> None:
        super().__init__(settings)
        self._tools = tools
        self._in_thread = in_thread

    async def _hold_once(self, on_held: Callable[[], None]) -> bool:
        """Never True: bytes expire for ever."""
        held = Hold(self._tools.holder_path, self._tools.engine.metadata.clock)
        async with self._holding(held, self._in_thread, on_held):
            log.info("this process holds the store")
            while True:
                with trio.CancelScope() as self._working:
                    await self._work()
                await self._in_thread.idle()

    async def _work(self) -> None:
        """Work until renewed. What fails is listed in `status` and tried again."""
        settings, metadata = self._settings(), self._tools.engine.metadata
        work = AloneWork(self._tools)
        troubles = await self._in_thread(lambda: Troubles(metadata, settings))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._repeat, troubles, "look", work.look, settings.tick_s)
            nursery.start_soon(self._repeat, troubles, "collect", work.collect, settings.tick_s)
            nursery.start_soon(self._repeat, troubles, "lifetimes", work.end_lifetimes, settings.lifetimes_every_s)

    async def _repeat(self, troubles: Troubles, what: str, task: Callable[[], object], every_s: float) -> None:
        """Do a task again and again; one that returns False has more to do, and goes on after a short pause."""
        while True:
            pause_s = every_s
            if troubles.may_try(what, self._tools.engine.metadata.clock.now_ms()):
                try:
                    if await self._in_thread(task) is False:
                        pause_s = PAUSE_S
                    await self._in_thread(partial(troubles.passed, what))
                except Exception as exc:
                    await self._in_thread(partial(troubles.failed, what, exc))
            await trio.sleep(pause_s)
