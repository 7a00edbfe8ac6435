"""Counting what goes to a tier and how long it takes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from tierfs.chunkstore.protocol import (
    Abilities,
    ChunkStorage,
    ComposedObject,
    ObjectPiece,
    PendingUpload,
    Progress,
    RangeUrl,
    Source,
    StoredObject,
)
from tierfs.clock import Clock, SystemClock
from tierfs.errors import TierfsError
from tierfs.metrics import MetricName, MetricSink
from tierfs.types import Tier


class MeasuredStorage:
    """Counts requests, bytes, errors and seconds of `inner`, labelled with tier and verb, never with names."""

    def __init__(
        self, inner: ChunkStorage, metrics: MetricSink, *, tier: Tier = Tier.COLD, clock: Clock | None = None
    ) -> None:
        self._inner = inner
        self._metrics = metrics
        self._tier = tier.name.lower()
        self._clock = clock or SystemClock()

    def __repr__(self) -> str:
        return repr(self._inner)

    @property
    def abilities(self) -> Abilities:
        """See ChunkStorage.abilities."""
        return self._inner.abilities

    def put(
        self, name: str, source: Source, *, metadata: Mapping[str, str] | None = None, create_only: bool = True
    ) -> StoredObject:
        """See ChunkStorage.put."""
        with self._measured("put"):
            stored = self._inner.put(name, source, metadata=metadata, create_only=create_only)
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
        """See ChunkStorage.compose."""
        with self._measured("compose"):
            composed = self._inner.compose(name, pieces, metadata=metadata, create_only=create_only)
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
        progress: Progress | None = None,
    ) -> None:
        """See ChunkStorage.read_into."""
        with self._measured("read"):
            self._inner.read_into(name, offset, buffer, if_match=if_match, progress=progress)
        self._count_bytes("read", len(buffer))

    def range_url(self, name: str) -> RangeUrl | None:
        """See ChunkStorage.range_url."""
        return self._inner.range_url(name)

    def stat(self, name: str) -> StoredObject:
        """See ChunkStorage.stat."""
        with self._measured("stat"):
            return self._inner.stat(name)

    def delete(self, name: str) -> None:
        """See ChunkStorage.delete."""
        with self._measured("delete"):
            self._inner.delete(name)

    def list(self, prefix: str, *, after: str = "") -> Iterator[StoredObject]:
        """See ChunkStorage.list. One request, whatever its pages; the consumer's own time is not counted."""
        seconds = 0.0
        try:
            with self._counted_errors("list"):
                objects = self._inner.list(prefix, after=after)
                while True:
                    started = self._clock.monotonic_s()
                    found = next(objects, None)
                    seconds += self._clock.monotonic_s() - started
                    if found is None:
                        return
                    yield found
        finally:
            self._metrics.observe(MetricName.STORAGE_SECONDS, seconds, tier=self._tier, verb="list")

    def uploads(self, prefix: str) -> Iterator[PendingUpload]:
        """See ChunkStorage.uploads."""
        with self._measured("uploads"):
            found = list(self._inner.uploads(prefix))
        return iter(found)

    def abort_upload(self, upload: PendingUpload) -> None:
        """See ChunkStorage.abort_upload."""
        with self._measured("abort"):
            self._inner.abort_upload(upload)

    def close(self) -> None:
        """See ChunkStorage.close."""
        self._inner.close()

    @contextmanager
    def _measured(self, verb: str) -> Iterator[None]:
        started = self._clock.monotonic_s()
        try:
            with self._counted_errors(verb):
                yield
        finally:
            seconds = self._clock.monotonic_s() - started
            self._metrics.observe(MetricName.STORAGE_SECONDS, seconds, tier=self._tier, verb=verb)

    @contextmanager
    def _counted_errors(self, verb: str) -> Iterator[None]:
        self._metrics.count(MetricName.STORAGE_REQUESTS, tier=self._tier, verb=verb)
        try:
            yield
        except TierfsError as exc:
            error = type(exc).__name__
            self._metrics.count(MetricName.STORAGE_ERRORS, tier=self._tier, verb=verb, error=error)
            raise

    def _count_bytes(self, verb: str, amount: int) -> None:
        self._metrics.count(MetricName.STORAGE_BYTES, amount, tier=self._tier, verb=verb)
