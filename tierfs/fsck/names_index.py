"""Which object has a name, in 12 bytes each: files and listings are matched with records through it."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator


class NamesIndex:
    """Numbers of objects by the hash of their name.

    Python's hash of a string is keyed anew in each process, so nobody can prepare two names that share one,
    and by accident a million names meet another million with a chance of 5 in 10^8.
    """

    def __init__(self) -> None:
        self._hashes = array("q")
        self._numbers = array("I")
        self._sorted = True

    def __len__(self) -> int:
        return len(self._hashes)

    def add(self, name: str, number: int) -> None:
        """One more name."""
        self._hashes.append(hash(name))
        self._numbers.append(number)
        self._sorted = False

    def find(self, name: str) -> Iterator[int]:
        """The numbers of the objects of this name; more than one only where records are damaged."""
        if not self._sorted:
            self._sort()
        wanted, hashes = hash(name), self._hashes
        at = bisect_left(hashes, wanted)
        while at < len(hashes) and hashes[at] == wanted:
            yield self._numbers[at]
            at += 1

    def numbers(self) -> array[int]:
        """The numbers of all objects, in no order."""
        return self._numbers

    def _sort(self) -> None:
        order = sorted(range(len(self._hashes)), key=self._hashes.__getitem__)
        self._hashes = array("q", map(self._hashes.__getitem__, order))
        self._numbers = array("I", map(self._numbers.__getitem__, order))
        self._sorted = True
