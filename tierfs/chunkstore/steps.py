"""Reading a whole object in steps, as it is now."""

from __future__ import annotations

from collections.abc import Iterator

from tierfs.chunkstore.protocol import ChunkStorage, StoredObject
from tierfs.types import MIB

STEP_BYTES = 8 * MIB
"""Per request, and memory: the size of a part of our own uploads, and a multiple of the checksum grid."""


def read_steps(storage: ChunkStorage, found: StoredObject) -> Iterator[memoryview]:
    """The bytes of one version of an object, in order; each step is valid until the next. Raises EtagDiffers."""
    buffer = memoryview(bytearray(min(STEP_BYTES, found.length_bytes)))
    for start in range(0, found.length_bytes, STEP_BYTES):
        view = buffer[: min(STEP_BYTES, found.length_bytes - start)]
        storage.read_into(found.name, start, view, if_match=found.etag)
        yield view
