"""The CRC32C values that cover a range of one object, and checking bytes against them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from tierfs.checksum import crc32c
from tierfs.metadata.records import ChecksumRun
from tierfs.types import CRC_BLOCK_BYTES, ByteRange


class Block(NamedTuple):
    """One checked stretch of an object: at most 128 KiB."""

    start: int
    end: int
    crc: int


@dataclass(frozen=True, slots=True)
class Grid:
    """Neighbouring blocks that cover a range completely."""

    blocks: tuple[Block, ...]

    @property
    def range(self) -> ByteRange:
        """The bytes that can be checked: the wanted ones, rounded outwards to whole blocks."""
        return ByteRange(self.blocks[0].start, self.blocks[-1].end)

    def first_bad(self, view: memoryview, origin: int, index: int, end: int) -> tuple[Block | None, int]:
        """Check whole blocks from number `index` on that end at or before `end`.

        `view` holds the object's bytes from `origin` on. Returns the first block that does not match, or
        None, and the number of the next block to check. Safe in any thread.
        """
        while index < len(self.blocks) and self.blocks[index].end <= end:
            block = self.blocks[index]
            if crc32c(view[block.start - origin : block.end - origin]) != block.crc:
                return block, index
            index += 1
        return None, index


def run_matches(run: ChecksumRun, view: memoryview, start: int) -> bool:
    """Whether `view`, the object's bytes from block boundary `start` on, matches one run; the quick way."""
    index = (start - run.start) // CRC_BLOCK_BYTES
    found = b"".join(
        crc32c(view[at : at + CRC_BLOCK_BYTES]).to_bytes(4, "big") for at in range(0, len(view), CRC_BLOCK_BYTES)
    )
    return found == run.crcs[index * 4 : index * 4 + len(found)]


def grid_of(runs: Iterable[ChecksumRun], wanted: ByteRange, object_length: int) -> Grid:
    """The blocks of an object that touch `wanted`; `runs` cover it."""
    blocks: list[Block] = []
    for run in runs:
        first = max(0, (wanted.start - run.start) // CRC_BLOCK_BYTES)
        for index in range(first, run.count):
            start = run.start + index * CRC_BLOCK_BYTES
            if start >= wanted.end:
                break
            blocks.append(Block(start, min(start + CRC_BLOCK_BYTES, object_length), run.crc(index)))
    return Grid(tuple(blocks))
