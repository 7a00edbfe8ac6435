"""Reading the bytes of a partition as they are, in blocks that begin at multiples of their size."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tierfs.scan.extents import clip
from tierfs.scan.fetching import Fetcher
from tierfs.scan.planning import Part, Partition
from tierfs.scan.requests import Wanted
from tierfs.types import ByteRange


@dataclass(frozen=True, slots=True)
class Block:
    """Consecutive bytes of one segment."""

    part: int
    offset: int
    content: bytes


def read_blocks(fetcher: Fetcher, partition: Partition, block_bytes: int) -> Iterator[Block]:
    """The bytes of a partition. A block ends at a multiple of `block_bytes` of its segment, and at the part's end."""
    for number, part in enumerate(partition.parts):
        pieces = fetcher.pieces(Wanted(number, extent) for extent in clip(part.extents, part.owned))
        waiting = bytearray()
        for span in _spans(part, block_bytes):
            while len(waiting) < span.length_bytes:
                waiting += next(pieces).view
            yield Block(number, span.start, bytes(waiting[: span.length_bytes]))
            del waiting[: span.length_bytes]


def _spans(part: Part, block_bytes: int) -> Iterator[ByteRange]:
    at = part.owned.start
    while at < part.owned.end:
        end = min(part.owned.end, at + block_bytes - at % block_bytes)
        yield ByteRange(at, end)
        at = end
