"""Frames: every size there and back, in any thread, and the refusal of everything else."""

from __future__ import annotations

import io
import random
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.engine.frames.objects import LEVEL, text, unpacked
from tierfs.base.system.extras import MissingPackage
from tierfs.base.words.errors import DataLoss
from tierfs.base.words.types import CRC_BLOCK_BYTES
from tierfs.engine.frames import zstd
from tierfs.engine.frames.zstd import WINDOW_LIMIT_BYTES, compressed

MAGIC = bytes.fromhex("28b52ffd")
HUNDRED = text(100)
RAW_100 = (1 | 100 << 3).to_bytes(3, "little") + HUNDRED
"""A last block that is not compressed."""


def without_size(window: int) -> bytes:
    """Return a frame that has its window, and not its size."""
    return MAGIC + bytes([0x00, window]) + RAW_100


def with_window(window: int) -> bytes:
    """Return a frame that has its window and its size."""
    return MAGIC + bytes([0x80, window, 100, 0, 0, 0]) + RAW_100


@pytest.mark.parametrize("size", [0, 1, CRC_BLOCK_BYTES - 1, CRC_BLOCK_BYTES, CRC_BLOCK_BYTES + 1, 3 << 20])
@pytest.mark.parametrize("level", [1, 3, 9])
def test_every_size_comes_back(size: int, level: int) -> None:
    data = text(size)
    assert unpacked(compressed(data, level), size) == data


@pytest.mark.parametrize("size", [255, 256, 257, 65535, 65536 + 255, 65536 + 256])
def test_every_width_of_the_size_is_read(size: int) -> None:
    data = text(size)
    assert unpacked(compressed(data, LEVEL), size) == data


def test_bytes_that_cannot_be_packed_come_back() -> None:
    data = random.Random(1).randbytes(CRC_BLOCK_BYTES)
    assert unpacked(compressed(data, LEVEL), len(data)) == data


def test_frames_fill_the_buffer_one_after_the_other() -> None:
    parts = [text(size) for size in (CRC_BLOCK_BYTES, 0, 1, CRC_BLOCK_BYTES)]
    stored = b"".join(compressed(part, LEVEL) for part in parts)
    assert unpacked(stored, sum(map(len, parts))) == b"".join(parts)


def test_threads_do_not_share_what_they_unpack_with() -> None:
    def there_and_back(size: int) -> bool:
        data = text(size)
        return all(unpacked(compressed(data, level), size) == data for level in (1, 2, 3))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(there_and_back, range(50_000, 50_100)))


def test_the_library_is_loaded_with_the_first_frame() -> None:
    script = "import sys, tierfs.engine.frames.zstd; assert 'zstandard' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.parametrize(
    "use",
    [
        lambda frame: compressed(HUNDRED, LEVEL),
        lambda frame: unpacked(frame, len(HUNDRED)),
        lambda frame: zstd.decompress(frame, len(HUNDRED)),
        lambda frame: zstd.Unpacking(io.BytesIO(frame)),
    ],
)
def test_without_the_library_the_error_names_it(
    use: Callable[[bytes], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = compressed(HUNDRED, LEVEL)
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with (
        ThreadPoolExecutor(1) as pool,  # a new thread has loaded nothing of the library
        pytest.raises(MissingPackage, match="zstd compression needs the package zstandard, which is not installed"),
    ):
        pool.submit(use, frame).result()


@pytest.mark.parametrize("size", [0, CRC_BLOCK_BYTES - 1, CRC_BLOCK_BYTES + 1, 2 * CRC_BLOCK_BYTES])
def test_frames_that_do_not_fill_the_buffer_are_refused(size: int) -> None:
    stored = compressed(text(CRC_BLOCK_BYTES), LEVEL)
    with pytest.raises(DataLoss, match="damaged: they have"):
        unpacked(stored, size)


@pytest.mark.parametrize("size", [1, 100, CRC_BLOCK_BYTES])
def test_a_frame_that_is_cut_is_refused(size: int) -> None:
    """The library itself does not miss the last bytes."""
    stored = compressed(text(size), LEVEL)
    for kept in range(max(1, len(stored) - 200), len(stored)):
        with pytest.raises(DataLoss):
            unpacked(stored[:kept], size)


@pytest.mark.parametrize("more", ["00", "28b52ffd", "28b52ffd2400", "5e2a4d18 00000000", "22b52ffd 240001000099e9d851"])
def test_other_bytes_after_the_frames_are_refused(more: str) -> None:
    with pytest.raises(DataLoss):
        unpacked(compressed(HUNDRED, LEVEL) + bytes.fromhex(more), 100)


def test_readers_compare_their_own_checksum_and_not_that_of_the_frame() -> None:
    stored = bytearray(compressed(bytes(range(256)), LEVEL))
    stored[-1] ^= 1
    before = bytes(stored)
    assert unpacked(stored, 256) == bytes(range(256))
    assert stored == before, "other threads may read them"


@pytest.mark.parametrize(
    ("stored", "why"),
    [
        (MAGIC + b"\x61\0\0" + b"\0\0\0" + RAW_100, "dictionary"),
        (MAGIC + b"\x28\x64" + RAW_100, "dictionary, or no content size"),  # the reserved bit
        (without_size(0), "no content size"),
        (with_window(0x69), f"more than {WINDOW_LIMIT_BYTES}"),
        (with_window(0xFF), f"more than {WINDOW_LIMIT_BYTES}"),
        (MAGIC + b"\x20\x64" + bytes([7, 0, 0]), "reserved type"),
    ],
)
def test_a_frame_that_tierfs_would_not_write_is_refused(stored: bytes, why: str) -> None:
    with pytest.raises(DataLoss, match=why):
        unpacked(stored, 100)


def test_the_largest_window_is_read() -> None:
    assert unpacked(with_window(0x68), 100) == HUNDRED


def test_a_frame_with_more_than_it_says_does_not_write_after_its_end() -> None:
    says_99 = MAGIC + bytes([0x20, 99]) + RAW_100
    says_101 = MAGIC + bytes([0x20, 101]) + RAW_100
    for stored in (says_99 + says_101, says_101 + says_99):
        into = bytearray(b"\xaa" * 300)
        with pytest.raises(DataLoss):
            unpacked(stored, 200)
        assert into == b"\xaa" * 300
