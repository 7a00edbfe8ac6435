"""CRC32C (RFC 3720, section 12.1): one polynomial for every byte tierfs stores.

awscrt sums 45 to 60 GB/s, and it can combine.

Bytes move between objects whose grids of blocks differ. They are cut at the lines of all grids (`cut_at_lines`), each
cut is summed once, and the cuts combine to the blocks of every grid, and to the CRC32C of the whole (`GridBuilder`).
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator
from functools import cache, reduce
from typing import Any, TypeAlias, TypeVar

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words.errors import DataLoss
from tierfs.base.words.types import CRC_BLOCK_BYTES

# Contiguous bytes.
Buffer: TypeAlias = bytes | bytearray | memoryview


T = TypeVar("T")


def twice(read: Callable[[], T]) -> T:
    """Return the result of a read that checks its bytes; read once more after DataLoss.

    A transfer damages bytes once, an object each time: only what differs twice is damaged.
    """
    try:
        return read()
    except DataLoss:
        return read()


@cache
def _crt() -> Any:
    """Load the library with the first bytes, for commands that only look: its self-tests take 0.1 s."""
    from awscrt import checksums

    return checksums


def crc32c(data: Buffer, previous: int = 0) -> int:
    """Return CRC32C of `data`, continuing from `previous` (0 for none)."""
    return int(_crt().crc32c(data, previous))


def combine(crc_a: int, crc_b: int, length_b_bytes: int) -> int:
    """Return CRC32C of A followed by B, from the CRCs of both and the length of B."""
    # A CRC is linear: of A followed by as many zeros as B is long, and of B, it is their sum.
    return int(_crt().combine_crc32c(crc_a, crc_b, length_b_bytes))


def block_crcs(data: Buffer) -> list[int]:
    """Return CRC32C of each 128 KiB block of `data`, whose first byte lies on the grid; the last may be shorter."""
    view = memoryview(data)
    return [crc32c(view[at : at + CRC_BLOCK_BYTES]) for at in range(0, len(view), CRC_BLOCK_BYTES)]


@dataclass(frozen=True, slots=True)
class Stretch:
    """Consecutive bytes and their CRC32C."""

    length_bytes: int = 0
    crc32c: int = 0

    @classmethod
    def of(cls, data: Buffer) -> Stretch:
        """Sum up bytes."""
        return cls(len(data), crc32c(data))

    def then(self, other: Stretch) -> Stretch:
        """Return this stretch followed by another."""
        if not self.length_bytes:
            return other
        return Stretch(self.length_bytes + other.length_bytes, combine(self.crc32c, other.crc32c, other.length_bytes))


def joined(stretches: Iterable[Stretch]) -> Stretch:
    """Join stretches that follow each other."""
    return reduce(Stretch.then, stretches, Stretch())


def cut_at_lines(view: memoryview, *offsets: int) -> Iterator[tuple[int, Stretch]]:
    """Cut bytes at the lines of several grids; yield each cut with its place in `view`.

    `offsets` tell where the first byte lies in the object of each grid.
    """
    at, end = 0, len(view)
    while at < end:
        size = min(end - at, *(CRC_BLOCK_BYTES - (offset + at) % CRC_BLOCK_BYTES for offset in offsets))
        yield at, Stretch.of(view[at : at + size])
        at += size


class GridBuilder:
    """CRC32Cs of an object whose bytes arrive in order: of each block of 128 KiB, and of the whole. Not thread-safe."""

    __slots__ = ("_ended", "_tail", "crc32c", "length_bytes")

    def __init__(self, length_bytes: int = 0, tail_crc32c: int = 0, crc32c: int = 0) -> None:
        """Continue an object of so many bytes; `tail_crc32c` is that of the bytes in its last, partial block."""
        self.length_bytes = length_bytes
        self.crc32c = crc32c
        self._tail = tail_crc32c
        self._ended = array("I")

    def feed(self, data: Buffer) -> None:
        """Take the next bytes."""
        view = memoryview(data)
        at, end = 0, len(view)
        while at < end:
            part = view[at : at + CRC_BLOCK_BYTES - self.length_bytes % CRC_BLOCK_BYTES]
            size = len(part)
            if size == CRC_BLOCK_BYTES or not self.length_bytes:
                self.add(Stretch.of(part))
            else:  # summed twice: quicker for the few bytes of an append than to combine
                self.crc32c = crc32c(part, self.crc32c)
                self._advance(size, crc32c(part, self._tail))
            at += size

    def add(self, stretch: Stretch) -> None:
        """Take the next bytes, which are summed up already and cross no line of the grid."""
        size, crc = stretch.length_bytes, stretch.crc32c
        self.crc32c = combine(self.crc32c, crc, size) if self.length_bytes else crc
        self._advance(size, combine(self._tail, crc, size) if self.length_bytes % CRC_BLOCK_BYTES else crc)

    def grid(self) -> array[int]:
        """Return CRCs of the blocks that were not taken; the last block may be partial."""
        crcs = self._ended[:]
        if self.length_bytes % CRC_BLOCK_BYTES:
            crcs.append(self._tail)
        return crcs

    def take(self) -> tuple[int, tuple[int, ...]]:
        """Return the CRCs of the blocks that changed since the last call, and the number of the first of them."""
        first = self.length_bytes // CRC_BLOCK_BYTES - len(self._ended)
        crcs = tuple(self.grid())
        del self._ended[:]
        return first, crcs

    def _advance(self, size: int, tail: int) -> None:
        self.length_bytes += size
        self._tail = tail
        if not self.length_bytes % CRC_BLOCK_BYTES:
            self._ended.append(tail)
            self._tail = 0


def grid_of(steps: Iterable[Buffer]) -> GridBuilder:
    """Sum up an object that is read in steps."""
    builder = GridBuilder()
    for step in steps:
        builder.feed(step)
    return builder


def proved_sums(read: Callable[[], Iterable[Buffer]], expected: int) -> GridBuilder:
    """Sum up an object that was written with the CRC32C `expected`; `read` begins a read of all of it, in steps.

    Raises DataLoss if two reads contradict it, and what reading raises.
    """

    def sums() -> GridBuilder:
        builder = grid_of(read())
        if builder.crc32c != expected:
            raise DataLoss(f"its CRC32C is {builder.crc32c:08x}, it was written with {expected:08x}")
        return builder

    return twice(sums)
