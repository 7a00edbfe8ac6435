"""Bytes whose place is known: a stream that is the same at each call."""

from __future__ import annotations

import random

REFERENCE = random.Random(1).randbytes(1 << 20).replace(b"\0", b"\1")
"""Never zero, so that a hole shows."""


def reference(start: int, end: int) -> bytes:
    """Bytes [start, end) of the endless reference stream."""
    first = start % len(REFERENCE)
    repeated = REFERENCE * ((first + end - start) // len(REFERENCE) + 1)
    return repeated[first : first + end - start]
