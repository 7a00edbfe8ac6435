"""The store's mark: the object `tierfs-store` at the root of a cold location says whose it is.

The journal proves ownership; the mark tells two stores apart whose journals look alike, a mounted directory from
an empty mount point, and `recover --from-objects` which store it rebuilds. A store made before there were marks gets
one from its holder once its journal proved the place to be its own.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from tierfs.chunkstore.checks import MARK_NAME
from tierfs.chunkstore.protocol import BufferSource, ChunkStorage
from tierfs.errors import AlreadyExists, DataLoss, NotFound
from tierfs.metadata.records import RECORD_VERSION, StoreRecord
from tierfs.names import printable

__all__ = ["MARK_NAME", "StoreMark", "is_there", "mark_of", "read", "read_store_id", "replace", "write"]

_STORE_KEY = "store"
"""Also a key of the object's user metadata, which saves a look at its bytes where a copy kept it."""

_MAX_BYTES = 4096
_ID_DIGITS = 32
_UNKNOWN = "1970-01-01T00:00:00Z"
_NOTE = "cold tier of a tierfs store; leave this object here"
_MS_PER_S = 1000


@dataclass(frozen=True, slots=True)
class StoreMark:
    """Whose cold tier it is."""

    store_id: str
    format: int = RECORD_VERSION
    created_ms: int = 0
    """When the store was made; 0 = not known."""


def mark_of(store: StoreRecord) -> StoreMark:
    """The mark that a store puts into its cold tier."""
    return StoreMark(store.store_id, created_ms=store.created_ms)


def read(storage: ChunkStorage) -> StoreMark | None:
    """The mark of a location, None where there is none. Raises DataLoss for one that cannot be read."""
    try:
        found = storage.stat(MARK_NAME)
        if found.length_bytes > _MAX_BYTES:
            raise _damaged(f"it has {found.length_bytes} bytes")
        buffer = bytearray(found.length_bytes)
        storage.read_into(MARK_NAME, 0, memoryview(buffer))
    except NotFound:
        return None
    return _parsed(bytes(buffer))


def read_store_id(storage: ChunkStorage) -> str | None:
    """The store of the mark by one small request where the user metadata survived; otherwise as `read`."""
    try:
        told = storage.stat(MARK_NAME).metadata.get(_STORE_KEY)
    except NotFound:
        return None
    if told is not None and _is_id(told):
        return told
    mark = read(storage)
    return None if mark is None else mark.store_id


def is_there(storage: ChunkStorage) -> bool:
    """Whether a location is marked, by whatever store."""
    try:
        storage.stat(MARK_NAME)
    except NotFound:
        return False
    return True


def write(storage: ChunkStorage, mark: StoreMark) -> None:
    """Mark a location, create-only; a mark of the same store is success. Raises AlreadyExists for any other."""
    try:
        _put(storage, mark, create_only=True)
    except AlreadyExists:
        if read_store_id(storage) != mark.store_id:
            raise


def replace(storage: ChunkStorage, mark: StoreMark) -> None:
    """Mark a location whose journal proved whose it is, over a mark that is damaged or another's."""
    _put(storage, mark, create_only=False)


def _put(storage: ChunkStorage, mark: StoreMark, *, create_only: bool) -> None:
    created = datetime.fromtimestamp(mark.created_ms / _MS_PER_S, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    fields = {"tierfs": _NOTE, _STORE_KEY: mark.store_id, "format": mark.format, "created": created}
    data = json.dumps(fields, indent=2).encode() + b"\n"
    storage.put(MARK_NAME, BufferSource(data), metadata={_STORE_KEY: mark.store_id}, create_only=create_only)


def _parsed(data: bytes) -> StoreMark:
    """What is in a bucket is hostile: only what has the right form counts."""
    try:
        fields: Any = json.loads(data)
        store_id, version = fields[_STORE_KEY], fields.get("format", RECORD_VERSION)
        created = datetime.fromisoformat(fields.get("created", _UNKNOWN))
        created_ms = round(created.timestamp() * _MS_PER_S)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as exc:
        raise _damaged("it is no JSON object that names a store") from exc
    if not isinstance(store_id, str) or not _is_id(store_id):
        raise _damaged(f"its store {printable(str(store_id))} is no id of a store")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise _damaged("its format is no number")
    return StoreMark(store_id, version, created_ms)


def _is_id(text: str) -> bool:
    return len(text) == _ID_DIGITS and all(digit in "0123456789abcdef" for digit in text)


def _damaged(why: str) -> DataLoss:
    return DataLoss(f"{MARK_NAME} is damaged: {why}")
