"""A provider as the rest of tierfs uses it: calls are bounded, repeated where that helps, and measured.

The only place in tierfs that repeats a call of a storage. None is repeated once nobody waits for it any more.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from itertools import chain, islice, repeat
from typing import NoReturn, TypeVar

from tenacity import RetryCallState, Retrying, retry_if_exception, stop_after_attempt, wait_random_exponential

from tierfs.base.system import deadlines, guards
from tierfs.base.system.clock import Clock, SystemClock
from tierfs.base.system.metrics import MetricName, MetricSink, NullMetrics
from tierfs.base.words.errors import AlreadyExists, NotFound, PermissionDenied, TierfsError, Unavailable, WrongColdTier
from tierfs.base.words.names import printable
from tierfs.base.words.types import Tier
from tierfs.engine.chunkstore.link import Link
from tierfs.engine.chunkstore.protocol import (
    ChunkStorage,
    ComposedObject,
    ObjectPiece,
    OnReceived,
    Source,
    StoredObject,
)
from tierfs.engine.chunkstore.validate import composed_bytes, is_own
from tierfs.engine.chunkstore.wrappers import Wrapped

_log = logging.getLogger(__name__)

_Result = TypeVar("_Result")

# Objects listed per retried call: a page of S3.
_BATCH = 1000

# By failed attempt: one is normal, two are noted, more need an operator, and so does a server that is silent.
_LEVELS = (logging.DEBUG, logging.INFO, logging.WARNING)
_SILENCE_S = 5.0

_READ, _LIST = "read", "list"


class ResilientStorage(Wrapped):
    """Lets so many calls into `inner` at once, repeats those that failed for a reason that may pass, and counts them.

    Repeated are calls that raised Unavailable and not WrongColdTier, with full jitter, and a call that was refused if
    there are other credentials by now: those of a file are replaced at any time. Requests, bytes, errors and seconds,
    the pauses included, are labelled with tier and verb, never with names. Reads measure the link.
    """

    def __init__(
        self,
        inner: ChunkStorage,
        *,
        max_in_flight: int | None = None,
        attempts: int = 1,
        base_delay_s: float = 0.0,
        max_delay_s: float = 0.0,
        sleep: Callable[[float], None] = time.sleep,
        metrics: MetricSink | None = None,
        tier: Tier = Tier.COLD,
        clock: Clock | None = None,
        link: Link | None = None,
    ) -> None:
        """More calls than `max_in_flight` wait; a put or compose counts once, whatever its parts. None: no bound.

        `attempts` counts the first try; pauses are random up to base, 2 x base, 4 x base ... max.
        """
        super().__init__(inner)
        self._slots = nullcontext() if max_in_flight is None else threading.BoundedSemaphore(max_in_flight)
        self._metrics = metrics or NullMetrics()
        self._tier = tier.name.lower()
        self._clock = clock or SystemClock()
        self.link = link or Link(self._clock)
        self._attempts = attempts
        self._retrying = Retrying(
            stop=stop_after_attempt(attempts),
            wait=wait_random_exponential(multiplier=base_delay_s, max=max_delay_s),
            retry=retry_if_exception(_passes),
            sleep=lambda pause_s: sleep(deadlines.within(pause_s)),
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
                existing = self._inner.stat(name)
                if not is_own(existing, metadata or {}, source.length_bytes):
                    raise
                return existing

        stored = self._call("put", name, put)
        self._metrics.count(MetricName.STORAGE_BYTES, stored.length_bytes, tier=self._tier, verb="put")
        return stored

    def compose(
        self,
        name: str,
        pieces: Sequence[ObjectPiece],
        *,
        metadata: Mapping[str, str] | None = None,
        create_only: bool = True,
    ) -> ComposedObject:
        """Compose until it succeeds or fails for good; count the bytes of the client and of the server.

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

        composed = self._call("compose", name, compose)
        copied = composed.length_bytes - composed.client_bytes
        self._metrics.count(MetricName.COMPOSED_BYTES, composed.client_bytes, tier=self._tier, way="client")
        self._metrics.count(MetricName.COMPOSED_BYTES, copied, tier=self._tier, way="server")
        return composed

    def _earlier_result(self, name: str, metadata: Mapping[str, str], length_bytes: int) -> ComposedObject | None:
        """Return the object made by an earlier try with the same attempt id, or None."""
        try:
            earlier = self._inner.stat(name)
        except NotFound:
            return None
        return ComposedObject.of(earlier) if is_own(earlier, metadata, length_bytes) else None

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
        with self.link.begin() as timer:
            reading = _Reading(self._inner, name, offset, buffer, if_match, timer.watching(progress))
            self._call(_READ, name, reading.resume)
            timer.received(len(buffer))
        self._metrics.count(MetricName.STORAGE_BYTES, len(buffer), tier=self._tier, verb=_READ)

    def list(self, prefix: str, *, after: str = "") -> Iterator[StoredObject]:
        """List again, after the last name received, when a page fails.

        One request for all pages; the consumer's own time does not count, and no call is open in it.
        """
        listing, seconds = _Listing(self._inner, prefix, after), 0.0
        self._metrics.count(MetricName.STORAGE_REQUESTS, tier=self._tier, verb=_LIST)
        try:
            while True:
                started_s = self._clock.monotonic_s()
                batch = self._tried(_LIST, prefix, listing.next_batch)
                seconds += self._clock.monotonic_s() - started_s
                if not batch:
                    return
                yield from batch
        except TierfsError as exc:
            self._count_error(_LIST, exc)
            raise
        finally:
            self._metrics.observe(MetricName.STORAGE_SECONDS, seconds, tier=self._tier, verb=_LIST)

    def _call(self, verb: str, name: str, function: Callable[[], _Result]) -> _Result:
        started_s = self._clock.monotonic_s()
        self._metrics.count(MetricName.STORAGE_REQUESTS, tier=self._tier, verb=verb)
        try:
            return self._tried(verb, name, function)
        except TierfsError as exc:
            self._count_error(verb, exc)
            raise
        finally:
            seconds = self._clock.monotonic_s() - started_s
            self._metrics.observe(MetricName.STORAGE_SECONDS, seconds, tier=self._tier, verb=verb)

    def _tried(self, verb: str, name: str, function: Callable[[], _Result]) -> _Result:
        # First without tenacity: its bookkeeping costs more than everything else around a call (measured 20 us).
        once, began_s = partial(self._in_slot, function), self._clock.monotonic_s()
        tries: Iterator[Callable[[], _Result]] = repeat(once)
        try:
            return once()
        except Unavailable as exc:
            if not _passes(exc):
                raise
            tries = chain([partial(_fail, exc)], tries)
        except PermissionDenied:
            if not self.renew_credentials():
                raise
        result: _Result = self._retrying(_run, verb, name, tries, began_s)
        return result

    def _in_slot(self, function: Callable[[], _Result]) -> _Result:
        with self._slots, guards.abandonable:
            deadlines.require_time("a request")  # its caller may have left while it waited for a slot
            return function()

    def _note(self, state: RetryCallState) -> None:
        """Log and count a failure before the pause."""
        verb, name, _, began_s = state.args
        self._metrics.count(MetricName.STORAGE_RETRIES, verb=verb)
        is_long = self._clock.monotonic_s() - began_s > _SILENCE_S
        level = logging.WARNING if is_long else _LEVELS[min(state.attempt_number, len(_LEVELS)) - 1]
        if verb == _READ:
            level = min(level, logging.INFO)  # the reader continues, and reports the outcome itself
        error = state.outcome.exception() if state.outcome else None
        if error is not None:
            deadlines.note(error)
        tries = f"{state.attempt_number} of {self._attempts}"
        _log.log(level, "%s %s failed, attempt %s: %s", verb, printable(name), tries, error)

    def _count_error(self, verb: str, error: TierfsError) -> None:
        self._metrics.count(MetricName.STORAGE_ERRORS, tier=self._tier, verb=verb, error=type(error).__name__)


def _passes(error: BaseException) -> bool:
    """Return whether a retry may succeed and is wanted; a missing mount does not return within our pauses."""
    if guards.is_interrupted() or deadlines.is_over():
        return False
    return isinstance(error, Unavailable) and not isinstance(error, WrongColdTier)


def _fail(error: Unavailable) -> NoReturn:
    raise error


def _run(verb: str, name: str, tries: Iterator[Callable[[], _Result]], began_s: float) -> _Result:
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
            for stored in islice(self._objects, _BATCH):
                batch.append(stored)  # one by one, to keep those that arrived before a failure
        except (Unavailable, PermissionDenied):
            self._objects = None  # else the next try would find the end where this one failed
            if not batch:
                raise
        if batch:
            self._after = batch[-1].name
        return batch
