"""Bytes in a frame that zstd skips: a compressed object has them beside its content. Pure."""

from __future__ import annotations

import struct

from tierfs.base.bytes.checksum import Buffer
from tierfs.base.words.errors import DataLoss

# One of sixteen magic numbers for such frames (RFC 8878, section 3.1.2); seek tables have another one.
MAGIC = 0x184D2A50
HEADER = struct.Struct("<II")  # magic number, bytes that follow

HEADER_BYTES = HEADER.size


def skipped(content: bytes, magic: int = MAGIC) -> bytes:
    """Return `content` as a frame that is skipped."""
    return HEADER.pack(magic, len(content)) + content


def content_of(frame: Buffer) -> memoryview:
    """Return the content of a frame that is skipped. Raises DataLoss unless it is exactly one, of these bytes."""
    if len(frame) < HEADER_BYTES or HEADER.unpack_from(frame) != (MAGIC, len(frame) - HEADER_BYTES):
        raise DataLoss(f"no frame of {len(frame)} bytes that zstd skips starts there")
    return memoryview(frame)[HEADER_BYTES:]
