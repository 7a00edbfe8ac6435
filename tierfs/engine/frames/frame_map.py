"""The frames of one row of checksums: which of them hold a range of plain bytes, and where they are stored. Pure."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate, pairwise

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words.types import CRC_BLOCK_BYTES, MIB, ByteRange

# Plain bytes of a frame: a block of the checksums, so that a small read fetches and unpacks no more than it checks.
FRAME_BYTES = CRC_BLOCK_BYTES

# Limit of the plain bytes of a frame that is read: the memory for one of which only a part is wanted.
MAX_FRAME_BYTES = 4 * MIB
# Limit of its stored bytes: what the library makes of bytes that do not shrink, and room for headers.
MAX_STORED_FRAME_BYTES = MAX_FRAME_BYTES + MAX_FRAME_BYTES // 64
# Limit of the stored bytes between two frames: more than the largest seek table.
MAX_GAP_BYTES = 64 * MIB


def is_readable(plain_bytes: int, stored_bytes: int) -> bool:
    """Return whether readers take a frame of these sizes, or so many stored bytes between frames."""
    return plain_bytes <= MAX_FRAME_BYTES and stored_bytes <= (MAX_STORED_FRAME_BYTES if plain_bytes else MAX_GAP_BYTES)


@dataclass(frozen=True, slots=True)
class FrameMap:
    """Neighbouring frames of an object. Entry i of `starts` and `stored` is where frame i starts, the last the end."""

    starts: array[int]
    """In the plain bytes of the object. Two equal ones: stored bytes between frames, as a seek table has them."""
    stored: array[int]
    """In the stored object."""

    @classmethod
    def of(
        cls, start: int, stored_start: int, lengths: Sequence[int], stored_lengths: Sequence[int], end: int
    ) -> FrameMap:
        """Return the frames of a row; `lengths` is one for each, or one for all of which the last ends at `end`."""
        count = len(stored_lengths)
        if len(lengths) == 1:
            starts = array("Q", (min(start + lengths[0] * index, end) for index in range(count + 1)))
        else:
            starts = array("Q", accumulate(lengths, initial=start))
        return cls(starts, array("Q", accumulate(stored_lengths, initial=stored_start)))

    @property
    def plain(self) -> ByteRange:
        """The plain bytes that the frames hold."""
        return ByteRange(self.starts[0], self.starts[-1])

    @property
    def lengths(self) -> tuple[int, ...]:
        """Plain bytes of each frame."""
        return tuple(end - start for start, end in pairwise(self.starts))

    @property
    def stored_lengths(self) -> tuple[int, ...]:
        """Stored bytes of each frame."""
        return tuple(end - start for start, end in pairwise(self.stored))

    def cut(self, wanted: ByteRange) -> FrameMap:
        """Return the frames that hold plain bytes, which are inside the map and not empty."""
        numbers = self.holding(wanted)
        kept = slice(numbers.start, numbers.stop + 1)
        return FrameMap(self.starts[kept], self.stored[kept])

    def holding(self, wanted: ByteRange) -> range:
        """Return the numbers of the frames that hold plain bytes, which are inside the map and not empty."""
        return range(bisect_right(self.starts, wanted.start) - 1, bisect_left(self.starts, wanted.end))
