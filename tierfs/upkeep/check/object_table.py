"""The objects of one snapshot in flat arrays.

An index by name takes 12 bytes per object; files and listings are matched with records through it.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator

from tierfs.base.words.types import PayloadEncoding, Tier

_SORTED_PARTS = 256
# Leaves the highest eight bits of a hash, with its sign.
_PART_SHIFT = 56


class NamesIndex:
    """Numbers of objects by the hash of their name.

    Python keys its hash of strings again in each process, so two names that share one cannot be prepared. By accident
    a million names collide with another million with a probability of 5 in 10^8.
    """

    def __init__(self) -> None:
        self._hashes = array("q")
        self._numbers = array("I")
        self._sorted = True

    def __len__(self) -> int:
        return len(self._hashes)

    def add(self, name: str, number: int) -> None:
        """Add one name."""
        self._hashes.append(hash(name))
        self._numbers.append(number)
        self._sorted = False

    def find(self, name: str) -> Iterator[int]:
        """Yield the numbers of the objects of this name; more than one only if records are damaged."""
        if not self._sorted:
            self._sort()
        wanted, hashes = hash(name), self._hashes
        at = bisect_left(hashes, wanted)
        while at < len(hashes) and hashes[at] == wanted:
            yield self._numbers[at]
            at += 1

    def numbers(self) -> array[int]:
        """Return the numbers of all objects, unordered."""
        return self._numbers

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and next(self.find(name), None) is not None

    def _sort(self) -> None:
        """Sort by parts of ascending hashes: Python's objects of all numbers would take 80 bytes for each name."""
        parts = [array("I") for _ in range(_SORTED_PARTS)]
        for at, hashed in enumerate(self._hashes):
            parts[hashed >> _PART_SHIFT].append(at)
        hashes, numbers = array("q"), array("I")
        for part in parts[_SORTED_PARTS // 2 :] + parts[: _SORTED_PARTS // 2]:  # the negative ones count from the end
            order = sorted(part, key=self._hashes.__getitem__)
            hashes.extend(map(self._hashes.__getitem__, order))
            numbers.extend(map(self._numbers.__getitem__, order))
        self._hashes, self._numbers, self._sorted = hashes, numbers, True


class ObjectTable:
    """The objects of one snapshot by number: their ids ascend, so a number is found by bisection."""

    def __init__(self) -> None:
        self.ids = array("Q")
        self.lengths = array("Q")
        """Plain bytes."""
        self.compressed = array("Q")
        """Stored bytes of a compressed object; 0 for any other."""
        self.recorded = array("L")
        """References according to the record."""
        self.counted = array("L")
        """Chunks that point to the object."""
        self.tiers = array("B")
        self.foreign = bytearray()
        self.names = {tier: NamesIndex() for tier in Tier}
        self.locations: set[int] = set()
        self._last = -1

    def add(self, record: object) -> None:
        """Add one object; ids ascend."""
        number = len(self.ids)
        message: _ObjectMessage = record  # type: ignore[assignment]
        self.ids.append(message.id)
        self.lengths.append(message.length)
        is_compressed = message.encoding == PayloadEncoding.ZSTD_FRAMES
        self.compressed.append(message.stored_length if is_compressed else 0)
        self.recorded.append(message.references)
        self.counted.append(0)
        self.tiers.append(message.tier)
        self.foreign.append(message.foreign)
        self.names[Tier(message.tier)].add(message.name, number)

    def number(self, object_id: int) -> int | None:
        """Return the number of an object, or None. Neighbours in a chain are often neighbours here."""
        ids, following = self.ids, self._last + 1
        if following < len(ids) and ids[following] == object_id:
            self._last = following
            return following
        number = bisect_left(ids, object_id)
        if number == len(ids) or ids[number] != object_id:
            return None
        self._last = number
        return number


class _ObjectMessage:
    """The fields of ObjectRecord's message that are read here."""

    id: int
    tier: int
    name: str
    length: int
    encoding: int
    stored_length: int
    references: int
    foreign: bool
