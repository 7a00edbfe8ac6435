"""Alone: what the holder of a store without a cold tier does in place of the background writer.

Bytes are kept as long as policy says, sealed segments go on in their successors, and what was removed is taken apart.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import trio

from tierfs.background.clock_check import ClockCheck
from tierfs.background.collect import Collector
from tierfs.background.holder import Hold
from tierfs.background.keeper import HolderLoop
from tierfs.background.planner import Planner
from tierfs.background.policy import DiskView
from tierfs.background.retention import Expired, Retention
from tierfs.background.runner import InThread
from tierfs.background.snapshot import SLICE_S, Snapshots
from tierfs.background.troubles import Troubles
from tierfs.config import BackgroundSettings
from tierfs.segments import dismantle
from tierfs.segments.engine import Engine
from tierfs.types import Tier

log = logging.getLogger(__name__)

_ROOMY = DiskView(0, 0, high_used_bytes=1 << 62, high_local_bytes=1 << 62, high_unoffloaded_bytes=1 << 62)
"""Nothing can be moved, so that nothing presses."""


@dataclass(frozen=True, slots=True)
class AloneTools:
    """What a holder without a cold tier needs; made by the composition root."""

    holder_path: Path
    engine: Engine
    collector: Collector
    retention: Retention
    """That does not wait for an offload."""
    clocks: ClockCheck


class AloneWork:
    """The tasks of such a holder. One thread at a time."""

    def __init__(self, tools: AloneTools) -> None:
        self._tools = tools
        self._metadata = tools.engine.metadata
        self._planner = Planner()
        self._snapshots = Snapshots(self._metadata, self._planner)

    def tidy(self) -> None:
        """End chunks that are old enough to expire some day, and delete what is garbage."""
        self._snapshots.refresh(slice_s=SLICE_S)
        for segment_id in self._planner.next(_ROOMY, self._metadata.clock.now_ms()).rolls:
            view = self._planner.view_of(segment_id)
            if view is not None and (view.policy.retention_age_s or view.policy.retention_bytes):
                self._tools.engine.roll(segment_id)
        self.collect()

    def collect(self) -> None:
        """Take apart what was removed, and delete its files."""
        dismantle.dismantle(self._metadata, cold_due_ms=self._metadata.clock.now_ms())
        self._tools.collector.collect(tiers=(Tier.LOCAL,))

    def end_lifetimes(self) -> Expired:
        """Seal what policy seals; take away what it no longer keeps, if the clock is trusted."""
        self._tools.retention.seal()
        self._tools.clocks.require()
        return self._tools.retention.expire()


class Alone(HolderLoop):
    """Keeps a store without a cold tier for as long as this process holds it."""

    def __init__(self, tools: AloneTools, in_thread: InThread, settings: Callable[[], BackgroundSettings]) -> None:
        super().__init__(settings)
        self._tools = tools
        self._in_thread = in_thread

    async def _hold_once(self, on_held: Callable[[], None]) -> bool:
        """Never True: bytes expire for ever."""
        held = Hold(self._tools.holder_path, self._tools.engine.metadata.clock)
        try:
            log.info("this process holds the store")
            self.holds = True
            on_held()
            while True:
                with trio.CancelScope() as self._working:
                    await self._work()
                await self._in_thread.idle()
        finally:
            self.holds = False
            if not self._in_thread.busy:
                held.release()

    async def _work(self) -> None:
        """Work until renewed. What fails is listed in `status` and tried again."""
        settings, metadata = self._settings(), self._tools.engine.metadata
        work = AloneWork(self._tools)
        troubles = await self._in_thread(lambda: Troubles(metadata, settings))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._repeat, troubles, "collect", work.tidy, settings.tick_s)
            nursery.start_soon(self._repeat, troubles, "lifetimes", work.end_lifetimes, settings.lifetimes_every_s)

    async def _repeat(self, troubles: Troubles, what: str, task: Callable[[], object], every_s: float) -> None:
        while True:
            if troubles.may_try(what, self._tools.engine.metadata.clock.now_ms()):
                try:
                    await self._in_thread(task)
                    await self._in_thread(partial(troubles.passed, what))
                except Exception as exc:
                    await self._in_thread(partial(troubles.failed, what, exc))
            await trio.sleep(every_s)
