"""Write and read seek tables: the sizes of the frames before them, in a frame that zstd skips. Pure.

zstd's published seekable format: a skippable frame with an entry for each frame and a footer. A *section* is frames
and their seek table; an object that was joined of several is as many sections. Each is found from its end, so an object
is read from its last section to its first.

All input is hostile: a count is believed only where the bytes before the table could have so many frames.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from tierfs.base.bytes.checksum import Buffer
from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words.errors import DataLoss
from tierfs.engine.frames import skipped

# Frames of one section, and of one object that is read: 512 GiB of plain bytes in frames of 128 KiB, and a table of
# 32 MiB.
MAX_FRAMES = 1 << 22
# Sections of one object: S3 joins at most so many parts.
MAX_SECTIONS = 10_000
# Plain bytes of one frame, a limit of the format's own reader; ours takes fewer (frame_map.py).
FORMAT_FRAME_BYTES = 1 << 30

_SKIPPED_MAGIC = 0x184D2A5E
_SEEKABLE_MAGIC = 0x8F92EAB1
_ENTRY = struct.Struct("<II")  # stored bytes, plain bytes
_SUMMED_ENTRY = struct.Struct("<III")  # the same, and a checksum of the plain bytes
_FOOTER = struct.Struct("<IBI")  # frames, descriptor, magic number
FOOTER_BYTES = _FOOTER.size

_WITH_CHECKSUMS = 0x80
_RESERVED = 0x7C

# The smallest frame is one that is skipped and has no content.
_SMALLEST_FRAME_BYTES = skipped.HEADER_BYTES
# A block has a header of 3 bytes and at least one more, and at most 128 KiB of content.
_SMALLEST_BLOCK_BYTES = 4
_BLOCK_BYTES = 128 << 10


class FrameSize(NamedTuple):
    """One frame: its bytes in the object, and the bytes that it unpacks to; 0 for one that is skipped."""

    stored_bytes: int
    plain_bytes: int


@dataclass(frozen=True, slots=True)
class Section:
    """Frames and their seek table, in the stored bytes of an object."""

    start_offset: int
    """Offset of the first frame; another section ends there, unless it is 0."""
    table_offset: int
    """Offset of the seek table, the end of the frames."""
    end_offset: int
    sizes: array[int]
    """Stored and plain bytes of each frame, by turns."""

    @property
    def frame_count(self) -> int:
        """Number of its frames, those that are skipped included."""
        return len(self.sizes) // 2

    @property
    def plain_bytes(self) -> int:
        """Number of the bytes that its frames unpack to."""
        return sum(self.sizes[1::2])

    def frames(self) -> Iterator[FrameSize]:
        """Yield the sizes of the frames in order."""
        sizes = iter(self.sizes)
        return map(FrameSize, sizes, sizes)


def seek_table(frames: Iterable[FrameSize]) -> bytes:
    """Return the seek table of the frames before it. Raises ValueError for more or larger frames than it can have."""
    sizes = list(frames)
    if len(sizes) > MAX_FRAMES:
        raise ValueError(f"{len(sizes)} frames are more than {MAX_FRAMES}")
    for size in sizes:
        if not _possible(*size):
            raise ValueError(f"no frame of {size.stored_bytes} bytes unpacks to {size.plain_bytes}")
    entries = b"".join([_ENTRY.pack(*size) for size in sizes])
    return skipped.skipped(entries + _FOOTER.pack(len(sizes), 0, _SEEKABLE_MAGIC), _SKIPPED_MAGIC)


def parse_tail(tail: Buffer, end_offset: int) -> Section | int:
    """Return the section that ends at `end_offset`, or how many bytes before it are needed: more than `tail` has.

    `tail` is the bytes before `end_offset`, at least `FOOTER_BYTES`. Raises DataLoss unless they end with a seek table
    that describes bytes before it.
    """
    if min(len(tail), end_offset) < FOOTER_BYTES:
        raise _damaged(end_offset, f"there are {min(len(tail), end_offset)} bytes")
    count, descriptor, magic = _FOOTER.unpack_from(tail, len(tail) - _FOOTER.size)
    if magic != _SEEKABLE_MAGIC:
        raise _damaged(end_offset, "its last bytes are those of no seek table")
    if descriptor & _RESERVED:
        raise _damaged(end_offset, f"its descriptor is {descriptor:#04x}")
    entry = _SUMMED_ENTRY if descriptor & _WITH_CHECKSUMS else _ENTRY
    table_bytes: int = skipped.HEADER_BYTES + count * entry.size + _FOOTER.size
    if count > MAX_FRAMES or table_bytes + count * _SMALLEST_FRAME_BYTES > end_offset:
        raise _damaged(end_offset, f"it has {count} frames")
    if len(tail) < table_bytes:
        return table_bytes
    table_offset = end_offset - table_bytes
    at = len(tail) - table_bytes
    if skipped.HEADER.unpack_from(tail, at) != (_SKIPPED_MAGIC, table_bytes - skipped.HEADER_BYTES):
        raise _damaged(end_offset, f"no seek table of {count} frames starts at {table_offset}")
    sizes = array("I")
    for stored_bytes, plain_bytes, *_ in entry.iter_unpack(memoryview(tail)[at + skipped.HEADER_BYTES : -_FOOTER.size]):
        if not _possible(stored_bytes, plain_bytes):
            raise _damaged(end_offset, f"no frame of {stored_bytes} bytes unpacks to {plain_bytes}")
        sizes.append(stored_bytes)
        sizes.append(plain_bytes)
    start_offset = table_offset - sum(sizes[::2])
    if start_offset < 0:
        raise _damaged(end_offset, "its frames have more bytes than are before it")
    return Section(start_offset, table_offset, end_offset, sizes)


def read_section(read: Callable[[int, int], Buffer], end_offset: int, guess_bytes: int) -> Section:
    """Return the section of an object that ends at `end_offset`.

    `read` returns the bytes between two offsets of it. It is called once if the table has at most `guess_bytes`, else
    twice. Raises DataLoss as `parse_tail`.
    """
    section = parse_tail(read(max(0, end_offset - max(guess_bytes, FOOTER_BYTES)), end_offset), end_offset)
    if isinstance(section, int):
        section = parse_tail(read(end_offset - section, end_offset), end_offset)
        if isinstance(section, int):
            raise _damaged(end_offset, "it differs when it is read again")
    return section


def read_sections(read: Callable[[int, int], Buffer], stored_bytes: int, guess_bytes: int) -> list[Section]:
    """Return the sections of an object of `stored_bytes`, in order. Each is read, and raises, as `read_section`."""
    sections: list[Section] = []
    end, count = stored_bytes, 0
    while end > 0 or not sections:
        if len(sections) == MAX_SECTIONS:
            raise DataLoss(f"a compressed object is damaged: it has more than {MAX_SECTIONS} seek tables")
        section = read_section(read, end, guess_bytes)
        sections.append(section)
        end, count = section.start_offset, count + section.frame_count
        if count > MAX_FRAMES:
            raise DataLoss(f"a compressed object is damaged: it has more than {MAX_FRAMES} frames")
    return sections[::-1]


def object_frames(sections: Iterable[Section]) -> Iterator[FrameSize]:
    """Yield the frames of an object in order, and each seek table before its last one as a frame of no plain bytes."""
    table_bytes = 0
    for section in sections:
        if table_bytes:
            yield FrameSize(table_bytes, 0)
        yield from section.frames()
        table_bytes = section.end_offset - section.table_offset


def _possible(stored_bytes: int, plain_bytes: int) -> bool:
    """Return whether a frame of these sizes can be: what a bomb claims is refused before memory is taken for it."""
    most = stored_bytes // _SMALLEST_BLOCK_BYTES * _BLOCK_BYTES
    return _SMALLEST_FRAME_BYTES <= stored_bytes < 1 << 32 and 0 <= plain_bytes <= min(most, FORMAT_FRAME_BYTES)


def _damaged(end_offset: int, why: str) -> DataLoss:
    return DataLoss(f"the seek table that ends at {end_offset} is damaged: {why}")
