"""The bytes that appenders write: numbered records, the same each time, so that every reader is compared with them."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator, Mapping

SIZES = (1, 7, 100, 999, 1000, 1001, 4096)
"""Of records; chunks end at 1000 bytes."""


def record(seed: str, name: str, number: int) -> bytes:
    """Return the bytes of a record; the same each time."""
    chance = random.Random(f"{seed} {name} {number}")
    return chance.randbytes(chance.choice(SIZES))


class Expected:
    """One segment's bytes, made as far as they are compared. Threads share it."""

    def __init__(self, seed: str, name: str) -> None:
        self._seed, self._name = seed, name
        self._data = bytearray()
        self._ends: list[int] = []
        self._lock = threading.Lock()

    def upto(self, end: int) -> bytearray:
        """Return the bytes from 0 on, at least so many."""
        with self._lock:
            while len(self._data) < end:
                self._data += record(self._seed, self._name, len(self._ends))
                self._ends.append(len(self._data))
            return self._data

    def is_end(self, offset: int) -> bool:
        """Return whether a record ends there, or none has begun."""
        self.upto(offset)
        with self._lock:
            return not offset or offset in self._ends

    def require(self, start: int, data: bytes, who: str) -> None:
        """Raise AssertionError unless these are the bytes from `start` on."""
        expected = self.upto(start + len(data))[start : start + len(data)]
        if data != expected:
            at = next(at for at, (byte, other) in enumerate(zip(data, expected, strict=True)) if byte != other)
            raise AssertionError(f"{who}: {self._name} is wrong at {start + at}, of {start} to {start + len(data)}")

    def start_of(self, data: bytes, who: str) -> int:
        """Return the offset of bytes that a reader has, without the head that was dropped."""
        at = self.upto(len(data)).find(data[:_MARK_BYTES])
        while at < 0:
            known = len(self._data)
            assert known < _MOST_BYTES, f"{who}: {self._name} begins with bytes that it never had"
            at = self.upto(2 * known).find(data[:_MARK_BYTES])
        return at


# So many random bytes are in one place of a stream only; and no stream here becomes as long.
_MARK_BYTES, _MOST_BYTES = 64, 1 << 26


class AllExpected(Mapping[str, Expected]):
    """Those of all names."""

    def __init__(self, seed: str) -> None:
        self._seed = seed
        self._made: dict[str, Expected] = {}

    def __getitem__(self, name: str) -> Expected:
        return self._made.setdefault(name, Expected(self._seed, name))

    def __iter__(self) -> Iterator[str]:
        return iter(self._made)

    def __len__(self) -> int:
        return len(self._made)
