"""The CRC32C values that cover a range of one object, and checking bytes against them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tierfs.checksum import block_crcs, crc32c
from tierfs.metadata.checksums import pack
from tierfs.metadata.records import ChecksumRun
from tierfs.types import CRC_BLOCK_BYTES, ByteRange

_CRC_BYTES = 4


@dataclass(frozen=True, slots=True)
class Grid:
    """Neighbouring blocks of 128 KiB that cover a range completely; the last one may be shorter."""

    range: ByteRange
    """The bytes that can be checked: whole blocks."""
    crcs: bytes
    """Four bytes per block, big-endian, as the metadata has them."""

    def block_start(self, index: int) -> int:
        """Where block number `index` begins; the end of the range behind the last one."""
        return min(self.range.start + index * CRC_BLOCK_BYTES, self.range.end)

    def first_bad(self, view: memoryview, origin: int, index: int, end: int) -> tuple[ByteRange | None, int]:
        """Check whole blocks from number `index` on that end at or before `end`.

        `view` holds the object's bytes from `origin` on. Returns the first block that does not match, or
        None, and the number of the next block to check. Safe in any thread.
        """
        start, last = self.block_start(index), self.range.end
        while start < last:
            stop = min(start + CRC_BLOCK_BYTES, last)
            if stop > end:
                break
            at = index * _CRC_BYTES
            if (
                crc32c(view[start - origin : stop - origin]).to_bytes(_CRC_BYTES, "big")
                != self.crcs[at : at + _CRC_BYTES]
            ):
                return ByteRange(start, stop), index
            start, index = stop, index + 1
        return None, index


def run_matches(run: ChecksumRun, view: memoryview, start: int) -> bool:
    """Whether `view`, the object's bytes from block boundary `start` on, matches one run; the quick way."""
    index = (start - run.start) // CRC_BLOCK_BYTES
    found = pack(block_crcs(view))
    return found == run.crcs[index * _CRC_BYTES : index * _CRC_BYTES + len(found)]


def grid_of(runs: Sequence[ChecksumRun], wanted: ByteRange, object_length: int) -> Grid:
    """The blocks of an object that touch `wanted`, which is not empty; `runs` cover it, in order."""
    return cut_grid(runs[0].start, b"".join(run.crcs for run in runs), wanted, object_length)


def cut_grid(begin: int, packed: bytes, wanted: ByteRange, object_length: int) -> Grid:
    """The blocks that touch `wanted` of those whose checksums are `packed`, from `begin` on."""
    first = (wanted.start - begin) // CRC_BLOCK_BYTES
    start = begin + first * CRC_BLOCK_BYTES
    count = -(-(wanted.end - start) // CRC_BLOCK_BYTES)
    crcs = packed[first * _CRC_BYTES : (first + count) * _CRC_BYTES]
    return Grid(ByteRange(start, min(start + count * CRC_BLOCK_BYTES, object_length)), crcs)


def blocks_touched(held: ByteRange) -> int:
    """How many checksum blocks a range of an object touches."""
    return -(-held.end // CRC_BLOCK_BYTES) - held.start // CRC_BLOCK_BYTES
