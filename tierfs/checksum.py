"""CRC32C: one polynomial for every byte tierfs stores (awscrt: 45-60 GB/s, and it can combine)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, TypeAlias

from tierfs.types import CRC_BLOCK_BYTES

Buffer: TypeAlias = bytes | bytearray | memoryview
"""Contiguous bytes."""


@cache
def _crt() -> Any:
    """The library, loaded with the first bytes: commands that only look need not wait 0.1 s for its self-tests."""
    from awscrt import checksums

    return checksums


def crc32c(data: Buffer, previous: int = 0) -> int:
    """CRC32C of `data`, continuing from `previous` (0 for none)."""
    return int(_crt().crc32c(data, previous))


def combine(crc_a: int, crc_b: int, length_b_bytes: int) -> int:
    """CRC32C of A followed by B, from the CRCs of both and the length of B."""
    return int(_crt().combine_crc32c(crc_a, crc_b, length_b_bytes))


def block_crcs(data: Buffer) -> list[int]:
    """CRC32C of each 128 KiB block of `data`, whose first byte lies on the grid; the last may be shorter."""
    view = memoryview(data)
    return [crc32c(view[at : at + CRC_BLOCK_BYTES]) for at in range(0, len(view), CRC_BLOCK_BYTES)]


def whole_crc(blocks: Sequence[int], length_bytes: int) -> int:
    """CRC32C of all the bytes behind a grid of block CRCs, without reading them."""
    whole = 0
    for index, block in enumerate(blocks):
        start = index * CRC_BLOCK_BYTES
        whole = combine(whole, block, min(CRC_BLOCK_BYTES, length_bytes - start))
    return whole
