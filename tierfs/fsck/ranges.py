"""Sets of bytes as lists of ranges in order. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tierfs.types import ByteRange


def union(ranges: Iterable[ByteRange]) -> list[ByteRange]:
    """The same bytes, in order, neighbours joined."""
    joined: list[ByteRange] = []
    for one in sorted(ranges):
        if joined and one.start <= joined[-1].end:
            joined[-1] = ByteRange(joined[-1].start, max(joined[-1].end, one.end))
        elif one:
            joined.append(one)
    return joined


def minus(ranges: Iterable[ByteRange], taken: Iterable[ByteRange]) -> Iterator[ByteRange]:
    """What of `ranges` is in none of `taken`."""
    gone = union(taken)
    for one in union(ranges):
        at = one.start
        for other in gone:
            if other.end <= at or other.start >= one.end:
                continue
            if at < other.start:
                yield ByteRange(at, other.start)
            at = max(at, other.end)
        if at < one.end:
            yield ByteRange(at, one.end)
