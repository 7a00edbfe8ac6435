"""The CRC32C values of a range of one object, and checks of bytes against them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import attrgetter

from tierfs.base.bytes.checksum import block_crcs, crc32c
from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words.types import CRC_BLOCK_BYTES, ByteRange
from tierfs.engine.metadata.checksums import pack
from tierfs.engine.metadata.records import ChecksumRun

_CRC_BYTES = 4


@dataclass(frozen=True, slots=True)
class Grid:
    """Neighbouring blocks of 128 KiB that cover a range completely; the last one may be shorter."""

    range: ByteRange
    """The bytes that can be checked: whole blocks."""
    crcs: bytes
    """Four bytes per block, big-endian, as in the metadata."""

    def block_start(self, index: int) -> int:
        """Return the start of block number `index`; the end of the range after the last one."""
        return min(self.range.start + index * CRC_BLOCK_BYTES, self.range.end)

    def cut(self, wanted: ByteRange) -> Grid:
        """Return the blocks that touch `wanted`, which lies in the range and is not empty."""
        return cut_grid(self.range.start, self.crcs, wanted, self.range.end)

    def blocks(self) -> Iterator[Grid]:
        """Yield each block by itself."""
        for start in range(self.range.start, self.range.end, CRC_BLOCK_BYTES):
            yield self.cut(ByteRange(start, start + 1))

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

    def bad_blocks(self, view: memoryview, origin: int) -> Iterator[ByteRange]:
        """Yield all blocks that do not match; `view` holds the object's bytes from `origin` on, all blocks of them."""
        index = 0
        while True:
            bad, index = self.first_bad(view, origin, index, self.range.end)
            if bad is None:
                return
            index += 1
            yield bad


def run_matches(run: ChecksumRun, view: memoryview, start: int) -> bool:
    """Return whether `view`, the object's bytes from block boundary `start` on, matches one run; a fast check."""
    index = (start - run.start) // CRC_BLOCK_BYTES
    crcs = pack(block_crcs(view))
    return crcs == run.crcs[index * _CRC_BYTES : index * _CRC_BYTES + len(crcs)]


def grid_of(runs: Sequence[ChecksumRun], wanted: ByteRange, object_length: int) -> Grid:
    """Return the blocks of an object that touch `wanted`, which is not empty; `runs` cover it, in order."""
    return cut_grid(runs[0].start, b"".join(map(attrgetter("crcs"), runs)), wanted, object_length)


def cut_grid(begin: int, packed: bytes, wanted: ByteRange, object_length: int) -> Grid:
    """Return the blocks that touch `wanted`, out of those from `begin` on whose checksums are `packed`."""
    first = (wanted.start - begin) // CRC_BLOCK_BYTES
    start = begin + first * CRC_BLOCK_BYTES
    count = -(-(wanted.end - start) // CRC_BLOCK_BYTES)
    crcs = packed[first * _CRC_BYTES : (first + count) * _CRC_BYTES]
    return Grid(ByteRange(start, min(start + count * CRC_BLOCK_BYTES, object_length)), crcs)


def blocks_touched(held: ByteRange) -> int:
    """Return the number of checksum blocks a range of an object touches."""
    return -(-held.end // CRC_BLOCK_BYTES) - held.start // CRC_BLOCK_BYTES
