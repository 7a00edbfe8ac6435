"""Retry failed storage calls: the only place in tierfs that repeats one."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, islice, repeat
from typing import NoReturn, TypeVar

from tenacity import RetryCallState, Retrying, retry_if_exception, stop_after_attempt, wait_random_exponential

from tierfs.chunkstore.protocol import (
    ChunkStorage,
    ComposedObject,
    ObjectPiece,
    OnReceived,
    Source,
    StoredObject,
)
from tierfs.chunkstore.validate import composed_bytes, is_own
from tierfs.chunkstore.wrappers import Wrapped
from tierfs.errors import AlreadyExists, NotFound, PermissionDenied, Unavailable, WrongColdTier
from tierfs.metrics import MetricName, MetricSink, NullMetrics
from tierfs.names import printable

_log = logging.getLogger(__name__)

_Result = TypeVar("_Result")

_BATCH = 1000
"""Objects listed per retried call: a page of S3."""

_LEVELS = (logging.DEBUG, logging.INFO, logging.WARNING)
"""By failed attempt: one is normal, two are noted, more need an operator."""

_READ = "read"


class RetryingStorage(Wrapped):
    """Repeats calls of `inner` that raised Unavailable and not WrongColdTier, with full jitter; else passes through.

    A call that was refused is repeated if there are other credentials by now: those of a file are replaced at any time.
    """

    def __init__(
        self,
        inner: ChunkStorage,
        *,
        attempts: int,
        base_delay_s: float,
        max_delay_s: float,
        sleep: Callable[[float], None] = time.sleep,
        metrics: MetricSink | None = None,
    ) -> None:
        """`attempts` counts the first try; pauses are random up to base, 2 x base, 4 x base ... max."""
        super().__init__(inner)
        self._metrics = metrics or NullMetrics()
        self._retrying = Retrying(
            stop=stop_after_attempt(attempts),
            wait=wait_random_exponential(multiplier=base_delay_s, max=max_delay_s),
            retry=retry_if_exception(_passes),
            sleep=sleep,
            before_sleep=self._note,
            reraise=True,
        )

    def put(
        self, name: str, source: Source, *, metadata: Mapping[str, str] | None = None, create_only: bool = True
    ) -> StoredObject:
        """Put until it succeeds or fails for good.

        When a repeated put finds an object with the same attempt id (metadata `attempt`) and size under the name,
        an earlier try had succeeded: return that object.
        """
        failed = False

        def put() -> StoredObject:
            nonlocal failed
            try:
                return self._inner.put(name, source, metadata=metadata, create_only=create_only)
            except Unavailable:
                failed = True
                raise
            except AlreadyExists:
                if not failed:
                    raise
                found = self._inner.stat(name)
                if not is_own(found, metadata or {}, source.length_bytes):
                    raise
                return found

        return self._call("put", name, put)

    def compose(
        self,
        name: str,
        pieces: Sequence[ObjectPiece],
        *,
        metadata: Mapping[str, str] | None = None,
        create_only: bool = True,
    ) -> ComposedObject:
        """Compose until it succeeds or fails for good.

        Before a repeated copy, check whether the failed try had succeeded after all, as `put` does; the client bytes
        of that try are unknown then, and reported as 0.
        """
        failed = False

        def compose() -> ComposedObject:
            nonlocal failed
            earlier = self._earlier_result(name, metadata or {}, composed_bytes(pieces)) if failed else None
            if earlier is not None:
                return earlier
            try:
                return self._inner.compose(name, pieces, metadata=metadata, create_only=create_only)
            except Unavailable:
                failed = True
                raise

        return self._call("compose", name, compose)

    def _earlier_result(self, name: str, metadata: Mapping[str, str], length_bytes: int) -> ComposedObject | None:
        """Return the object made by an earlier try with the same attempt id, or None."""
        try:
            found = self._inner.stat(name)
        except NotFound:
            return None
        return ComposedObject.of(found) if is_own(found, metadata, length_bytes) else None

    def read_into(
        self,
        name: str,
        offset: int,
        buffer: memoryview,
        *,
        if_match: str | None = None,
        progress: OnReceived | None = None,
    ) -> None:
        """Read; with `if_match`, a repeated read continues at the point of failure."""
        reading = _Reading(self._inner, name, offset, buffer, if_match, progress)
        self._call(_READ, name, reading.resume)

    def list(self, prefix: str, *, after: str = "") -> Iterator[StoredObject]:
        """List again, after the last name received, when a page fails."""
        listing = _Listing(self._inner, prefix, after)
        while batch := self._call("list", prefix, listing.next_batch):
            yield from batch

    def _call(self, verb: str, name: str, function: Callable[[], _Result]) -> _Result:
        # First without tenacity: its bookkeeping costs more than everything else around a call (measured 20 us).
        tries: Iterator[Callable[[], _Result]] = repeat(function)
        try:
            return function()
        except Unavailable as exc:
            if not _passes(exc):
                raise
            tries = chain([partial(_fail, exc)], tries)
        except PermissionDenied:
            if not self.renew_credentials():
                raise
        result: _Result = self._retrying(_run, verb, name, tries)
        return result

    def _note(self, state: RetryCallState) -> None:
        """Log and count a failure before the pause."""
        verb, name, _ = state.args
        self._metrics.count(MetricName.STORAGE_RETRIES, verb=verb)
        level = _LEVELS[min(state.attempt_number, len(_LEVELS)) - 1]
        if verb == _READ:
            level = min(level, logging.INFO)  # the reader continues, and reports the outcome itself
        error = state.outcome.exception() if state.outcome else None
        _log.log(level, "%s %s failed, try %d: %s", verb, printable(name), state.attempt_number, error)


def _passes(error: BaseException) -> bool:
    """Return whether a retry may succeed; a missing mount does not return within our pauses."""
    return isinstance(error, Unavailable) and not isinstance(error, WrongColdTier)


def _fail(error: Unavailable) -> NoReturn:
    raise error


def _run(verb: str, name: str, tries: Iterator[Callable[[], _Result]]) -> _Result:
    """Do the next try; the other arguments are for the log line."""
    return next(tries)()


class _Reading:
    """One read over several tries."""

    def __init__(
        self,
        inner: ChunkStorage,
        name: str,
        offset: int,
        buffer: memoryview,
        if_match: str | None,
        progress: OnReceived | None,
    ) -> None:
        self._inner = inner
        self._name = name
        self._offset = offset
        self._buffer = buffer
        self._if_match = if_match
        self._progress = progress
        self._start = 0
        self._reported = 0

    def resume(self) -> None:
        """Read the missing bytes; all of them again without an etag, because two tries could read two versions."""
        if self._if_match is not None:
            self._start = self._reported
        self._inner.read_into(
            self._name,
            self._offset + self._start,
            self._buffer[self._start :],
            if_match=self._if_match,
            progress=self._report,
        )

    def _report(self, received: int) -> None:
        """Keep progress ascending although a try may restart."""
        done = self._start + received
        if done > self._reported:
            self._reported = done
            if self._progress is not None:
                self._progress(done)


class _Listing:
    """One listing over several tries."""

    def __init__(self, inner: ChunkStorage, prefix: str, after: str) -> None:
        self._inner = inner
        self._prefix = prefix
        self._after = after
        self._objects: Iterator[StoredObject] | None = None

    def next_batch(self) -> list[StoredObject]:
        """Return the next objects, empty at the end. A failure is raised only when no object arrived before it."""
        batch: list[StoredObject] = []
        if self._objects is None:
            self._objects = self._inner.list(self._prefix, after=self._after)
        try:
            for found in islice(self._objects, _BATCH):
                batch.append(found)  # one by one, to keep those that arrived before a failure
        except (Unavailable, PermissionDenied):
            self._objects = None  # else the next try would find the end where this one failed
            if not batch:
                raise
        if batch:
            self._after = batch[-1].name
        return batch
