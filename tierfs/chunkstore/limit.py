"""A bound on requests in flight, enforced before they start."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence

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


class LimitedStorage:
    """Lets at most `max_in_flight` calls into `inner`; more wait. A put or compose counts once, whatever its parts."""

    def __init__(self, inner: ChunkStorage, *, max_in_flight: int) -> None:
        self._inner = inner
        self._slots = threading.BoundedSemaphore(max_in_flight)

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
        with self._slots:
            return self._inner.put(name, source, metadata=metadata, create_only=create_only)

    def compose(
        self,
        name: str,
        pieces: Sequence[ObjectPiece],
        *,
        metadata: Mapping[str, str] | None = None,
        create_only: bool = True,
    ) -> ComposedObject:
        """See ChunkStorage.compose."""
        with self._slots:
            return self._inner.compose(name, pieces, metadata=metadata, create_only=create_only)

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
        with self._slots:
            self._inner.read_into(name, offset, buffer, if_match=if_match, progress=progress)

    def range_url(self, name: str) -> RangeUrl | None:
        """See ChunkStorage.range_url."""
        return self._inner.range_url(name)

    def stat(self, name: str) -> StoredObject:
        """See ChunkStorage.stat."""
        with self._slots:
            return self._inner.stat(name)

    def delete(self, name: str) -> None:
        """See ChunkStorage.delete."""
        with self._slots:
            self._inner.delete(name)

    def list(self, prefix: str, *, after: str = "") -> Iterator[StoredObject]:
        """See ChunkStorage.list. Between two objects no slot is held: the consumer may call us."""
        objects = self._inner.list(prefix, after=after)
        while True:
            with self._slots:
                found = next(objects, None)
            if found is None:
                return
            yield found

    def uploads(self, prefix: str) -> Iterator[PendingUpload]:
        """See ChunkStorage.uploads. They are few: all of them in one slot."""
        with self._slots:
            found = list(self._inner.uploads(prefix))
        return iter(found)

    def abort_upload(self, upload: PendingUpload) -> None:
        """See ChunkStorage.abort_upload."""
        with self._slots:
            self._inner.abort_upload(upload)

    def close(self) -> None:
        """See ChunkStorage.close; waits for nobody."""
        self._inner.close()
