"""Compress bytes to one zstd frame, and decompress frames into a buffer: the one door to the library. Pure.

The boundaries of frames and blocks are read here (RFC 8878, section 3.1), before the library gets a byte: a frame is
decompressed only where it is whole, says how many bytes it has, and these fit into what is left of the buffer. The
library then writes straight into the buffer, and takes no memory in proportion to its input.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from tierfs.base.bytes.checksum import Buffer
from tierfs.base.words.errors import DataLoss

if TYPE_CHECKING:
    from zstandard import ZstdCompressor, ZstdDecompressor

# A frame may refer to no bytes further back; RFC 8878 recommends that every decoder has 8 MiB.
WINDOW_LIMIT_BYTES = 8 << 20

_MAGIC = b"\x28\xb5\x2f\xfd"
_DESCRIPTOR = len(_MAGIC)
# Fields of the frame's descriptor.
_DICTIONARY = 0x03
_CHECKSUM = 0x04
_RESERVED = 0x08
_SINGLE_SEGMENT = 0x20
_SIZE_SHIFT = 6
_CHECKSUM_BYTES = 4
# Bytes of the content size by the descriptor's two bits; without the flag for one segment, 0 is no size.
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


class _Contexts(threading.local):
    """The library's contexts of one thread: hundreds of KiB each, which take longer to make than a block to unpack."""

    def __init__(self) -> None:
        self.compressors: dict[int, ZstdCompressor] = {}
        self.decompressor: ZstdDecompressor | None = None


_contexts = _Contexts()


def compressed(data: Buffer, level: int) -> bytes:
    """Return `data` as one frame, with its content size and a checksum of the content.

    The GIL is released. Of any thread: each has contexts of its own.
    """
    compressor = _contexts.compressors.get(level)
    if compressor is None:
        from zstandard import ZstdCompressor

        compressor = ZstdCompressor(level=level, write_checksum=True, write_content_size=True)
        _contexts.compressors[level] = compressor
    return compressor.compress(data)


def decompress_into(stored: memoryview, view: memoryview) -> None:
    """Decompress `stored`, consecutive frames, into `view`; they fill it exactly.

    The GIL is released. Raises DataLoss for frames that cannot be unpacked, for other bytes between or after them, for
    frames without their size, with a dictionary or too large a window, and for more or fewer bytes than `view` has. The
    bytes in `view` are undefined then. The checksums of the frames are not compared: callers compare their CRC32C.
    """
    unsummed = _unsummed(stored, len(view))
    if not len(view):
        return
    from zstandard import ZstdError

    try:
        count = _decompressor().stream_reader(unsummed, read_across_frames=True).readinto(view)
    except ZstdError as exc:
        raise DataLoss(f"zstd frames are damaged: {exc}") from exc
    if count != len(view):
        raise DataLoss(f"zstd frames are damaged: they have {count} bytes, not {len(view)}")


def _decompressor() -> ZstdDecompressor:
    if _contexts.decompressor is None:
        from zstandard import ZstdDecompressor

        _contexts.decompressor = ZstdDecompressor(max_window_size=WINDOW_LIMIT_BYTES)
    return _contexts.decompressor


def _unsummed(stored: memoryview, plain_bytes: int) -> Buffer:
    """Return frames without their checksums. Raises DataLoss unless `stored` is whole ones, of `plain_bytes` in all.

    To compare its checksum takes an eighth of the time of a frame, a copy of its stored bytes a hundredth (measured),
    and the library has no switch for it (ZSTD_d_forceIgnoreChecksum).
    """
    parts: list[Buffer] = []
    start, total_bytes = 0, 0
    while start < len(stored):
        end, size = _frame(stored, start)
        total_bytes += size
        after, descriptor = start + _DESCRIPTOR + 1, stored[start + _DESCRIPTOR]
        if descriptor & _CHECKSUM:
            parts += [_MAGIC, bytes([descriptor ^ _CHECKSUM]), stored[after : end - _CHECKSUM_BYTES]]
        else:
            parts.append(stored[start:end])
        start = end
    if total_bytes != plain_bytes:
        raise DataLoss(f"zstd frames are damaged: they have {total_bytes} bytes, not {plain_bytes}")
    return b"".join(parts)


def _frame(stored: memoryview, start: int) -> tuple[int, int]:
    """Return the end of the frame at `start`, and the size of its content."""
    if stored[start : start + _DESCRIPTOR] != _MAGIC or start + _DESCRIPTOR >= len(stored):
        raise DataLoss(f"zstd frames are damaged: no frame starts at {start} of {len(stored)} bytes")
    descriptor = stored[start + _DESCRIPTOR]
    single = bool(descriptor & _SINGLE_SEGMENT)
    size_bytes = _SIZE_BYTES[descriptor >> _SIZE_SHIFT]
    if descriptor & (_DICTIONARY | _RESERVED) or (size_bytes == 1 and not single):
        raise DataLoss(f"the zstd frame at {start} has a dictionary, or no content size")
    at = start + _DESCRIPTOR + 1
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
    if descriptor & _CHECKSUM:
        end += _CHECKSUM_BYTES
    if end > len(stored):
        raise _cut(start, stored)
    return end, size


def _check_window(field: int, start: int) -> None:
    base = 1 << (_WINDOW_SHIFT + (field >> _EIGHTHS_BITS))
    window = base + (base >> _EIGHTHS_BITS) * (field & _EIGHTHS)
    if window > WINDOW_LIMIT_BYTES:
        raise DataLoss(f"the zstd frame at {start} needs a window of {window} bytes, more than {WINDOW_LIMIT_BYTES}")


def _blocks_end(stored: memoryview, at: int, start: int) -> int:
    """Return the end of the blocks from `at` on; the last one may be cut."""
    last = 0
    while not last:
        if at + _BLOCK_HEADER_BYTES > len(stored):
            raise _cut(start, stored)
        header = int.from_bytes(stored[at : at + _BLOCK_HEADER_BYTES], "little")
        kind = header >> _TYPE_SHIFT & _TYPE
        if kind == _RESERVED_TYPE:
            raise DataLoss(f"the zstd frame at {start} is damaged: the block at {at} has a reserved type")
        at += _BLOCK_HEADER_BYTES + (_RLE_BYTES if kind == _RLE else header >> _BLOCK_SIZE_SHIFT)
        last = header & _LAST
    return at


def _cut(start: int, stored: memoryview) -> DataLoss:
    return DataLoss(f"the zstd frame at {start} is cut: its bytes end at {len(stored)}")
