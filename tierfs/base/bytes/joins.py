"""Where a segment's bytes come from that `concat` appended, for readers who read them in the segment of before.

Bounded, as each append writes the segment's record: past MAX_JOINS the two oldest become one of several sources, of
which only the births are known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import pairwise

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words.types import ByteRange, SegmentId

# Some 2 KiB of a record. A stream that follows sees each concat; only one that lags meets older ones.
MAX_JOINS = 32

_NUMBERS = 6


@dataclass(frozen=True, slots=True)
class Join:
    """Bytes of a segment that were another segment's."""

    start: int
    end: int
    source_id: SegmentId
    birth: int
    """Of the source; of several the first one's."""
    last_birth: int
    source_start: int
    """Offset of the first of these bytes in the source."""
    name: str
    """Full name of the source; empty for several."""
    unsealed_id: int = 0
    """Number from the commit that unsealed the source last; the last one of several."""
    recoveries: tuple[int, ...] = ()
    """Of the source, whose offsets these ends are; of several the last number, and 0: where, is not known any more."""

    @property
    def is_of_several(self) -> bool:
        """Return whether several sources stand for one."""
        return not self.name

    @property
    def range(self) -> ByteRange:
        """The bytes in the segment."""
        return ByteRange(self.start, self.end)

    @property
    def source_end(self) -> int:
        """Final length of the source."""
        return self.source_start + self.end - self.start

    def moved(self, by: int) -> Join:
        """Return the same bytes in a segment where they lie elsewhere."""
        return replace(self, start=self.start + by, end=self.end + by)

    def behind(self, offset: int) -> Join:
        """Return the part that begins at an offset, or all of a join that begins there or later."""
        by = max(0, offset - self.start)
        return replace(self, start=self.start + by, source_start=self.source_start + by)

    def with_next(self, other: Join) -> Join:
        """Return this one and a later one as one of several sources."""
        births = (self.birth, self.last_birth, other.birth, other.last_birth)
        unsealed_id = max(self.unsealed_id, other.unsealed_id)
        recovered = (*self.recoveries[-2:-1], *other.recoveries[-2:-1])
        return replace(
            self,
            end=max(self.end, other.end),
            birth=min(births),
            last_birth=max(births),
            name="",
            unsealed_id=unsealed_id,
            recoveries=(max(recovered), 0) if recovered else (),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Joins:
    """The joins of one segment, as its record has them: six numbers and a name each."""

    numbers: tuple[int, ...] = ()
    names: tuple[str, ...] = ()
    unsealed_ids: tuple[int, ...] = ()
    """One for each, or none where all are 0."""
    recoveries: tuple[int, ...] = ()
    """Of each the number of its values, and these; none where no source was recovered."""

    @classmethod
    def of(cls, joins: Iterable[Join]) -> Joins:
        """Return the record of joins, the oldest ones as one if there are too many."""
        kept = sorted(joins, key=lambda join: (join.start, join.end))
        while len(kept) > MAX_JOINS:
            kept[:2] = [kept[0].with_next(kept[1])]
        numbers = [
            number
            for join in kept
            for number in (join.start, join.end, join.source_id, join.birth, join.last_birth, join.source_start)
        ]
        unsealed_ids = tuple(join.unsealed_id for join in kept)
        recovered = _flat(join.recoveries for join in kept)
        return cls(
            numbers=tuple(numbers),
            names=tuple(join.name for join in kept),
            unsealed_ids=unsealed_ids if any(unsealed_ids) else (),
            recoveries=recovered if any(recovered) else (),
        )

    def until(self, end: int) -> Joins:
        """Return those of a segment that ends earlier now: what it gets there comes from no other."""
        return Joins.of(replace(join, end=min(join.end, end)) for join in self if join.start < end)

    @property
    def is_sound(self) -> bool:
        """Return whether there are as many numbers as names tell, and ranges in order; each one's recoveries apart."""
        count = len(self.names)
        if len(self.numbers) != _NUMBERS * count or count > MAX_JOINS or len(self.unsealed_ids) not in (0, count):
            return False
        recovered = self._recoveries()
        if self.recoveries and (len(recovered) != count or _flat(recovered) != self.recoveries):
            return False
        joins = list(self)
        return all(join.start < join.end for join in joins) and all(a.start <= b.start for a, b in pairwise(joins))

    @property
    def last_recovery(self) -> int:
        """Return the greatest number of a recovery of a source; 0 for none."""
        return max((values[-2] for values in self._recoveries() if values), default=0)

    def _recoveries(self) -> list[tuple[int, ...]]:
        """Return those of each source."""
        each: list[tuple[int, ...]] = []
        at = 0
        while at < len(self.recoveries):
            begin = at + 1
            at = begin + self.recoveries[at]
            each.append(self.recoveries[begin:at])
        return each

    def __iter__(self) -> Iterator[Join]:
        recovered = self._recoveries()
        for at, name in enumerate(self.names):
            start, end, source_id, birth, last, source_start = self.numbers[_NUMBERS * at : _NUMBERS * (at + 1)]
            unsealed_id = self.unsealed_ids[at] if self.unsealed_ids else 0
            values = recovered[at] if recovered else ()
            yield Join(start, end, SegmentId(source_id), birth, last, source_start, name, unsealed_id, values)


def _flat(recovered: Iterable[tuple[int, ...]]) -> tuple[int, ...]:
    return tuple(value for values in recovered for value in (len(values), *values))


# Of most segments; records share it.
NO_JOINS = Joins()
