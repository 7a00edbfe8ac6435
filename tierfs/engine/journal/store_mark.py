"""The mark of a store: the object `tierfs-store` at the root of a cold location, which names the store.

The journal proves ownership; the mark tells apart two stores whose journals look alike, and a mounted directory from
an empty mount point, and gives `recover --from-objects` the store that it rebuilds. Its bytes are untrusted.

The archive place of a store has the same object, which says so: there it alone proves the place (archive_mark.py).
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import Any

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words.errors import AlreadyExists, DataLoss, NotFound
from tierfs.base.words.names import printable
from tierfs.engine.chunkstore.protocol import BufferSource, ChunkStorage
from tierfs.engine.chunkstore.validate import MARK_NAME
from tierfs.engine.metadata.records import RECORD_VERSION, StoreRecord

# Also a key of the object's user metadata, which saves a read of its bytes where a copy kept it.
_STORE_KEY = "store"

_MAX_BYTES = 4096
_ID = re.compile(r"[0-9a-f]{32}")
_UNKNOWN = "1970-01-01T00:00:00Z"
_NOTE = "cold tier of a tierfs store; leave this object here"
_ARCHIVE_NOTE = "archive place of a tierfs store; leave this object here"

# Key of what a place is, if it is not a cold tier.
_ROLE_KEY, _ARCHIVE = "role", "archive"
_MS_PER_S = 1000


@dataclass(frozen=True, slots=True)
class StoreMark:
    """The store to which a cold location belongs."""

    store_id: str
    format: int = RECORD_VERSION
    created_ms: int = 0
    """Time the store was made; 0 = unknown."""
    is_archive: bool = False
    """Whether the location is the store's archive place."""


def mark_of(store: StoreRecord) -> StoreMark:
    """Return the mark that a store puts into its cold tier."""
    return StoreMark(store.store_id, created_ms=store.created_ms)


def read(storage: ChunkStorage) -> StoreMark | None:
    """Return the mark of a location, or None. Raises DataLoss for a mark that cannot be read."""
    try:
        stat = storage.stat(MARK_NAME)
        if stat.length_bytes > _MAX_BYTES:
            raise _damaged(f"it has {stat.length_bytes} bytes")
        buffer = bytearray(stat.length_bytes)
        storage.read_into(MARK_NAME, 0, memoryview(buffer))
    except NotFound:
        return None
    return _parsed(bytes(buffer))


def read_store_id(storage: ChunkStorage) -> str | None:
    """Return the store of the mark, by one small request where the user metadata survived; otherwise as `read`."""
    try:
        store_id = storage.stat(MARK_NAME).metadata.get(_STORE_KEY)
    except NotFound:
        return None
    if store_id is not None and _is_id(store_id):
        return store_id
    mark = read(storage)
    return None if mark is None else mark.store_id


def is_there(storage: ChunkStorage) -> bool:
    """Return whether a location is marked, by any store."""
    try:
        storage.stat(MARK_NAME)
    except NotFound:
        return False
    return True


def write_mark(storage: ChunkStorage, mark: StoreMark) -> None:
    """Mark a location, create-only; a mark of the same store is success. Raises AlreadyExists for any other."""
    try:
        _put(storage, mark, create_only=True)
    except AlreadyExists:
        if read_store_id(storage) != mark.store_id:
            raise


def replace(storage: ChunkStorage, mark: StoreMark) -> None:
    """Mark a location whose owner its journal proved, over a mark that is damaged or another store's."""
    _put(storage, mark, create_only=False)


def _put(storage: ChunkStorage, mark: StoreMark, *, create_only: bool) -> None:
    created = datetime.fromtimestamp(mark.created_ms / _MS_PER_S, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    fields = {"tierfs": _NOTE, _STORE_KEY: mark.store_id, "format": mark.format, "created": created}
    if mark.is_archive:
        fields |= {"tierfs": _ARCHIVE_NOTE, _ROLE_KEY: _ARCHIVE}
    data = json.dumps(fields, indent=2).encode() + b"\n"
    storage.put(MARK_NAME, BufferSource(data), metadata={_STORE_KEY: mark.store_id}, create_only=create_only)


def _parsed(data: bytes) -> StoreMark:
    """Return the mark in untrusted bytes. Raises DataLoss unless they have the right form."""
    try:
        fields: Any = json.loads(data)
        store_id, version = fields[_STORE_KEY], fields.get("format", RECORD_VERSION)
        created = datetime.fromisoformat(fields.get("created", _UNKNOWN))
        created_ms = round(created.timestamp() * _MS_PER_S)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as exc:
        raise _damaged("it is not a JSON object with a store id") from exc
    if not isinstance(store_id, str) or not _is_id(store_id):
        raise _damaged(f"its store {printable(str(store_id))} is not a store id")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise _damaged("its format is not a number")
    return StoreMark(store_id, version, created_ms, fields.get(_ROLE_KEY) == _ARCHIVE)


def _is_id(text: str) -> bool:
    return _ID.fullmatch(text) is not None


def _damaged(why: str) -> DataLoss:
    return DataLoss(f"{MARK_NAME} is damaged: {why}")
