"""Times of the bytes of one object: stretches of neighbouring bytes, each with times between which they were appended.

An object has at most MAX_STRETCHES of them. Of more, the neighbours with the fewest bytes together become one, so that
none gets much coarser than the others. A time before which no byte was appended may be unknown (0): of bytes that an
older version of tierfs stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import reduce
from itertools import accumulate, groupby, pairwise

from tierfs.base.bytes.frozen import dataclass

# Some 200 bytes of an object's record; an object of 64 MiB is then known in steps of some 4 MiB.
MAX_STRETCHES = 16

# Looking for the smallest neighbours takes time by the square of their number: of more than twice so many stretches,
# those that have less than such a part of the bytes together become one at once.
_PARTS = 4 * MAX_STRETCHES


@dataclass(frozen=True, slots=True)
class TimedBytes:
    """Neighbouring bytes of an object."""

    length_bytes: int
    first_ms: int
    """All were appended at this time or later; 0 = unknown."""
    written_ms: int
    """All were appended at this time or earlier."""

    @classmethod
    def between(cls, length_bytes: int, first_ms: int, written_ms: int) -> TimedBytes:
        """Return bytes of two times of a clock that may have been set back in between."""
        return cls(length_bytes, min(first_ms, written_ms), written_ms)

    def then(self, other: TimedBytes) -> TimedBytes:
        """Return these bytes and those that follow as one stretch."""
        first_ms = min(self.first_ms, other.first_ms)  # 0 where one is unknown
        return TimedBytes(self.length_bytes + other.length_bytes, first_ms, max(self.written_ms, other.written_ms))


@dataclass(frozen=True, slots=True, kw_only=True)
class ByteTimes:
    """The stretches of one object, as its record has them: three numbers of each."""

    ends: tuple[int, ...] = ()
    """Offsets in the object."""
    first_ms: tuple[int, ...] = ()
    written_ms: tuple[int, ...] = ()

    @classmethod
    def of(cls, stretches: Iterable[TimedBytes]) -> ByteTimes:
        """Return the record of an object that begins with these bytes."""
        kept = list(_joined(stretches))
        if len(kept) > 2 * _PARTS:
            kept = list(_coarser(kept))
        while len(kept) > MAX_STRETCHES:
            sizes = [left.length_bytes + right.length_bytes for left, right in pairwise(kept)]
            at = sizes.index(min(sizes))
            kept[at : at + 2] = [kept[at].then(kept[at + 1])]
        return cls(
            ends=tuple(accumulate(each.length_bytes for each in kept)),
            first_ms=tuple(each.first_ms for each in kept),
            written_ms=tuple(each.written_ms for each in kept),
        )

    def stretches(self, start: int = 0, end: int | None = None) -> Iterator[TimedBytes]:
        """Yield the bytes in [start, end) of the object as far as their times are known, cut at both."""
        at = 0
        for after, first_ms, written_ms in zip(self.ends, self.first_ms, self.written_ms, strict=False):
            held = min(after, after if end is None else end) - max(at, start)
            if held > 0:
                yield TimedBytes(held, first_ms, written_ms)
            at = after

    def grown(self, length_bytes: int, created_ms: int, now_ms: int) -> ByteTimes:
        """Return those of a file, begun at a time, that is appended to now; the clock may have been set back."""
        first_ms, written_ms = min((created_ms, now_ms, *self.first_ms)), max((now_ms, *self.written_ms))
        return ByteTimes(ends=(length_bytes,), first_ms=(first_ms,), written_ms=(written_ms,))

    def until(self, now_ms: int) -> ByteTimes:
        """Return the same with no time later than `now_ms`."""
        first_ms, written_ms = (tuple(min(each, now_ms) for each in some) for some in (self.first_ms, self.written_ms))
        return ByteTimes(ends=self.ends, first_ms=first_ms, written_ms=written_ms)

    def is_sound(self, length_bytes: int | None = None) -> bool:
        """Return whether the stretches follow each other, in an object of this length, with times in order."""
        count = len(self.ends)
        if not count == len(self.first_ms) == len(self.written_ms) <= MAX_STRETCHES:
            return False
        ascending = all(start < end for start, end in pairwise((0, *self.ends)))
        ordered = all(first <= written for first, written in zip(self.first_ms, self.written_ms, strict=True))
        fits = not count or length_bytes is None or self.ends[-1] <= length_bytes
        return ascending and ordered and fits


# Of most objects of older versions; records share it.
NO_TIMES = ByteTimes()


def _joined(stretches: Iterable[TimedBytes]) -> Iterator[TimedBytes]:
    """Yield stretches that have bytes, neighbours of the same times as one."""
    with_bytes = (each for each in stretches if each.length_bytes)
    for _, same in groupby(with_bytes, key=lambda each: (each.first_ms, each.written_ms)):
        yield reduce(TimedBytes.then, same)


def _coarser(stretches: list[TimedBytes]) -> Iterator[TimedBytes]:
    """Yield neighbours as one as long as they have at most one of _PARTS of the bytes: twice as many at the most."""
    most_bytes = sum(each.length_bytes for each in stretches) // _PARTS
    waiting = stretches[0]
    for each in stretches[1:]:
        if waiting.length_bytes + each.length_bytes <= most_bytes:
            waiting = waiting.then(each)
        else:
            yield waiting
            waiting = each
    yield waiting
