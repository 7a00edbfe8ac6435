"""Compress bytes to one zstd frame, and decompress frames: the one door to the library.

A frame of a compressed object is decompressed only where it is whole, says how many bytes it has, and these fit into
what is left of the buffer. The library then writes straight into the buffer, and takes no memory in proportion to its
input. Frames of others, in messages and files, may have any form: they are decompressed up to a limit, or as a stream.
"""

from __future__ import annotations

import threading
from typing import IO, TYPE_CHECKING, cast

from tierfs.base.bytes.checksum import Buffer
from tierfs.base.system.extras import needed_by
from tierfs.base.words.errors import DataLoss
from tierfs.engine.frames.boundaries import (
    CHECKSUM,
    CHECKSUM_BYTES,
    DESCRIPTOR,
    MAGIC,
    WINDOW_LIMIT_BYTES,
    FrameWalk,
    frame_at,
)

if TYPE_CHECKING:
    from zstandard import ZstdCompressor, ZstdDecompressor, ZstdError

# Largest window of a frame of others: the limit of the program zstd without its option --long.
_FOREIGN_WINDOW_BYTES = 128 << 20

_INCOMPLETE = "its last frame is not complete"

# What fails without the library, for its error.
_TASK = "zstd compression"


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
        with needed_by(_TASK):
            from zstandard import ZstdCompressor

        compressor = ZstdCompressor(level=level, write_checksum=True, write_content_size=True)
        _contexts.compressors[level] = compressor
    return compressor.compress(data)


def decompress_into(stored: memoryview, view: memoryview) -> None:
    """Decompress `stored`, consecutive frames, into `view`; they fill it exactly.

    The GIL is released. `stored` is copied first: the two may share memory. Raises DataLoss for frames that cannot be
    unpacked, for other bytes between or after them, for frames without their size, with a dictionary or too large a
    window, and for more or fewer bytes than `view` has. The bytes in `view` are undefined then. The checksums of the
    frames are not compared: callers compare their CRC32C.
    """
    unsummed = _unsummed(stored, len(view))
    if not len(view):
        return
    decompressor = _decompressor()
    try:
        count = decompressor.stream_reader(unsummed, read_across_frames=True).readinto(view)
    except _error() as exc:
        raise DataLoss(f"zstd frames are damaged: {exc}") from exc
    if count != len(view):
        raise DataLoss(f"zstd frames are damaged: they have {count} bytes, not {len(view)}")


def _decompressor() -> ZstdDecompressor:
    if _contexts.decompressor is None:
        with needed_by(_TASK):
            from zstandard import ZstdDecompressor

        _contexts.decompressor = ZstdDecompressor(max_window_size=WINDOW_LIMIT_BYTES)
    return _contexts.decompressor


def _error() -> type[ZstdError]:
    """Return what the contexts raise. Looked up only where something was raised."""
    from zstandard import ZstdError

    return ZstdError


def _unsummed(stored: memoryview, plain_bytes: int) -> Buffer:
    """Return frames without their checksums. Raises DataLoss unless `stored` is whole ones, of `plain_bytes` in all.

    To compare its checksum takes an eighth of the time of a frame, a copy of its stored bytes a hundredth (measured),
    and the library has no switch for it (ZSTD_d_forceIgnoreChecksum).
    """
    parts: list[Buffer] = []
    start, total_bytes = 0, 0
    while start < len(stored):
        frame = frame_at(stored, start)
        total_bytes += frame.plain_bytes
        if frame.has_checksum:
            after, descriptor = start + DESCRIPTOR + 1, stored[start + DESCRIPTOR]
            parts += [MAGIC, bytes([descriptor ^ CHECKSUM]), stored[after : frame.end - CHECKSUM_BYTES]]
        else:
            parts.append(stored[start : frame.end])
        start = frame.end
    if total_bytes != plain_bytes:
        raise DataLoss(f"zstd frames are damaged: they have {total_bytes} bytes, not {plain_bytes}")
    return b"".join(parts)


def decompress(stored: Buffer, limit_bytes: int) -> bytes:
    """Return the plain bytes of frames of any form, their checksums compared.

    Raises DataLoss for damage, for other bytes between or after them, and for more than `limit_bytes`.
    """
    walk = FrameWalk()
    walk.feed(stored)
    decompressor = _foreign()
    try:
        output = decompressor.stream_reader(stored, read_across_frames=True).read(limit_bytes + 1)
    except _error() as exc:
        raise DataLoss(str(exc)) from exc
    if len(output) > limit_bytes:
        raise DataLoss(f"it unpacks to more than {limit_bytes} bytes")
    if not walk.is_whole:
        raise DataLoss(_INCOMPLETE)
    return output


class Unpacking:
    """Decompresses frames of any form as a stream, in bounded memory, and compares their checksums."""

    def __init__(self, packed: IO[bytes]) -> None:
        """`packed` stays open."""
        self._walk = FrameWalk()
        self._reader = _foreign().stream_reader(
            cast(IO[bytes], _WalkedFile(packed, self._walk)), read_across_frames=True
        )

    def read(self, size_bytes: int) -> bytes:
        """Return the next bytes, none at the end. Raises DataLoss for damage, and where the last frame is cut."""
        try:
            output = self._reader.read(size_bytes)
        except _error() as exc:
            raise DataLoss(str(exc)) from exc
        if not output and size_bytes and not self._walk.is_whole:
            raise DataLoss(_INCOMPLETE)
        return output

    def close(self) -> None:
        """Do nothing: the file stays open."""


class _WalkedFile:
    """A file whose frames are walked over as the library reads it."""

    def __init__(self, packed: IO[bytes], walk: FrameWalk) -> None:
        self._packed, self._walk = packed, walk

    def read(self, size_bytes: int) -> bytes:
        data = self._packed.read(size_bytes)
        self._walk.feed(data)
        return data


def _foreign() -> ZstdDecompressor:
    """Return a context of its own, because it keeps the window of a frame."""
    with needed_by(_TASK):
        from zstandard import ZstdDecompressor

    return ZstdDecompressor(max_window_size=_FOREIGN_WINDOW_BYTES)
