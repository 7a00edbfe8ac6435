"""Following: what the holder of a replica does in place of the background writer."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import trio

from tierfs.background.holder import Hold
from tierfs.background.keeper import HolderLoop
from tierfs.background.runner import InThread
from tierfs.background.troubles import Troubles
from tierfs.config import BackgroundSettings
from tierfs.metadata.store import MetadataStore

log = logging.getLogger(__name__)

_REFRESH = "refresh"
"""Names the work in `troubles`."""


@dataclass(frozen=True, slots=True)
class FollowingTools:
    """What following needs; made by the composition root."""

    holder_path: Path
    metadata: MetadataStore
    make_refresh: Callable[[], Callable[[], object]]
    """Connects; what it returns brings the replica up to date and tells what it found."""
    in_thread: InThread


class Following(HolderLoop):
    """Refreshes a replica every few seconds for as long as this process holds it."""

    def __init__(self, tools: FollowingTools, settings: Callable[[], BackgroundSettings]) -> None:
        super().__init__(settings)
        self._tools = tools

    async def _hold_once(self, on_held: Callable[[], None]) -> bool:
        """Never True: there may always be news."""
        held = Hold(self._tools.holder_path, self._tools.metadata.clock)
        async with self._holding(held, self._tools.in_thread, on_held):
            log.info("this process refreshes the replica")
            while True:
                with trio.CancelScope() as self._working:
                    await self._follow()
                await self._tools.in_thread.idle()

    async def _follow(self) -> None:
        """Refresh until renewed. What fails is listed in `status` and tried again."""
        in_thread, settings = self._tools.in_thread, self._settings()
        refresh = await in_thread(self._tools.make_refresh)
        troubles = await in_thread(lambda: Troubles(self._tools.metadata, settings))
        while True:
            await in_thread(self._tools.metadata.clear_dead_readers)
            if troubles.may_try(_REFRESH, self._tools.metadata.clock.now_ms()):
                try:
                    found = await in_thread(refresh)
                    log.debug("refreshed: %s", found)
                    await in_thread(partial(troubles.passed, _REFRESH))
                except Exception as exc:
                    await in_thread(partial(troubles.failed, _REFRESH, exc))
            await trio.sleep(settings.replica_refresh_s)
