"""The stored form of a source: its bytes in any pieces, in bounded memory, and a source that changes meanwhile."""

from __future__ import annotations

import random

import pytest

from tierfs.base.bytes.checksum import crc32c
from tierfs.base.options.policy import Policy
from tierfs.base.words.errors import Unavailable
from tierfs.base.words.types import CRC_BLOCK_BYTES, Compression
from tierfs.engine.chunkstore.protocol import BufferSource
from tierfs.tiering import compressed_source
from tierfs.tiering.compressed_source import CompressedSource, FrameRoom, compressed

PLAIN = random.Random(1).randbytes(CRC_BLOCK_BYTES) * 20 + b"end"


def source(plain: BufferSource, compression: Compression = Compression.ZSTD) -> CompressedSource:
    made = compressed(plain, Policy(compression=compression, compression_level=1))
    assert made is not None
    return made


@pytest.mark.parametrize("room_bytes", [0, 3 * CRC_BLOCK_BYTES, 1 << 30])
def test_any_piece_has_the_same_bytes_whatever_was_kept(monkeypatch: pytest.MonkeyPatch, room_bytes: int) -> None:
    whole = source(BufferSource(PLAIN))
    expected = bytes(whole.read(0, whole.length_bytes))
    whole.close()
    monkeypatch.setattr(compressed_source, "ROOM", FrameRoom(room_bytes))
    made, chance = source(BufferSource(PLAIN)), random.Random(room_bytes)
    assert (crc32c(expected), len(expected)) == (made.crc32c, made.length_bytes)
    for _ in range(20):
        start = chance.randrange(made.length_bytes)
        length = chance.randrange(made.length_bytes - start + 1)
        assert made.read(start, length) == expected[start : start + length]
    made.close()
    assert compressed_source.ROOM.left_bytes == room_bytes


def test_frames_are_kept_within_the_room_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    room = FrameRoom(3 * CRC_BLOCK_BYTES)
    monkeypatch.setattr(compressed_source, "ROOM", room)
    made = source(BufferSource(PLAIN))
    assert 0 <= room.left_bytes < 2 * CRC_BLOCK_BYTES
    made.close()
    made.close()
    assert room.left_bytes == 3 * CRC_BLOCK_BYTES


def test_bytes_that_change_while_they_are_sent_are_refused_and_none_is_called_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(compressed_source, "ROOM", FrameRoom(0))
    held = bytearray(PLAIN)
    made = source(BufferSource(held))
    held[-1] ^= 1
    with pytest.raises(Unavailable, match="changed between two reads") as error:
        made.read(0, made.length_bytes)
    assert error.value.remedy == "retry"


def test_a_source_that_does_not_shrink_returns_its_room(monkeypatch: pytest.MonkeyPatch) -> None:
    room = FrameRoom(1 << 20)
    monkeypatch.setattr(compressed_source, "ROOM", room)
    policy = Policy(compression=Compression.AUTO, compression_level=1)
    assert compressed(BufferSource(random.Random(2).randbytes(500_000)), policy) is None
    assert room.left_bytes == 1 << 20
