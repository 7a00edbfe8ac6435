"""Find the ends of zstd frames (RFC 8878, section 3.1) by the headers of their blocks, without unpacking any. Pure.

The library reports neither a frame that is cut nor bytes after the last one. `frame_at` reads a frame of a compressed
object, and refuses all that no writer of tierfs makes. `FrameWalk` follows frames of anybody, in pieces of any size.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tierfs.base.bytes.checksum import Buffer
from tierfs.base.words.errors import DataLoss
from tierfs.engine.frames import skipped

# A frame may refer to no bytes further back; RFC 8878 recommends that every decoder has 8 MiB.
WINDOW_LIMIT_BYTES = 8 << 20

MAGIC = b"\x28\xb5\x2f\xfd"
# The last hexadecimal digit of the magic number of a frame that is skipped is free.
_FREE_DIGIT = 0x0F
_SKIPPED_SIZE_BYTES = 4

# Offset of the descriptor in a frame, and its fields.
DESCRIPTOR = len(MAGIC)
CHECKSUM = 0x04
_DICTIONARY = 0x03
_RESERVED = 0x08
_SINGLE_SEGMENT = 0x20
_SIZE_SHIFT = 6
CHECKSUM_BYTES = 4
# Bytes of the dictionary's number and of the content size, by the two bits of the descriptor for each. With 0 for the
# size and no flag for one segment, there is none.
_DICTIONARY_BYTES = (0, 1, 2, 4)
_SIZE_BYTES = (1, 2, 4, 8)
# Of two bytes, the number is this less.
_SIZE_OF_TWO_BYTES = 256
# The window is a power of two from 1 KiB on, and eighths of it.
_WINDOW_SHIFT = 10
_EIGHTHS = 0x07
_EIGHTHS_BITS = 3

_BLOCK_HEADER_BYTES = 3
_LAST = 0x01
_TYPE_SHIFT = 1
_TYPE = 0x03
_RLE = 1
_RESERVED_TYPE = 3
_BLOCK_SIZE_SHIFT = 3
_RLE_BYTES = 1


class FoundFrame(NamedTuple):
    """A whole frame."""

    end: int
    plain_bytes: int
    has_checksum: bool


def frame_at(stored: memoryview, start: int) -> FoundFrame:
    """Return the frame at `start`. Raises DataLoss unless it is whole, and a form that tierfs may write."""
    if stored[start : start + DESCRIPTOR] != MAGIC or start + DESCRIPTOR >= len(stored):
        raise DataLoss(f"zstd frames are damaged: no frame starts at {start} of {len(stored)} bytes")
    descriptor = stored[start + DESCRIPTOR]
    single = bool(descriptor & _SINGLE_SEGMENT)
    size_bytes = _SIZE_BYTES[descriptor >> _SIZE_SHIFT]
    if descriptor & (_DICTIONARY | _RESERVED) or (size_bytes == 1 and not single):
        raise DataLoss(f"the zstd frame at {start} has a dictionary, or no content size")
    at = start + DESCRIPTOR + 1
    fixed_end = at + size_bytes + (not single)
    if fixed_end > len(stored):
        raise _cut(start, stored)
    if not single:
        _check_window(stored[at], start)
        at += 1
    size = int.from_bytes(stored[at:fixed_end], "little")
    if size_bytes == 2:
        size += _SIZE_OF_TWO_BYTES
    end = _blocks_end(stored, fixed_end, start)
    has_checksum = bool(descriptor & CHECKSUM)
    if has_checksum:
        end += CHECKSUM_BYTES
    if end > len(stored):
        raise _cut(start, stored)
    return FoundFrame(end, size, has_checksum)


def _check_window(field: int, start: int) -> None:
    base = 1 << (_WINDOW_SHIFT + (field >> _EIGHTHS_BITS))
    window = base + (base >> _EIGHTHS_BITS) * (field & _EIGHTHS)
    if window > WINDOW_LIMIT_BYTES:
        raise DataLoss(f"the zstd frame at {start} needs a window of {window} bytes, more than {WINDOW_LIMIT_BYTES}")


def _blocks_end(stored: memoryview, at: int, start: int) -> int:
    """Return the end of the blocks from `at` on; the last one may be cut."""
    last = False
    while not last:
        header_end = at + _BLOCK_HEADER_BYTES
        if header_end > len(stored):
            raise _cut(start, stored)
        size, last = _block(stored[at:header_end])
        if size is None:
            raise DataLoss(f"the zstd frame at {start} is damaged: the block at {at} has a reserved type")
        at = header_end + size
    return at


def _block(header: Buffer) -> tuple[int | None, bool]:
    """Return the bytes of a block after its header, None for a reserved type, and whether it is the last one."""
    fields = int.from_bytes(header, "little")
    kind = fields >> _TYPE_SHIFT & _TYPE
    size = None if kind == _RESERVED_TYPE else _RLE_BYTES if kind == _RLE else fields >> _BLOCK_SIZE_SHIFT
    return size, bool(fields & _LAST)


def _cut(start: int, stored: memoryview) -> DataLoss:
    return DataLoss(f"the zstd frame at {start} is cut: its bytes end at {len(stored)}")


class FrameWalk:
    """A walk over frames of anybody, also skipped ones. It says whether they are whole, not whether they are right."""

    def __init__(self) -> None:
        self._has_begun = False
        self._head = bytearray()
        self._needed_bytes = len(MAGIC)
        self._passed_bytes = 0
        self._step: Callable[[], None] | None = self._magic
        self._checksum_bytes = 0

    @property
    def is_whole(self) -> bool:
        """Whether the bytes so far end with a frame."""
        return self._has_begun and self._step == self._magic and not self._head and not self._passed_bytes

    def feed(self, data: Buffer) -> None:
        """Take the next bytes; all after ones that start no frame are ignored."""
        view = memoryview(data)
        self._has_begun = self._has_begun or bool(view)
        while view and self._step is not None:
            if self._passed_bytes:
                step = min(self._passed_bytes, len(view))
                self._passed_bytes -= step
            else:
                step = min(self._needed_bytes - len(self._head), len(view))
                self._head += view[:step]
                if len(self._head) == self._needed_bytes:
                    self._step()
                    self._head.clear()
            view = view[step:]

    def _expect(self, step: Callable[[], None] | None, needed_bytes: int, passed_bytes: int = 0) -> None:
        self._step, self._needed_bytes, self._passed_bytes = step, needed_bytes, passed_bytes

    def _magic(self) -> None:
        number = int.from_bytes(self._head, "little")
        if self._head == MAGIC:
            self._expect(self._descriptor, 1)
        elif number & ~_FREE_DIGIT == skipped.MAGIC:
            self._expect(self._skipped, _SKIPPED_SIZE_BYTES)
        else:
            self._step = None

    def _skipped(self) -> None:
        self._expect(self._magic, len(MAGIC), int.from_bytes(self._head, "little"))

    def _descriptor(self) -> None:
        descriptor = self._head[0]
        single = bool(descriptor & _SINGLE_SEGMENT)
        size_bytes = _SIZE_BYTES[descriptor >> _SIZE_SHIFT]
        if size_bytes == 1 and not single:
            size_bytes = 0
        self._checksum_bytes = CHECKSUM_BYTES if descriptor & CHECKSUM else 0
        fixed_bytes = (not single) + _DICTIONARY_BYTES[descriptor & _DICTIONARY] + size_bytes
        self._expect(self._block, _BLOCK_HEADER_BYTES, fixed_bytes)

    def _block(self) -> None:
        size, last = _block(self._head)
        if size is None:
            self._step = None
        elif last:
            self._expect(self._magic, len(MAGIC), size + self._checksum_bytes)
        else:
            self._expect(self._block, _BLOCK_HEADER_BYTES, size)
