"""Small JSON objects of the bucket that programs and people read. They are untrusted, and none of them is long."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tierfs.base.words.errors import NotFound
from tierfs.engine.chunkstore.protocol import BufferSource, ChunkStorage

# Of hosts, addresses and a few numbers: a fraction of it.
_MAX_BYTES = 4096


def read_bytes(storage: ChunkStorage, name: str) -> bytes | None:
    """Return the first bytes of a note, which are all; None for a missing one. Raises what the storage raises."""
    try:
        buffer = bytearray(min(storage.stat(name).length_bytes, _MAX_BYTES))
        if buffer:
            storage.read_into(name, 0, memoryview(buffer))
    except NotFound:
        return None
    return bytes(buffer)


def read(storage: ChunkStorage, name: str) -> Any:
    """Return the content of a note; None for one that is missing, is no JSON, or is cut because it is too long.

    Raises what the storage raises.
    """
    data = read_bytes(storage, name)
    try:
        return None if data is None else json.loads(data)
    except (ValueError, RecursionError):
        return None


def source(fields: Mapping[str, object]) -> BufferSource:
    """Return a note as the bytes of an object."""
    return BufferSource(json.dumps(fields, indent=2).encode() + b"\n")
