"""What a sequential reader will want next: one session per handle, with a window that doubles.

The first range starts at the requested offset, rounded down to a checksum block, and is 1 MiB. Each
refill doubles the window. Jumps end the run; a reader that keeps jumping gets only what it asks for.
"""

from __future__ import annotations

from dataclasses import dataclass

from tierfs.types import CRC_BLOCK_BYTES, MIB, ByteRange

FIRST_WINDOW_BYTES = MIB
_SLACK_BYTES = MIB
"""The kernel sends the requests of one reader out of order, up to its own read-ahead apart."""

_RANDOM_AFTER_JUMPS = 2
_MAX_RANGE_BYTES = 16 * MIB
_STREAMS_PER_WINDOW = 4


@dataclass(slots=True)
class Session:
    """Where one reader is, and how far ahead of it was asked for. Offsets are the segment's."""

    position: int = -1
    ahead: int = -1
    window_bytes: int = FIRST_WINDOW_BYTES
    jumps: int = 0

    def plan(self, wanted: ByteRange, max_window_bytes: int, length: int) -> ByteRange | None:
        """Note a read and return the bytes to ask for now, starting at or before `wanted`.

        None when enough is on its way already.
        """
        if self._continues(wanted):
            if wanted.end > self.position:
                self.position, self.jumps = wanted.end, 0
        else:
            self.jumps = self.jumps + 1 if self.position >= 0 else 0
            self.position = wanted.end
            self.ahead = wanted.start - wanted.start % CRC_BLOCK_BYTES
            self.window_bytes = min(FIRST_WINDOW_BYTES, max_window_bytes)
        if self.jumps >= _RANDOM_AFTER_JUMPS:
            self.ahead = max(self.ahead, wanted.end)
            return wanted
        target = min(length, max(wanted.end, wanted.start + self.window_bytes))
        missing = target - self.ahead
        enough = min(self.range_bytes(), self.window_bytes // 2)  # so that no stream idles
        if missing <= 0 or (missing < enough and target < length and self.ahead >= wanted.end):
            return None
        plan = ByteRange(self.ahead, target)
        self.ahead = target
        self.window_bytes = min(max_window_bytes, self.window_bytes * 2)
        return plan

    def range_bytes(self) -> int:
        """How much one fetch of the window gets: large enough to be cheap, small enough to run in parallel."""
        share = self.window_bytes // _STREAMS_PER_WINDOW
        return min(_MAX_RANGE_BYTES, max(MIB, share))

    def _continues(self, wanted: ByteRange) -> bool:
        return self.position >= 0 and self.position - _SLACK_BYTES <= wanted.start <= self.ahead
