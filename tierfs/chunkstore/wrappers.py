"""Storages around a storage: the base that forwards everything, a bound on calls in flight, metrics and the link."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeVar

from tierfs.chunkstore.link import Link
from tierfs.chunkstore.protocol import (
    ChunkStorage,
    ComposedObject,
    ObjectPiece,
    OnReceived,
    PendingUpload,
    RangeUrl,
    RangeUrls,
    Renewable,
    ServerCopies,
    Source,
    StoredObject,
    Uploads,
)
from tierfs.clock import Clock, SystemClock
from tierfs.errors import TierfsError
from tierfs.metrics import MetricName, MetricSink
from tierfs.types import Tier

_Result = TypeVar("_Result")


class Wrapped:
    """ChunkStorage and its optional abilities, forwarded to `inner`; none that `inner` has not.

    A subclass overrides the members it changes. To treat all calls alike, override `_call`: every call but
    `range_url`, `renew_credentials` and `close` passes through it.
    """

    def __init__(self, inner: ChunkStorage) -> None:
        self._inner = inner
        self._uploads = inner if isinstance(inner, Uploads) else None
        self._range_url = inner.range_url if isinstance(inner, RangeUrls) else _no_url

    def __repr__(self) -> str:
        return repr(self._inner)

    def _call(self, verb: str, name: str, function: Callable[[], _Result]) -> _Result:
        """Do one call of the inner storage; `verb` and `name` are for metrics and messages."""
        return function()

    def put(
        self, name: str, source: Source, *, metadata: Mapping[str, str] | None = None, create_only: bool = True
    ) -> StoredObject:
        return self._call(
            "put", name, lambda: self._inner.put(name, source, metadata=metadata, create_only=create_only)
        )

    def compose(
        self,
        name: str,
        pieces: Sequence[ObjectPiece],
        *,
        metadata: Mapping[str, str] | None = None,
        create_only: bool = True,
    ) -> ComposedObject:
        return self._call(
            "compose", name, lambda: self._inner.compose(name, pieces, metadata=metadata, create_only=create_only)
        )

    def read_into(
        self,
        name: str,
        offset: int,
        buffer: memoryview,
        *,
        if_match: str | None = None,
        progress: OnReceived | None = None,
    ) -> None:
        self._call(
            "read", name, lambda: self._inner.read_into(name, offset, buffer, if_match=if_match, progress=progress)
        )

    def stat(self, name: str) -> StoredObject:
        return self._call("stat", name, lambda: self._inner.stat(name))

    def delete(self, name: str) -> None:
        self._call("delete", name, lambda: self._inner.delete(name))

    def list(self, prefix: str, *, after: str = "") -> Iterator[StoredObject]:
        """Fetch each object in a call of its own, so that no call is open while the consumer works on an object."""
        objects = self._inner.list(prefix, after=after)
        while (found := self._call("list", prefix, lambda: next(objects, None))) is not None:
            yield found

    def uploads(self, prefix: str) -> Iterator[PendingUpload]:
        """List all in one call: they are few."""
        inner = self._uploads
        return iter(() if inner is None else self._call("uploads", prefix, lambda: [*inner.uploads(prefix)]))

    def abort_upload(self, upload: PendingUpload) -> None:
        inner = self._uploads
        if inner is not None:
            self._call("abort", upload.name, lambda: inner.abort_upload(upload))

    def copy_from(self, origin: ChunkStorage, stored: StoredObject) -> int | None:
        inner = self._inner
        if not isinstance(inner, ServerCopies):
            return None
        return self._call("compose", stored.name, lambda: inner.copy_from(_provider(origin), stored))

    def range_url(self, name: str) -> RangeUrl | None:
        return self._range_url(name)

    def renew_credentials(self) -> bool:
        return self._inner.renew_credentials() if isinstance(self._inner, Renewable) else False

    def close(self) -> None:
        self._inner.close()


def _provider(storage: ChunkStorage) -> ChunkStorage:
    while isinstance(storage, Wrapped):
        storage = storage._inner
    return storage


def _no_url(name: str) -> None:
    return None


class LimitedStorage(Wrapped):
    """Lets at most `max_in_flight` calls into `inner`; more wait. A put or compose counts once, whatever its parts."""

    def __init__(self, inner: ChunkStorage, *, max_in_flight: int) -> None:
        super().__init__(inner)
        self._slots = threading.BoundedSemaphore(max_in_flight)

    def _call(self, verb: str, name: str, function: Callable[[], _Result]) -> _Result:
        with self._slots:
            return function()

    def read_into(
        self,
        name: str,
        offset: int,
        buffer: memoryview,
        *,
        if_match: str | None = None,
        progress: OnReceived | None = None,
    ) -> None:
        """Read in a slot; not through `_call`, because this is the hot path of cold reads."""
        with self._slots:
            self._inner.read_into(name, offset, buffer, if_match=if_match, progress=progress)


class InstrumentedStorage(Wrapped):
    """Counts requests, bytes, errors and seconds of `inner`, labelled with tier and verb, never with names.

    Its reads measure the link.
    """

    def __init__(
        self,
        inner: ChunkStorage,
        metrics: MetricSink,
        *,
        tier: Tier = Tier.COLD,
        clock: Clock | None = None,
        link: Link | None = None,
    ) -> None:
        super().__init__(inner)
        self._metrics = metrics
        self._tier = tier.name.lower()
        self._clock = clock or SystemClock()
        self.link = link or Link(self._clock)

    def _call(self, verb: str, name: str, function: Callable[[], _Result]) -> _Result:
        with self._measured(verb):
            return function()

    def put(
        self, name: str, source: Source, *, metadata: Mapping[str, str] | None = None, create_only: bool = True
    ) -> StoredObject:
        """Count the bytes stored."""
        stored = super().put(name, source, metadata=metadata, create_only=create_only)
        self._count_bytes("put", stored.length_bytes)
        return stored

    def compose(
        self,
        name: str,
        pieces: Sequence[ObjectPiece],
        *,
        metadata: Mapping[str, str] | None = None,
        create_only: bool = True,
    ) -> ComposedObject:
        """Count the bytes composed, separately for the client and the server."""
        composed = super().compose(name, pieces, metadata=metadata, create_only=create_only)
        copied = composed.length_bytes - composed.client_bytes
        self._metrics.count(MetricName.COMPOSED_BYTES, composed.client_bytes, tier=self._tier, way="client")
        self._metrics.count(MetricName.COMPOSED_BYTES, copied, tier=self._tier, way="server")
        return composed

    def read_into(
        self,
        name: str,
        offset: int,
        buffer: memoryview,
        *,
        if_match: str | None = None,
        progress: OnReceived | None = None,
    ) -> None:
        """Count the bytes read; not through `_call`, because this is the hot path of cold reads."""
        with self._measured("read"), self.link.begin() as timer:
            watching = timer.watching(progress)
            self._inner.read_into(name, offset, buffer, if_match=if_match, progress=watching)
            timer.received(len(buffer))
        self._count_bytes("read", len(buffer))

    def list(self, prefix: str, *, after: str = "") -> Iterator[StoredObject]:
        """Count one request for all pages, and exclude the consumer's own time."""
        seconds = 0.0
        self._metrics.count(MetricName.STORAGE_REQUESTS, tier=self._tier, verb="list")
        try:
            objects = self._inner.list(prefix, after=after)
            while True:
                started = self._clock.monotonic_s()
                found = next(objects, None)
                seconds += self._clock.monotonic_s() - started
                if found is None:
                    return
                yield found
        except TierfsError as exc:
            self._count_error("list", exc)
            raise
        finally:
            self._metrics.observe(MetricName.STORAGE_SECONDS, seconds, tier=self._tier, verb="list")

    @contextmanager
    def _measured(self, verb: str) -> Iterator[None]:
        started = self._clock.monotonic_s()
        self._metrics.count(MetricName.STORAGE_REQUESTS, tier=self._tier, verb=verb)
        try:
            yield
        except TierfsError as exc:
            self._count_error(verb, exc)
            raise
        finally:
            seconds = self._clock.monotonic_s() - started
            self._metrics.observe(MetricName.STORAGE_SECONDS, seconds, tier=self._tier, verb=verb)

    def _count_error(self, verb: str, error: TierfsError) -> None:
        self._metrics.count(MetricName.STORAGE_ERRORS, tier=self._tier, verb=verb, error=type(error).__name__)

    def _count_bytes(self, verb: str, amount: int) -> None:
        self._metrics.count(MetricName.STORAGE_BYTES, amount, tier=self._tier, verb=verb)
