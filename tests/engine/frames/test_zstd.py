"""Frames: every size there and back, and what is refused."""

from __future__ import annotations

import random

import pytest

from tierfs.base.words.errors import DataLoss
from tierfs.base.words.types import CRC_BLOCK_BYTES
from tierfs.engine.frames.zstd import compressed, decompress_into

LEVEL = 3


def text(size_bytes: int) -> bytes:
    """Lines like those of an access log."""
    chance = random.Random(size_bytes)
    line = b'10.0.%d.%d - - [30/Nov/2026:01:41:29 +0000] "GET /a/%d HTTP/1.1" 200 %d\n'
    lines = bytearray()
    while len(lines) < size_bytes:
        lines += line % (chance.randrange(256), chance.randrange(256), chance.randrange(999), chance.randrange(99999))
    return bytes(lines[:size_bytes])


def unpacked(stored: bytes, size_bytes: int) -> bytes:
    into = bytearray(size_bytes)
    decompress_into(memoryview(stored), memoryview(into))
    return bytes(into)


@pytest.mark.parametrize("size", [0, 1, CRC_BLOCK_BYTES - 1, CRC_BLOCK_BYTES, CRC_BLOCK_BYTES + 1, 9 << 20])
@pytest.mark.parametrize("level", [1, 3, 19])
def test_every_size_comes_back(size: int, level: int) -> None:
    data = text(size)
    assert unpacked(compressed(data, level), size) == data


def test_frames_fill_the_buffer_one_after_the_other() -> None:
    parts = [text(size) for size in (CRC_BLOCK_BYTES, 0, 1, CRC_BLOCK_BYTES)]
    stored = b"".join(compressed(part, LEVEL) for part in parts)
    assert unpacked(stored, sum(map(len, parts))) == b"".join(parts)


@pytest.mark.parametrize("size", [0, CRC_BLOCK_BYTES - 1, CRC_BLOCK_BYTES + 1, 2 * CRC_BLOCK_BYTES])
def test_frames_that_do_not_fill_the_buffer_are_refused(size: int) -> None:
    stored = compressed(text(CRC_BLOCK_BYTES), LEVEL)
    with pytest.raises(DataLoss, match="damaged: they have"):
        unpacked(stored, size)


@pytest.mark.parametrize("more", [b"\0", b"\x28\xb5\x2f\xfd", b"\x5e\x2a\x4d\x18\0\0\0\0"])
def test_bytes_after_the_frames_are_refused(more: bytes) -> None:
    with pytest.raises(DataLoss):
        unpacked(compressed(text(100), LEVEL) + more, 100)
