"""ReadLoop: tierfs's reader on a trio loop in a thread of its own, for threads that read and wait.

The thread starts with the first read. It is a daemon thread: an interpreter that ends does not wait for it.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

import trio

from tierfs.base.words.errors import Closed, TierfsError
from tierfs.base.words.types import MIB, ReadPriority, SegmentId
from tierfs.reading.handle import ReadHandle
from tierfs.reading.reader import StoreReader, run_loop

T = TypeVar("T")

# The most that one read asks for: as a mount's readers, so read-ahead sees the same.
_STEP_BYTES = MIB

_END_S = 30.0

# A wait without an end may miss a signal that arrives just before it: CPython runs handlers in between only.
_SIGNAL_CHECK_S = 0.5


class ReadLoop:
    """Reads for any number of threads. Close it once no thread reads."""

    def __init__(self, make_reader: Callable[[], StoreReader]) -> None:
        self._make_reader = make_reader
        self._started: Future[trio.lowlevel.TrioToken] = Future()
        self._waiting: set[Future[Any]] = set()
        self._cancel = trio.CancelScope()
        self._thread = threading.Thread(target=self._run, name="tierfs-reader", daemon=True)
        self._thread.start()
        self._token = self._started.result()

    def open(self, segment_id: SegmentId, priority: ReadPriority | None) -> ReadHandle:
        """Open a segment; see StoreReader.open."""

        async def open_handle() -> ReadHandle:
            return self._reader.open(segment_id, priority=priority)

        return self._do(open_handle)

    def release(self, handle: ReadHandle) -> None:
        """Close a handle, soon: the garbage collector may call this in the loop's own thread, which must not wait."""
        try:
            self._token.run_sync_soon(handle.close)
        except trio.RunFinishedError:
            return  # the reader closed it

    def read_into(self, handle: ReadHandle, offset: int, view: memoryview) -> int:
        """Fill `view` with the bytes from `offset` on; return their number. Raises as ReadHandle.read."""
        return self._do(lambda: _fill(handle, offset, view), lambda: _fill_now(handle, offset, view))

    def read_all(self, handle: ReadHandle, pieces: list[tuple[int, memoryview]]) -> None:
        """Fill several views at once, each from its offset on."""

        self._do(lambda: _fill_all(handle, pieces))

    def close(self) -> None:
        """End the loop; idempotent. Reads under way fail with Closed."""
        try:
            self._token.run_sync_soon(self._cancel.cancel)
        except trio.RunFinishedError:
            return
        if threading.current_thread() is not self._thread:
            self._thread.join(_END_S)

    def _do(self, work: Callable[[], Awaitable[T]], at_once: Callable[[], T | None] = lambda: None) -> T:
        """Return the result of `at_once` on the loop, or else that of `work`, waited for.

        An interrupt cancels the work, so that it writes to no buffer later.
        """
        answer: Future[T] = Future()
        scope = trio.CancelScope()
        try:
            self._token.run_sync_soon(self._begin, at_once, work, answer, scope)
        except trio.RunFinishedError:
            raise _closed() from None
        try:
            return _waited_for(answer)
        except BaseException:
            if not answer.done():
                self._token.run_sync_soon(scope.cancel)
                with suppress(TimeoutError):  # which would hide the interrupt
                    answer.exception(_END_S)
            raise

    def _begin(
        self,
        at_once: Callable[[], T | None],
        work: Callable[[], Awaitable[T]],
        answer: Future[T],
        scope: trio.CancelScope,
    ) -> None:
        try:
            result = at_once()
        except Exception as exc:
            answer.set_exception(exc)
            return
        if result is not None:
            answer.set_result(result)
            return
        self._waiting.add(answer)
        answer.add_done_callback(self._waiting.discard)
        try:
            self._nursery.start_soon(_answer, work, answer, scope)
        except RuntimeError:  # the nursery is closed: the loop is ending
            answer.set_exception(_closed())

    def _run(self) -> None:
        try:
            run_loop(self._serve)
        except BaseException as exc:
            if not self._started.done():
                self._started.set_exception(exc)
                return
            raise
        finally:
            for answer in list(self._waiting):
                answer.set_exception(_closed())

    async def _serve(self) -> None:
        with self._cancel:
            async with self._make_reader() as self._reader, trio.open_nursery() as self._nursery:
                self._started.set_result(trio.lowlevel.current_trio_token())
                await trio.sleep_forever()


async def _answer(work: Callable[[], Awaitable[T]], answer: Future[T], scope: trio.CancelScope) -> None:
    try:
        with scope:
            answer.set_result(await work())
            return
        answer.set_exception(_closed())
    except trio.Cancelled:
        answer.set_exception(_closed())
        raise
    except BaseException as exc:
        answer.set_exception(exc)


def _waited_for(answer: Future[T]) -> T:
    """Return its result, for a thread that an interrupt may end at any moment."""
    while not answer.done():
        with suppress(TimeoutError):
            answer.exception(_SIGNAL_CHECK_S)
    return answer.result()


def _fill_now(handle: ReadHandle, offset: int, view: memoryview) -> int | None:
    """Fill as `_fill`, if nothing has to be waited for; a task of its own costs as much as such a read."""
    if len(view) > _STEP_BYTES:
        return None
    data = handle.read_now(offset, len(view))
    if data is None:
        return None
    view[: len(data)] = data
    return len(data)


async def _fill(handle: ReadHandle, offset: int, view: memoryview) -> int:
    done = 0
    while done < len(view):
        data = await handle.read(offset + done, min(_STEP_BYTES, len(view) - done))
        if not data:
            break
        view[done : done + len(data)] = data
        done += len(data)
        await trio.lowlevel.checkpoint_if_cancelled()
    return done


async def _fill_all(handle: ReadHandle, pieces: list[tuple[int, memoryview]]) -> None:
    """Fill all views at once; raise what the first that failed raised, alone and not in a group."""
    failed: list[TierfsError] = []

    async def fill(offset: int, view: memoryview) -> None:
        try:
            await _fill(handle, offset, view)
        except TierfsError as exc:
            failed.append(exc)
            nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        for offset, view in pieces:
            nursery.start_soon(fill, offset, view)
    if failed:
        raise failed[0]


def _closed() -> Closed:
    return Closed("the store was closed while it was read", remedy="reopen it")
