"""Plain bytes of a compressed object, unpacked frame by frame as the stored ones arrive."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tierfs.base.words.errors import DataLoss
from tierfs.base.words.types import MIB, ByteRange
from tierfs.reading.scratch import Scratch

if TYPE_CHECKING:
    from tierfs.engine.frames.frame_map import FrameMap

log = logging.getLogger(__name__)

# Plain bytes that are unpacked in one step, and shown to their readers while they are hot in the processor's cache.
_STEP_BYTES = MIB


class FrameShare:
    """The wanted plain bytes in neighbouring frames of one row, unpacked as they arrive."""

    __slots__ = ("_frames", "_index", "_stop", "_wanted", "begin", "finish")

    def __init__(self, frames: FrameMap, wanted: ByteRange, numbers: range | None = None) -> None:
        """`wanted` is a range of the object inside the frames, not empty. `numbers`: only that part of it in these."""
        self._frames = frames
        numbers = frames.holding(wanted) if numbers is None else numbers
        self._wanted = wanted.intersect(ByteRange(frames.starts[numbers.start], frames.starts[numbers.stop]))
        self._index, self._stop = numbers.start, numbers.stop
        self.begin = frames.stored[self._index]
        """Offset of the first byte in the stored object."""
        self.finish = frames.stored[self._stop]

    @property
    def length_bytes(self) -> int:
        """Number of the wanted plain bytes."""
        return self._wanted.length_bytes

    @property
    def frames(self) -> int:
        """Number of the frames that are still to be unpacked."""
        return self._stop - self._index

    @property
    def taken(self) -> bool:
        """Whether all of it was unpacked."""
        return self._index == self._stop

    def cut(self, most_stored_bytes: int) -> list[FrameShare]:
        """Return it in parts of at most so many stored bytes, or of one frame each."""
        parts: list[FrameShare] = []
        first = self._index
        for index in range(first + 1, self._stop + 1):
            if index == self._stop or self._frames.stored[index + 1] - self._frames.stored[first] > most_stored_bytes:
                parts.append(FrameShare(self._frames, self._wanted, range(first, index)))
                first = index
        return parts

    def spoils(self, gap_bytes: int, origin: int, done: int) -> bool:
        """Return whether unpacking into the memory of the stored bytes would overwrite some before their turn.

        They start `gap_bytes` after the plain ones, with the byte at `origin`; `done` plain ones precede the share's.
        """
        frames, wanted = self._frames, self._wanted
        for index in range(self._index, self._stop):
            written = done + max(0, frames.starts[index] - wanted.start)
            if written > gap_bytes + frames.stored[index] - origin:
                return True
        return False

    def take(self, scratch: Scratch, arrived: int, view: memoryview, done: int) -> int:
        """Unpack arrived frames to `view` from `done` on, about a MiB; return the filled length of `view`.

        It stops in front of a frame that does not fit into `view`.
        """
        starts, stored, wanted = self._frames.starts, self._frames.stored, self._wanted
        arrived_end, limit = scratch.origin + arrived, len(view)
        # Plain numbers, not ranges: this runs 8,192 times for each GiB.
        end, index, wanted_end = done, self._index, wanted.end
        while index < self._stop and end - done < _STEP_BYTES and stored[index + 1] <= arrived_end:
            start, stop = starts[index], starts[index + 1]
            first, last = max(start, wanted.start), min(stop, wanted_end)
            plain_end = end + last - first
            if plain_end > limit:
                break
            packed = scratch.bytes(stored[index], stored[index + 1])
            if (first, last) == (start, stop):
                if start < stop:  # else stored bytes between frames
                    unpack_or_zeros(packed, view[end:plain_end], start)
            else:
                whole = memoryview(bytearray(stop - start))
                unpack_or_zeros(packed, whole, start)
                view[end:plain_end] = whole[first - start : last - start]
            index, end = index + 1, plain_end
            self._index = index
        return end


def unpack_or_zeros(packed: memoryview, view: memoryview, start: int) -> None:
    """Unpack a frame, or fill `view` with zeros; `start` is its offset in the plain bytes, for the log."""
    from tierfs.engine.frames import zstd  # readers of plain objects need no library

    try:
        zstd.decompress_into(packed, view)
    except DataLoss as exc:
        # The checksums of the plain bytes decide: zeros differ from them, and the reader tries again, or accuses.
        log.info("the frame of bytes %d to %d cannot be unpacked: %s", start, start + len(view), exc)
        view[:] = bytes(len(view))
