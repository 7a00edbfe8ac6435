"""The ends of a segment that recoveries left: after each, there may be other bytes than readers saw before. Pure.

A sequence of numbers: of each recovery its number from the commit, and the end of the segment that it found. Both
ascend: an earlier recovery that found more says nothing that the later one does not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

# Some 80 bytes of a record. Of two that become one the number is the later one's, and the end that of the earlier.
MAX_RECOVERIES = 8


def added(before: Sequence[int], number: int, end: int) -> tuple[int, ...]:
    """Return the recoveries with a later one."""
    kept = [(each, known) for each, known in _pairs(before) if known < end]
    kept.append((number, end))
    while len(kept) > MAX_RECOVERIES:
        kept[:2] = [(kept[1][0], kept[0][1])]
    return tuple(value for pair in kept for value in pair)


def end_since(recoveries: Sequence[int], number: int) -> int | None:
    """Return up to where what was read before is still there, if there were recoveries after the one of a number."""
    return next((end for each, end in _pairs(recoveries) if each > number), None)


def last(recoveries: Sequence[int]) -> int:
    """Return the number of the last recovery; 0 for none."""
    return recoveries[-2] if recoveries else 0


def are_sound(recoveries: Sequence[int]) -> bool:
    """Return whether numbers and ends ascend, and are not too many."""
    if len(recoveries) % 2 or len(recoveries) > 2 * MAX_RECOVERIES:
        return False
    return all(list(values) == sorted(set(values)) for values in (recoveries[::2], recoveries[1::2]))


def _pairs(recoveries: Sequence[int]) -> Iterator[tuple[int, int]]:
    return zip(recoveries[::2], recoveries[1::2], strict=True)
