"""Do one thing to many items in threads: bounded look-ahead, the first error, and no thread left running.

A pool belongs to a block, as a nursery does: the end of the block, an error or Ctrl-C included, drops all calls that
have not begun and waits for those that have. So a call holds neither a buffer nor a transaction after its block.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import copy_context
from itertools import islice
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import TypeVar

from tierfs.base.words.errors import Closed, Fenced, TierfsError

T = TypeVar("T")
R = TypeVar("R")

# Longest time until Ctrl-C is seen: a signal just before a wait begins does not interrupt it.
_POLL_S = 0.2


class Pool:
    """A few named threads. Thread-safe; close it, or use it as a context manager."""

    def __init__(self, threads: int, name: str, subject: str = "") -> None:
        """Start the pool; a call that meets its end raises Closed naming `subject`, `name` by default."""
        self._executor = ThreadPoolExecutor(threads, name)
        self._ahead = 2 * threads
        self._subject = subject or name

    def in_order(
        self, work: Callable[[T], R], items: Iterable[T], *, ahead: int | Callable[[], int] | None = None
    ) -> Generator[R]:
        """Yield `work` of each item, in order; a slow result holds up those after it.

        `items` is consumed by the caller's thread, no more than `ahead` items before the result that is yielded; twice
        the threads by default. A function is asked anew before each item. Raises the error of the first item in order
        that failed, Closed once the pool is closed. A generator that is closed early drops the calls that have not
        begun.
        """
        waiting: deque[Future[R]] = deque()

        def most() -> int:
            return ahead() if callable(ahead) else ahead or self._ahead

        try:
            for item in items:
                waiting.append(self._submit(work, item))
                while len(waiting) >= most():
                    yield self._result(waiting.popleft())
            while waiting:
                yield self._result(waiting.popleft())
        finally:
            _cancel(waiting)

    def as_completed(
        self, work: Callable[[T], R], items: Iterable[T], *, ahead: int | None = None
    ) -> Generator[tuple[T, R]]:
        """Yield each item and `work` of it, the first that is done first; otherwise as `in_order`.

        `items` may be a generator that ends early, depending on the results yielded so far.
        """
        done: SimpleQueue[Future[R]] = SimpleQueue()
        running: dict[Future[R], T] = {}
        source = iter(items)
        try:
            while True:
                for item in islice(source, (ahead or self._ahead) - len(running)):
                    future = self._submit(work, item)
                    running[future] = item
                    future.add_done_callback(done.put)
                if not running:
                    return
                future = _next(done)
                yield running.pop(future), self._result(future)
        finally:
            _cancel(running)

    def run(self, work: Callable[[T], R], items: Iterable[T]) -> list[R]:
        """Return `work` of all items, in order, all submitted at once; no call runs any more on return.

        After the first failure no further call begins; raises the error of the first item in order that failed, Closed
        once the pool is closed.
        """
        done: SimpleQueue[Future[R]] = SimpleQueue()
        futures: list[Future[R]] = []
        try:
            for item in items:
                futures.append(self._submit(work, item))
                futures[-1].add_done_callback(done.put)
            for _ in futures:
                if _failed(_next(done)):
                    break
        finally:
            _cancel(futures)
            running = [future for future in futures if not future.cancelled()]
            for future in running:
                _settle(future)
        for future in filter(_failed, running):
            future.result()
        return [self._result(future) for future in futures]

    def within(self, work: Callable[[], R], limit_s: float) -> R:
        """Return the result of one call. Raises TimeoutError after `limit_s`; the call itself ends with the pool's
        block."""
        future = self._submit(lambda _: work(), None)
        for _ in range(max(1, round(limit_s / _POLL_S))):
            with suppress(TimeoutError):
                future.exception(_POLL_S)
            if future.done():
                return self._result(future)
        raise TimeoutError(f"{self._subject}: more than {limit_s} s")

    @contextmanager
    def running(self, work: Callable[[T], object], items: Iterable[T]) -> Iterator[None]:
        """Run `work` of all items beside the block; no call runs any more after it.

        Raises the error of the block, else that of the first item in order that failed.
        """
        futures: list[Future[object]] = []
        try:
            futures += (self._submit(work, item) for item in items)
            yield
        finally:
            for future in futures:
                _settle(future)
        for future in futures:
            self._result(future)

    def close(self, *, wait: bool = True) -> None:
        """Drop the calls that have not begun, and unless `wait` is false wait for the others; idempotent."""
        self._executor.shutdown(wait=wait, cancel_futures=True)

    def __enter__(self) -> Pool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _submit(self, work: Callable[[T], R], item: T) -> Future[R]:
        try:
            return self._executor.submit(copy_context().run, work, item)  # a deadline in force is the call's too
        except RuntimeError as exc:  # shut down
            raise self._closed() from exc

    def _result(self, future: Future[R]) -> R:
        _settle(future)
        try:
            return future.result()
        except CancelledError as exc:
            raise self._closed() from exc

    def _closed(self) -> Closed:
        return Closed(f"{self._subject}: closed")


class Attempts:
    """Steps of one job, none of which is skipped because another one failed; `end` raises the first error.

    A publish is such a step: what the steps before it stored must be named by the journal, whatever failed meanwhile.
    """

    def __init__(self) -> None:
        self.error: Exception | None = None

    @contextmanager
    def step(self) -> Iterator[None]:
        """Run a step, and keep its error. Fenced is raised at once: another owner's store is not worked on."""
        try:
            yield
        except Fenced:
            raise
        except Exception as exc:
            self.note(exc)

    def note(self, error: Exception) -> None:
        """Keep an error, if it is the first."""
        self.error = self.error or error

    def end(self) -> None:
        """Raise the first error that a step ended with."""
        if self.error is not None:
            raise self.error


class Allowance:
    """So many units of something scarce for all threads together; one that wants more than all of it gets it alone."""

    def __init__(self, units: int) -> None:
        self._units = units
        self._used = 0
        self._changed = threading.Condition()

    @contextmanager
    def of(self, units: int) -> Iterator[None]:
        """Use some in the block, once others leave as many."""
        with self._changed:
            while self._used and self._used + units > self._units:
                self._changed.wait(_POLL_S)
            self._used += units
        try:
            yield
        finally:
            with self._changed:
                self._used -= units
                self._changed.notify_all()


def caught(work: Callable[[T], R]) -> Callable[[T], R | TierfsError]:
    """Return `work` that returns a TierfsError instead of raising it, so that the other items are still done."""

    def attempt(item: T) -> R | TierfsError:
        try:
            return work(item)
        except TierfsError as exc:
            return exc

    return attempt


def _settle(future: Future[R]) -> None:
    """Wait for one call. (concurrent.futures.wait never returns for calls that a pool dropped when it was closed.)"""
    while not future.done():
        with suppress(TimeoutError, CancelledError):
            future.exception(_POLL_S)


def _next(done: SimpleQueue[Future[R]]) -> Future[R]:
    while True:
        with suppress(Empty):
            return done.get(timeout=_POLL_S)


def _failed(future: Future[R]) -> bool:
    return future.cancelled() or future.exception() is not None


def _cancel(futures: Iterable[Future[R]]) -> None:
    for future in futures:
        future.cancel()
