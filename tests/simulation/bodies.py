"""What lives write: bytes that do not shrink, or text that does; and a compressed object read without the product."""

from __future__ import annotations

import random
from functools import lru_cache

from zstandard import ZstdDecompressor

_UNIT_BYTES = 3
"""Of a text, which repeats: each has its own, so that bytes in a wrong place are told from the right ones."""

_UNPACKED = 512
"""Objects that are remembered: most are looked at many times, and never change."""


def body(chance: random.Random, size: int, *, is_text: bool) -> bytes:
    """Return bytes to write."""
    if not is_text:
        return chance.randbytes(size)
    unit = chance.randbytes(_UNIT_BYTES)
    return (unit * (size // _UNIT_BYTES + 1))[:size]


@lru_cache(_UNPACKED)
def unpacked(stored: bytes) -> bytes:
    """Return what `zstd -d` makes of an object."""
    return ZstdDecompressor().stream_reader(stored, read_across_frames=True).read()
