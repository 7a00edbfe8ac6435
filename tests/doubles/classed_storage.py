"""A bucket in memory with storage classes: what is in some of them is read only after it was requested back."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from tierfs.base.system.clock import Clock
from tierfs.base.words.errors import AlreadyExists, Archived
from tierfs.base.words.storage_classes import is_restored_first
from tierfs.engine.chunkstore.memory import MemoryStorage
from tierfs.engine.chunkstore.protocol import (
    ChunkStorage,
    ComposedObject,
    ObjectPiece,
    OnReceived,
    Source,
    StoredObject,
    Thaw,
    ThawSpeed,
)
from tierfs.engine.chunkstore.validate import is_own
from tierfs.engine.chunkstore.wrappers import Wrapped

_RESTORE_MS = 20_000
"""Until a requested object is back."""

_DAY_MS = 100_000
"""Of this bucket: a life has no time for longer ones."""


class ClassedStorage(MemoryStorage):
    """MemoryStorage whose objects have a class, as S3 has it. Its days are short."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self._now_ms = clock.now_ms
        self._of_new = threading.local()
        self._asked: dict[str, tuple[int, int]] = {}
        """By name, from when until when an object that was requested back can be read."""
        self.proves = True
        """Whether the answer to a copy proves it."""

    @property
    def class_of_new(self) -> str:
        """The class of objects that this thread stores now."""
        return getattr(self._of_new, "name", "")

    @contextmanager
    def keeping_as(self, storage_class: str) -> Iterator[None]:
        """Give objects that this thread stores in the block a class."""
        before, self._of_new.name = self.class_of_new, storage_class
        try:
            yield
        finally:
            self._of_new.name = before

    def put(
        self, name: str, source: Source, *, metadata: Mapping[str, str] | None = None, create_only: bool = True
    ) -> StoredObject:
        super().put(name, source, metadata=metadata, create_only=create_only)
        return self._keep(name)

    def compose(
        self,
        name: str,
        pieces: Sequence[ObjectPiece],
        *,
        metadata: Mapping[str, str] | None = None,
        create_only: bool = True,
    ) -> ComposedObject:
        try:
            super().compose(name, pieces, metadata=metadata, create_only=create_only)
        except AlreadyExists:  # as of S3: perhaps by a copy of this attempt that proved nothing
            present = super().stat(name)
            if not is_own(present, metadata or {}, sum(piece.length_bytes for piece in pieces)):
                raise
            return ComposedObject.of(present)
        return ComposedObject.of(self._keep(name))

    def copy_proved(self, name: str, piece: ObjectPiece, crc32c: int | None, metadata: Mapping[str, str]) -> str | None:
        """See ProvedCopies."""
        etag = self.compose(name, [piece], metadata=metadata, create_only=False).etag
        return etag if self.proves else None

    def thaw(self, name: str, days: int, speed: ThawSpeed) -> bool:
        """See Thaws."""
        if not is_restored_first(self._get(name).stored.storage_class):
            return False
        ready_ms = self._asked[name][0] if self._state(name) is not None else self._now_ms() + _RESTORE_MS
        self._asked[name] = ready_ms, max(ready_ms, self._now_ms()) + days * _DAY_MS
        return True

    def stat(self, name: str) -> StoredObject:
        return replace(super().stat(name), thaw=self._state(name))

    def read_into(
        self,
        name: str,
        offset: int,
        buffer: memoryview,
        *,
        if_match: str | None = None,
        progress: OnReceived | None = None,
    ) -> None:
        self._require_readable(name)
        super().read_into(name, offset, buffer, if_match=if_match, progress=progress)

    def is_frozen(self, name: str) -> bool:
        """Return whether an object is there and cannot be read now."""
        held, state = self.objects.get(name), self._state(name)
        if held is None or not is_restored_first(held.stored.storage_class):
            return False
        return state is None or not state.is_done

    @property
    def freezes(self) -> bool:
        """Whether there are such objects."""
        return any(self.is_frozen(name) for name in list(self.objects))

    def apply_rule(self, names: Iterable[str], storage_class: str) -> None:
        """Let a lifecycle rule of the bucket change the class of objects, which stay the same."""
        for name in names:
            held = self.objects[name]
            self.objects[name] = replace(held, stored=replace(held.stored, storage_class=storage_class))
            self._asked.pop(name, None)

    def _state(self, name: str) -> Thaw | None:
        ready_ms, until_ms = self._asked.get(name, (0, 0))
        if self._now_ms() >= until_ms:
            return None
        return Thaw(until_ms if self._now_ms() >= ready_ms else 0)

    def _keep(self, name: str) -> StoredObject:
        self.apply_rule([name], self.class_of_new)
        return self.objects[name].stored

    def bytes_of(self, piece: ObjectPiece) -> bytes:
        self._require_readable(piece.name)
        return super().bytes_of(piece)

    def _require_readable(self, name: str) -> None:
        if self.is_frozen(name):
            raise Archived(f"{name} is in the archive", remedy="run: tierfs thaw")


class InClass(Wrapped):
    """A storage around a ClassedStorage, whose new objects get a class."""

    def __init__(self, inner: ChunkStorage, bucket: ClassedStorage, storage_class: str) -> None:
        super().__init__(inner)
        self._bucket = bucket
        self._storage_class = storage_class

    def put(
        self, name: str, source: Source, *, metadata: Mapping[str, str] | None = None, create_only: bool = True
    ) -> StoredObject:
        with self._bucket.keeping_as(self._storage_class):
            return super().put(name, source, metadata=metadata, create_only=create_only)

    def compose(
        self,
        name: str,
        pieces: Sequence[ObjectPiece],
        *,
        metadata: Mapping[str, str] | None = None,
        create_only: bool = True,
    ) -> ComposedObject:
        with self._bucket.keeping_as(self._storage_class):
            return super().compose(name, pieces, metadata=metadata, create_only=create_only)

    def copy_proved(self, name: str, piece: ObjectPiece, crc32c: int | None, metadata: Mapping[str, str]) -> str | None:
        with self._bucket.keeping_as(self._storage_class):
            return super().copy_proved(name, piece, crc32c, metadata)
