"""The base of storages around a storage: it forwards everything."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TypeVar

from tierfs.engine.chunkstore.located import LocatedStorage
from tierfs.engine.chunkstore.protocol import (
    ChunkStorage,
    ComposedObject,
    ManyDeletes,
    ObjectPiece,
    OnReceived,
    PendingUpload,
    ProvedCopies,
    RangeUrl,
    RangeUrls,
    Renewable,
    ServerCopies,
    Source,
    StoredObject,
    Thaws,
    ThawSpeed,
    Uploads,
)

_Result = TypeVar("_Result")


class Wrapped:
    """ChunkStorage and its optional abilities, forwarded to `inner`; none that `inner` has not.

    A subclass overrides the members it changes. To treat all calls alike, override `_call`: every call but
    `range_url`, `renew_credentials` and `close` passes through it.
    """

    def __init__(self, inner: ChunkStorage) -> None:
        self._inner = inner

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

    def delete_many(self, names: Sequence[str]) -> bool:
        inner = self._inner
        return isinstance(inner, ManyDeletes) and self._call("delete", names[0], lambda: inner.delete_many(names))

    def list(self, prefix: str, *, after: str = "") -> Iterator[StoredObject]:
        """Fetch each object in a call of its own, so that no call is open while the consumer works on an object."""
        objects = self._inner.list(prefix, after=after)
        while (stored := self._call("list", prefix, lambda: next(objects, None))) is not None:
            yield stored

    def uploads(self, prefix: str) -> Iterator[PendingUpload]:
        """List all in one call: they are few."""
        inner = self._inner
        if not isinstance(inner, Uploads):
            return iter(())
        return iter(self._call("uploads", prefix, lambda: [*inner.uploads(prefix)]))

    def abort_upload(self, upload: PendingUpload) -> None:
        inner = self._inner
        if isinstance(inner, Uploads):
            self._call("abort", upload.name, lambda: inner.abort_upload(upload))

    def copy_from(self, origin: ChunkStorage, stored: StoredObject) -> int | None:
        inner = self._inner
        if not isinstance(inner, ServerCopies):
            return None
        return self._call("compose", stored.name, lambda: inner.copy_from(_provider(origin), stored))

    def copy_proved(self, name: str, piece: ObjectPiece, crc32c: int | None, metadata: Mapping[str, str]) -> str | None:
        inner = self._inner
        if not isinstance(inner, ProvedCopies):
            return None
        return self._call("compose", name, lambda: inner.copy_proved(name, piece, crc32c, metadata))

    def thaw(self, name: str, days: int, speed: ThawSpeed) -> bool:
        inner = self._inner
        return isinstance(inner, Thaws) and self._call("thaw", name, lambda: inner.thaw(name, days, speed))

    def range_url(self, name: str) -> RangeUrl | None:
        return self._url_of(name)

    @cached_property  # at need: a look at the members of a protocol takes 9 us, and most wrappers live for one read
    def _url_of(self) -> Callable[[str], RangeUrl | None]:
        return self._inner.range_url if isinstance(self._inner, RangeUrls) else _no_url

    def renew_credentials(self) -> bool:
        return self._inner.renew_credentials() if isinstance(self._inner, Renewable) else False

    def close(self) -> None:
        self._inner.close()


def _provider(storage: ChunkStorage) -> ChunkStorage:
    while (provider := _inside(storage)) is not storage:
        storage = provider
    return storage


def _inside(storage: ChunkStorage) -> ChunkStorage:
    if isinstance(storage, LocatedStorage):
        return storage.connection()
    return storage._inner if isinstance(storage, Wrapped) else storage


def _no_url(name: str) -> None:
    return None
