"""The limits of one open store: bandwidth of background work and of reads, and budgets of users. Made on first use.

Part of the composition root. The limits outlive reloads of the settings, so that transfers in progress follow them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from tierfs.base.options.config import Settings
from tierfs.base.system.clock import Clock
from tierfs.base.system.store_paths import StorePaths

if TYPE_CHECKING:
    from tierfs.base.system.throttle import Throttle
    from tierfs.engine.chunkstore.paced import TransferPace
    from tierfs.reading.reader import StoreReader
    from tierfs.reading.spending import UserBudget


class StoreLimits:
    """Limits by the settings of now. Thread-safe."""

    def __init__(self, paths: StorePaths, clock: Clock, settings: Callable[[], Settings]) -> None:
        self._paths = paths
        self._clock = clock
        self._settings = settings
        self._lock = threading.Lock()
        self._pace: TransferPace | None = None
        self._reads: Throttle | None = None

    @property
    def pace(self) -> TransferPace:
        """The pace of transfers that nobody waits for."""
        from tierfs.engine.chunkstore.paced import TransferPace

        with self._lock:
            if self._pace is None:
                self._pace = TransferPace(self._settings().offload.bandwidth)
            return self._pace

    @property
    def reads(self) -> Throttle:
        """The limit of the reads of this process, warm-ups included."""
        from tierfs.base.system.throttle import Throttle

        with self._lock:
            if self._reads is None:
                self._reads = Throttle(self._settings().read.bandwidth)
            return self._reads

    @property
    def budgets(self) -> list[UserBudget]:
        """The hourly budgets of users who have spent any of them, as far as processes have saved it."""
        read = self._settings().read
        if not (read.hourly_bytes or read.hourly_requests):
            return []
        from tierfs.reading.spending import budgets_in

        return budgets_in(self._paths.budgets, read, self._clock)

    def apply(self, reader: StoreReader) -> None:
        """Apply the settings to a reader: its limits and deadlines, not its memory. On its loop once it runs."""
        read = replace(self._settings().read, budget_bytes=reader.settings.budget_bytes)
        reader.limit(read, lambda: self.reads, (self._paths.budgets, self._paths.budgets_lock))

    def interrupt(self) -> None:
        """End the transfers that wait for the background work's bandwidth. A handler of signals may call it."""
        if self._pace is not None:  # without the lock, which the handler's thread may have
            self._pace.end()

    def renew(self) -> None:
        """Apply new settings to the transfers of this process."""
        with self._lock:
            if self._pace is not None:
                self._pace.limit(self._settings().offload.bandwidth)
            if self._reads is not None:
                self._reads.limit(self._settings().read.bandwidth)
