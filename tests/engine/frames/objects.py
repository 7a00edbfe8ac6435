"""Compressed objects for tests: plain bytes, frames of any size, and the object that they make."""

from __future__ import annotations

import random

from tierfs.base.bytes.checksum import Buffer
from tierfs.base.words.types import CRC_BLOCK_BYTES
from tierfs.engine.frames.seek_table import FrameSize, seek_table
from tierfs.engine.frames.zstd import compressed, decompress_into

LEVEL = 3


def text(size_bytes: int) -> bytes:
    """Return lines like those of an access log."""
    chance = random.Random(size_bytes)
    line = b'10.0.%d.%d - - [30/Nov/2026:01:41:29 +0000] "GET /a/%d HTTP/1.1" 200 %d\n'
    lines = bytearray()
    while len(lines) < size_bytes:
        lines += line % (chance.randrange(256), chance.randrange(256), chance.randrange(999), chance.randrange(99999))
    return bytes(lines[:size_bytes])


def unpacked(stored: Buffer, size_bytes: int) -> bytes:
    """Return what frames have."""
    into = bytearray(size_bytes)
    decompress_into(memoryview(stored), memoryview(into))
    return bytes(into)


def compressed_object(plain: bytes, frame_bytes: int = CRC_BLOCK_BYTES) -> bytes:
    """Return frames and their seek table."""
    parts = [plain[at : at + frame_bytes] for at in range(0, len(plain), frame_bytes)]
    frames = [compressed(part, LEVEL) for part in parts]
    sizes = [FrameSize(len(frame), len(part)) for frame, part in zip(frames, parts, strict=True)]
    return b"".join(frames) + seek_table(sizes)
