"""The threads of the background writer, and how a process ends that still has some at work.

An upload may take minutes to give up. A process that is told to end does not wait for it: the next
holder resolves what was in flight. But LMDB must not be closed under a thread, so the process then ends
at once, without taking anything down.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from typing import TypeVar

import trio

log = logging.getLogger(__name__)

T = TypeVar("T")

_THREADS = 16
"""More than the background writer has tasks, so that none waits for another's thread."""

_GRACE_S = 3.0
"""For work that is about to end by itself."""


class BackgroundThreads:
    """Runs blocking work for one process; call it and await the result."""

    def __init__(self) -> None:
        self._limiter = trio.CapacityLimiter(_THREADS)
        self._changed = threading.Condition()
        self._running = 0

    @property
    def busy(self) -> bool:
        """Whether a thread is at work, also one whose caller was cancelled."""
        return self._running > 0

    async def __call__(self, work: Callable[[], T], /) -> T:
        """The result of `work`; a cancelled caller leaves it to end by itself."""
        return await trio.to_thread.run_sync(self._counted, work, limiter=self._limiter, abandon_on_cancel=True)

    async def idle(self) -> None:
        """Return when no thread is at work."""
        await trio.to_thread.run_sync(self._wait_idle, None, abandon_on_cancel=True)

    def leave(self) -> None:
        """Return when no thread is at work; end the process if some still are after a while."""
        if self._wait_idle(_GRACE_S):
            return
        log.info("ending with work in flight; the next holder of the store resolves it")
        logging.shutdown()
        os._exit(0)

    def _wait_idle(self, longest_s: float | None) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: not self._running, longest_s)

    def _counted(self, work: Callable[[], T]) -> T:
        with self._changed:
            self._running += 1
        try:
            return work()
        finally:
            with self._changed:
                self._running -= 1
                self._changed.notify_all()
