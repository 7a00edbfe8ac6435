"""Read one whole object of the journal. It is untrusted: its size is checked before memory is allocated for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tierfs.base.words.errors import DataLoss
from tierfs.engine.chunkstore.protocol import ChunkStorage
from tierfs.engine.metadata import frames

T = TypeVar("T")


def read_parsed(
    storage: ChunkStorage, name: str, parse: Callable[[bytes, str], T], length_bytes: int | None = None
) -> T:
    """Return a journal object; see read_small. Raises DataLoss for one that is damaged when it is read again, too."""
    try:
        return parse(read_small(storage, name, length_bytes), name)
    except DataLoss:  # a transfer damages bytes once, a bucket twice (invariant 16)
        return parse(read_small(storage, name, length_bytes), name)


def read_small(storage: ChunkStorage, name: str, length_bytes: int | None = None) -> bytes:
    """Return all bytes of a journal object, whose size is asked for unless a listing told it.

    It is untrusted: it is checked before memory is allocated for it.
    """
    if length_bytes is None:
        length_bytes = storage.stat(name).length_bytes
    frames.check_size(name, length_bytes)
    buffer = memoryview(bytearray(length_bytes))
    if length_bytes:
        storage.read_into(name, 0, buffer)
    return bytes(buffer)
