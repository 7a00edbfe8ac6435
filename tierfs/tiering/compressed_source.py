"""The stored form of a compressed object, as a Source of known length.

All frames are compressed once before the upload, because its parts need their places. They are kept in memory
up to a limit for the whole process; the others are compressed again when they are sent, which gives the same bytes.
"""

from __future__ import annotations

import os
import threading
from bisect import bisect_right
from collections.abc import Sequence
from itertools import chain

from tierfs.base.bytes.checksum import Buffer, Stretch, joined
from tierfs.base.bytes.frozen import dataclass
from tierfs.base.bytes.parallel import Pool
from tierfs.base.options.policy import Policy
from tierfs.base.words.errors import Unavailable
from tierfs.base.words.types import MIB, Compression
from tierfs.engine.chunkstore.protocol import Source
from tierfs.engine.frames import zstd
from tierfs.engine.frames.frame_map import FRAME_BYTES, FrameMap
from tierfs.engine.frames.seek_table import FrameSize, seek_table

# Compressed frames that wait for their uploads, of all uploads of the process (a guess: eight objects of log lines).
_MOST_KEPT_BYTES = 64 * MIB

# Plain bytes that are read and compressed in one step.
_STEP_BYTES = MIB

# Part of the first step's bytes that compressing has to save under `auto`.
_WORTH_SAVING = 0.1


class FrameRoom:
    """Memory for compressed frames, of all sources together. Thread-safe."""

    def __init__(self, limit_bytes: int) -> None:
        self.left_bytes = limit_bytes
        self._lock = threading.Lock()

    def take(self, size_bytes: int) -> bool:
        """Take room; return False, with nothing taken, if there is not enough."""
        with self._lock:
            if size_bytes > self.left_bytes:
                return False
            self.left_bytes -= size_bytes
            return True

    def give_back(self, size_bytes: int) -> None:
        """Return room."""
        with self._lock:
            self.left_bytes += size_bytes


ROOM = FrameRoom(_MOST_KEPT_BYTES)


@dataclass(frozen=True, slots=True)
class _Frame:
    """A compressed frame."""

    size: FrameSize
    stored: Stretch
    kept: bytes | None
    """Its bytes; a frame without them is compressed again when it is sent."""


class _Compressor:
    """Compresses bytes of one source, and has the room that the frames take. Thread-safe."""

    def __init__(self, plain: Source, level: int) -> None:
        self._plain = plain
        self._level = level
        self._lock = threading.Lock()
        self._kept_bytes = 0

    def step(self, start: int) -> list[_Frame]:
        """Return the frames of the next _STEP_BYTES from `start` on, where a frame starts."""
        data = memoryview(self._plain.read(start, min(_STEP_BYTES, self._plain.length_bytes - start)))
        return [self._frame(data[at : at + FRAME_BYTES]) for at in range(0, len(data), FRAME_BYTES)]

    def again(self, index: int, frame: _Frame) -> bytes:
        """Return the bytes of frame `index`, which were not kept. Raises Unavailable if the source has others now."""
        stored = zstd.compressed(self._plain.read(index * FRAME_BYTES, frame.size.plain_bytes), self._level)
        if Stretch.of(stored) != frame.stored:
            raise Unavailable("the bytes of an upload changed between two reads", remedy="retry")
        return stored

    def close(self) -> None:
        """Return the room of all frames; idempotent."""
        with self._lock:
            kept_bytes, self._kept_bytes = self._kept_bytes, 0
        ROOM.give_back(kept_bytes)

    def _frame(self, data: memoryview) -> _Frame:
        stored = zstd.compressed(data, self._level)
        is_kept = ROOM.take(len(stored))
        if is_kept:
            with self._lock:
                self._kept_bytes += len(stored)
        return _Frame(FrameSize(len(stored), len(data)), Stretch.of(stored), stored if is_kept else None)


class CompressedSource:
    """A Source of the stored bytes of a plain Source. Thread-safe; close it."""

    def __init__(self, plain: Source, compressor: _Compressor, frames: Sequence[_Frame], index: bytes) -> None:
        """`compressed` makes it. `index` is whole frames that are skipped, in front of the seek table."""
        self._plain = plain
        self._compressor = compressor
        self._frames = frames
        sizes = [frame.size for frame in frames]
        self._tail = index + seek_table([*sizes, FrameSize(len(index), 0)] if index else sizes)
        self.frames = FrameMap.of(0, 0, (FRAME_BYTES,), [size.stored_bytes for size in sizes], plain.length_bytes)
        """The places of its frames."""
        self.crc32c = joined([*(frame.stored for frame in frames), Stretch.of(self._tail)]).crc32c
        """The CRC32C of all stored bytes."""

    @property
    def plain_bytes(self) -> int:
        """Number of the bytes before they were compressed."""
        return self._plain.length_bytes

    @property
    def length_bytes(self) -> int:
        """Total number of stored bytes."""
        return self.frames.stored[-1] + len(self._tail)

    def read(self, offset: int, length_bytes: int) -> Buffer:
        """See Source.read."""
        stored, end = self.frames.stored, offset + length_bytes
        pieces: list[memoryview] = []
        at = offset
        while at < min(end, stored[-1]):
            index = bisect_right(stored, at) - 1
            pieces.append(memoryview(self._stored(index))[at - stored[index] : end - stored[index]])
            at = stored[index + 1]
        if end > stored[-1]:
            pieces.append(memoryview(self._tail)[max(0, offset - stored[-1]) : end - stored[-1]])
        return b"".join(pieces)

    def close(self) -> None:
        """Free the memory of the frames; idempotent."""
        self._frames = ()
        self._compressor.close()

    def _stored(self, index: int) -> bytes:
        frame = self._frames[index]
        return self._compressor.again(index, frame) if frame.kept is None else frame.kept


def compressed(plain: Source, policy: Policy, index: bytes = b"") -> CompressedSource | None:
    """Return the compressed form of a source as a policy asks for it, None for its plain form. Close it.

    Raises what reading the source raises.
    """
    if policy.compression is Compression.OFF or not plain.length_bytes:
        return None
    compressor = _Compressor(plain, policy.compression_level)
    source: CompressedSource | None = None
    try:
        frames = compressor.step(0)
        if policy.compression is Compression.ZSTD or _saves(frames):
            rest = range(_STEP_BYTES, plain.length_bytes, _STEP_BYTES)
            if rest:
                with Pool(min(len(rest), os.cpu_count() or 1), "tierfs-compress") as pool:
                    frames += chain.from_iterable(pool.run(compressor.step, rest))
            source = CompressedSource(plain, compressor, frames, index)
        return source
    finally:
        if source is None:
            compressor.close()


def saves_enough(plain_bytes: int, stored_bytes: int) -> bool:
    """Return whether `auto` compresses an object, by its first frames."""
    return stored_bytes <= plain_bytes * (1 - _WORTH_SAVING)


def _saves(frames: Sequence[_Frame]) -> bool:
    plain_bytes = sum(frame.size.plain_bytes for frame in frames)
    return saves_enough(plain_bytes, sum(frame.size.stored_bytes for frame in frames))
