"""Sets of bytes as half-open ranges in the order of their starts, and sequences cut into runs. Pure.

Arguments ascend by start unless a function says otherwise; they may touch, overlap or be empty. Results ascend, are
not empty and never touch each other. Everything that can be is streamed, and read no further than the answer needs:
a range may be that of one of a million chunks.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from tierfs.base.words.types import ByteRange

T = TypeVar("T")


def merge(ranges: Iterable[ByteRange]) -> Iterator[ByteRange]:
    """Join ranges that touch or overlap."""
    start = end = 0
    for new in ranges:
        if new.start > end:
            if end > start:
                yield ByteRange(start, end)
            start = new.start
        end = max(end, new.end)
    if end > start:
        yield ByteRange(start, end)


def union(ranges: Iterable[ByteRange]) -> list[ByteRange]:
    """Join ranges in any order."""
    return list(merge(sorted(ranges)))


def add(merged: list[ByteRange], new: ByteRange) -> None:
    """Add a range to merged ones, none of which starts after it: neighbours take no room."""
    if merged and new.start <= merged[-1].end:
        if new.end > merged[-1].end:
            merged[-1] = ByteRange(merged[-1].start, new.end)
    elif new:
        merged.append(new)


def subtract(ranges: Iterable[ByteRange], taken: Iterable[ByteRange]) -> Iterator[ByteRange]:
    """Leave out the bytes that are in any of `taken`."""
    holes = filter(None, taken)
    hole = next(holes, None)
    for whole in merge(ranges):
        at = whole.start
        while hole is not None and hole.start < whole.end:
            if at < hole.start:
                yield ByteRange(at, hole.start)
            at = max(at, hole.end)
            if at >= whole.end:
                break  # the hole may reach into the next range
            hole = next(holes, None)
        if at < whole.end:
            yield ByteRange(at, whole.end)


def intersect(ranges: Iterable[ByteRange], other: Iterable[ByteRange]) -> Iterator[ByteRange]:
    """Keep the bytes that are in both."""
    others = merge(other)
    match = next(others, None)
    for own in merge(ranges):
        while match is not None and match.start < own.end:
            if common := own.intersect(match):
                yield common
            if match.end >= own.end:
                break  # it may reach into the next range
            match = next(others, None)


def gaps(wanted: ByteRange, held: Iterable[ByteRange]) -> Iterator[ByteRange]:
    """Leave out of one range the bytes that are held."""
    return subtract((wanted,), held)


def covers(held: Iterable[ByteRange], wanted: ByteRange) -> bool:
    """Return whether every byte of `wanted` is held."""
    return next(gaps(wanted, held), None) is None


def reach(start: int, held: Iterable[ByteRange]) -> int:
    """Return the first byte from `start` on that is not held."""
    end = start
    for part in held:
        if part.start > end:
            break
        end = max(end, part.end)
    return end


class Cover:
    """Held ranges, compared with many others in turn; reads no further than these reach."""

    def __init__(self, held: Iterable[ByteRange]) -> None:
        self._held = iter(held)
        self._run = ByteRange(0, 0)
        """The newest of the merged ranges, as far as it was read."""

    def missing(self, wanted: ByteRange) -> list[ByteRange]:
        """Return the bytes of `wanted` that are not held. It never begins before the end of the one before."""
        parts: list[ByteRange] = []
        at = wanted.start
        while at < wanted.end:
            if self._run.end > at:
                if self._run.start > at:
                    parts.append(ByteRange(at, min(self._run.start, wanted.end)))
                at = self._run.end
            elif (new := next(self._held, None)) is not None:
                start = self._run.start if new.start <= self._run.end else new.start
                self._run = ByteRange(start, max(self._run.end, new.end))
            else:
                parts.append(ByteRange(at, wanted.end))
                break
        return parts


def groups(items: Iterable[T], size: Callable[[T], int], limit: int, most: int = sys.maxsize) -> Iterator[list[T]]:
    """Cut items into groups of at most `most`, whose sizes sum to at most `limit`; a larger item is alone."""
    group: list[T] = []
    total = 0
    for item in items:
        cost = size(item)
        if group and (total + cost > limit or len(group) == most):
            yield group
            group, total = [], 0
        group.append(item)
        total += cost
    if group:
        yield group


def runs(items: Iterable[T], goes_on: Callable[[Sequence[T], T], bool]) -> Iterator[list[T]]:
    """Cut items into runs: `goes_on` says whether an item belongs to the run before it."""
    run: list[T] = []
    for item in items:
        if run and not goes_on(run, item):
            yield run
            run = []
        run.append(item)
    if run:
        yield run
