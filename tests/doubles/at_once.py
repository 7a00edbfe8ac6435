"""Work that a pool is given, done where it is given: no threads, and an order that a test can repeat."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any


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
