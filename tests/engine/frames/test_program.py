"""The program of zstd reads compressed objects without tierfs, and tierfs what the program writes."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.engine.frames.objects import compressed_object, text, unpacked
from tierfs.base.words.errors import DataLoss
from tierfs.base.words.types import CRC_BLOCK_BYTES
from tierfs.engine.frames.zstd import compressed, decompress_into

SIZES = [0, 1, CRC_BLOCK_BYTES - 1, CRC_BLOCK_BYTES, CRC_BLOCK_BYTES + 1, 3_000_000]


def zstd(*arguments: str | Path) -> bytes:
    """Run the program; return its output."""
    return subprocess.run(["zstd", *map(str, arguments)], check=True, capture_output=True).stdout


def by_program(stored: bytes, path: Path) -> bytes:
    """Return what the program unpacks from an object, after its own test."""
    path.write_bytes(stored)
    zstd("--test", path)
    return zstd("--decompress", "--stdout", path)


@pytest.mark.parametrize("size", SIZES)
def test_the_program_unpacks_an_object(size: int, tmp_path: Path) -> None:
    plain = text(size)
    assert by_program(compressed_object(plain), tmp_path / "chunk.zst") == plain


def test_the_program_unpacks_an_object_that_was_joined(tmp_path: Path) -> None:
    parts = [text(300_000), b"", text(1), text(CRC_BLOCK_BYTES)]
    assert by_program(b"".join(map(compressed_object, parts)), tmp_path / "chunk.zst") == b"".join(parts)


def test_the_program_lists_frames_sizes_and_checksum(tmp_path: Path) -> None:
    """Of every frame it knows the size of the content: the sum is that of the plain bytes."""
    (tmp_path / "chunk.zst").write_bytes(compressed_object(text(3 * CRC_BLOCK_BYTES)))
    listed = zstd("--list", "--verbose", tmp_path / "chunk.zst").decode()
    assert re.search(r"# Zstandard Frames: 3\b", listed)
    assert re.search(r"# Skippable Frames: 1\b", listed)
    assert re.search(rf"Decompressed Size: .*\({3 * CRC_BLOCK_BYTES} B\)", listed)
    assert "Check: XXH64" in listed


def test_the_program_notices_a_byte_that_changed(tmp_path: Path) -> None:
    # A level of its own: a thread keeps what it made for a level, with the settings of then.
    stored = bytearray(compressed(bytes(range(256)), 7))
    stored[100] ^= 1
    (tmp_path / "chunk.zst").write_bytes(stored)
    with pytest.raises(subprocess.CalledProcessError):
        zstd("--test", tmp_path / "chunk.zst")


@pytest.mark.parametrize("options", [(), ("-1",), ("-19",), ("--no-check",)])
def test_frames_of_the_program_are_read(options: tuple[str, ...], tmp_path: Path) -> None:
    plain = text(200_000)
    (tmp_path / "plain").write_bytes(plain)
    assert unpacked(zstd(*options, "--stdout", tmp_path / "plain"), len(plain)) == plain


def test_a_frame_of_the_program_with_a_dictionary_is_refused(tmp_path: Path) -> None:
    for number in range(200):
        (tmp_path / f"sample-{number}").write_bytes(text(1000 + number))
    zstd("--train", *tmp_path.glob("sample-*"), "-o", tmp_path / "dictionary")
    stored = zstd("-D", tmp_path / "dictionary", "--stdout", tmp_path / "sample-1")
    with pytest.raises(DataLoss, match="dictionary"):
        decompress_into(memoryview(stored), memoryview(bytearray(1001)))
