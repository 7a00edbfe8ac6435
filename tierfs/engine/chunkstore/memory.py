"""Objects in a dictionary: the reference provider, for tests and for trying things out."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.system.clock import Clock, SystemClock
from tierfs.base.words.errors import AlreadyExists, NotFound
from tierfs.base.words.names import printable
from tierfs.engine.chunkstore import validate
from tierfs.engine.chunkstore.protocol import (
    BufferSource,
    ComposedObject,
    ObjectPiece,
    OnReceived,
    Source,
    StoredObject,
)


@dataclass(frozen=True, slots=True)
class ObjectInMemory:
    """One object: its description and its bytes."""

    stored: StoredObject
    data: bytes


class MemoryStorage:
    """ChunkStorage in memory. Thread-safe; everything is lost with the process."""

    def __init__(self, clock: Clock | None = None, objects: Mapping[str, ObjectInMemory] | None = None) -> None:
        """Begin with a copy of `objects`, if they are given."""
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self.objects: dict[str, ObjectInMemory] = dict(objects or {})
        """By name. Changed from outside, they are what a bucket becomes behind its store's back."""
        self._closed = False

    def __repr__(self) -> str:
        return "memory"

    def put(
        self, name: str, source: Source, *, metadata: Mapping[str, str] | None = None, create_only: bool = True
    ) -> StoredObject:
        validate.check_name(name)
        validate.check_metadata(metadata or {})
        held = self._copy(name, source, metadata or {})
        with self._lock:
            validate.check_open(self._closed, self)
            if create_only and name in self.objects:
                raise AlreadyExists(f"{printable(name)}: already exists")
            self.objects[name] = held
        return held.stored

    def compose(
        self,
        name: str,
        pieces: Sequence[ObjectPiece],
        *,
        metadata: Mapping[str, str] | None = None,
        create_only: bool = True,
    ) -> ComposedObject:
        validate.check_pieces(name, pieces)
        data = b"".join(self.bytes_of(piece) for piece in pieces)
        source = BufferSource(data)
        return ComposedObject.of(MemoryStorage.put(self, name, source, metadata=metadata, create_only=create_only))

    def read_into(
        self,
        name: str,
        offset: int,
        buffer: memoryview,
        *,
        if_match: str | None = None,
        progress: OnReceived | None = None,
    ) -> None:
        held = self._get(name)
        validate.check_etag(name, held.stored.etag, if_match, held.stored.length_bytes)
        validate.check_range(held.stored, offset, len(buffer))
        for start in range(0, len(buffer), validate.STEP_BYTES):
            end = min(start + validate.STEP_BYTES, len(buffer))
            buffer[start:end] = held.data[offset + start : offset + end]
            if progress is not None:
                progress(end)

    def stat(self, name: str) -> StoredObject:
        return self._get(name).stored

    def delete(self, name: str) -> None:
        validate.check_name(name)
        with self._lock:
            validate.check_open(self._closed, self)
            self.objects.pop(name, None)

    def list(self, prefix: str, *, after: str = "") -> Iterator[StoredObject]:
        """See ChunkStorage.list; a snapshot taken at the call."""
        with self._lock:
            validate.check_open(self._closed, self)
            wanted = [held.stored for name, held in self.objects.items() if name.startswith(prefix)]
        # Code point order is UTF-8 order.
        ascending = sorted((stored for stored in wanted if stored.name > after), key=lambda stored: stored.name)
        return (replace(stored, metadata={}) for stored in ascending)

    def close(self) -> None:
        self._closed = True

    def bytes_of(self, piece: ObjectPiece) -> bytes:
        """Return the bytes of a piece. Raises NotFound, EtagDiffers, DataLoss and InvalidRequest as a read does."""
        held = self._get(piece.name)
        validate.check_etag(piece.name, held.stored.etag, piece.etag, held.stored.length_bytes)
        validate.check_range(held.stored, piece.offset, piece.length_bytes)
        return held.data[piece.offset : piece.offset + piece.length_bytes]

    def _copy(self, name: str, source: Source, metadata: Mapping[str, str]) -> ObjectInMemory:
        pieces = bytearray()
        for offset in range(0, source.length_bytes, validate.STEP_BYTES):
            pieces += validate.read_source(name, source, offset, min(validate.STEP_BYTES, source.length_bytes - offset))
        data = bytes(pieces)
        etag = hashlib.md5(data, usedforsecurity=False).hexdigest()
        return ObjectInMemory(StoredObject(name, len(data), etag, self._clock.now_ms(), dict(metadata)), data)

    def _get(self, name: str) -> ObjectInMemory:
        validate.check_name(name)
        with self._lock:
            validate.check_open(self._closed, self)
            held = self.objects.get(name)
        if held is None:
            raise NotFound(f"{printable(name)}: not found")
        return held
