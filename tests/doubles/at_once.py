"""Work that a pool is given, done where it is given: no threads, and an order that a test can repeat."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import Any

import trio

from tierfs.reading.fetch.queue import FetchQueue
from tierfs.reading.fetch.span import Transfer


class AtOnce:
    """In place of a ThreadPoolExecutor: each call is over when `submit` returns."""

    def __init__(self, threads: int, name: str) -> None:
        self._ended = False

    def submit(self, work: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Do it, and keep what it returned or raised, as a thread would."""
        if self._ended:
            raise RuntimeError("shut down")
        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()
        try:
            future.set_result(work(*arguments))
        except BaseException as exc:
            future.set_exception(exc)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more."""
        self._ended = True


def queue_at_once(may_block: Callable[[], bool]) -> type[FetchQueue]:
    """Return a queue that runs each transfer before `put` returns, unless it may block."""

    class QueueAtOnce(FetchQueue):
        def put(self, transfer: Transfer, priority: int) -> None:
            if may_block():
                super().put(transfer, priority)
            elif transfer.own():
                self._run(transfer)

    return QueueAtOnce


def calls_at_once(may_block: Callable[[], bool]) -> Callable[..., Awaitable[Any]]:
    """Return what stands for `trio.to_thread.run_sync`: the call is made in the loop, unless it may block."""
    in_thread = trio.to_thread.run_sync

    async def run_sync(work: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        if may_block():
            return await in_thread(work, *arguments, **options)
        await trio.lowlevel.checkpoint()
        return work(*arguments)

    return run_sync
