"""One attempt to fetch a span into a buffer of its own, in a thread: bytes are checked as they arrive.

A span may have two transfers, the second a hedge against a slow first one. The one that delivers its first
checked block leads; the other one ends at its next step.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import trio

from tierfs.chunkstore.protocol import ChunkStorage
from tierfs.errors import DataLoss
from tierfs.reading.buffers import PooledBuffer
from tierfs.reading.etags import Etags
from tierfs.reading.payloads import Payloads
from tierfs.types import CRC_BLOCK_BYTES, MIB, ByteRange

if TYPE_CHECKING:
    from tierfs.reading.spans import Span

_WORTH_BREAKING_OFF_BYTES = 2 * MIB
"""A transfer that nobody wants goes on if less is left: a new connection costs more."""

_RELEASED = PooledBuffer(0, memoryview(b""))

_lock = threading.Lock()
"""Guards who leads a span and who begins a transfer; held for an instant, once or twice per transfer."""


class BlockDiffers(DataLoss):
    """Bytes arrived that do not match their CRC32C."""

    def __init__(self, message: str, block: ByteRange) -> None:
        """`block`: the first one, as bytes of the object; those before it were delivered."""
        super().__init__(message, remedy="run: tierfs fsck --deep")
        self.block = block


class BrokenOff(Exception):
    """Nobody wants these bytes any more: not a failure of the storage."""


class Transfer:
    """Fills `buffer`; bytes below `filled` were checked."""

    __slots__ = (
        "_next_block",
        "_token",
        "_wake_last",
        "begun",
        "buffer",
        "cached_bytes",
        "etag",
        "filled",
        "first_byte_s",
        "span",
        "started_s",
    )

    def __init__(self, span: Span, buffer: PooledBuffer) -> None:
        self.span = span
        self.buffer = buffer
        self.filled = 0
        self.cached_bytes = 0
        """What of it the disk cache held."""
        self.etag: str | None = None
        """Under which the bytes came that arrived last; None for any."""
        self.begun = False
        """Whether it left the queue: a thread fills the buffer, or it was withdrawn."""
        self.started_s: float | None = None
        self.first_byte_s: float | None = None
        """Seconds from its start to the first bytes."""
        self._next_block = 0
        self._token: trio.lowlevel.TrioToken | None = None
        self._wake_last = True

    @property
    def view(self) -> memoryview:
        """The memory of the whole span, as it was asked for."""
        return self.buffer.view[: self.span.grid.range.length_bytes]

    def release(self) -> PooledBuffer:
        """Part with the buffer. Who still refers to this transfer, as queues may, does not keep the memory."""
        buffer, self.buffer = self.buffer, _RELEASED
        return buffer

    def deliver_to(self, token: trio.lowlevel.TrioToken, *, last: bool) -> None:
        """Wake readers of this loop from now on; `last`: also those of the last bytes, whom else the end wakes."""
        self._token = token
        self._wake_last = last

    def begin(self) -> bool:
        """Take it out of the queue; False when somebody else did."""
        with _lock:
            first, self.begun = not self.begun, True
            return first

    def resume(self, held: int) -> None:
        """The first `held` bytes, whole blocks, are in the buffer already and were checked."""
        if held > self.filled:
            self.cached_bytes = held
            self._next_block = -(-held // CRC_BLOCK_BYTES)
            self._show(held)

    def run(self, storage: ChunkStorage, etags: Etags) -> None:
        """Fetch what is missing, if anything is. Raises BlockDiffers, BrokenOff, and what the storage raises."""
        self._stop_if_slower()
        span = self.span
        if self.filled == span.end - span.start:
            return
        self.clock_started()
        if span.holder.length < span.end:
            raise DataLoss(f"{span.holder.name} has {span.holder.length} bytes, its chunks need {span.end}")
        self.etag = etags.read(span.holder, lambda etag: self._read_rest(storage, etags.payloads, etag))
        self.arrived(span.end - span.start)

    def _read_rest(self, storage: ChunkStorage, payloads: Payloads, etag: str | None) -> None:
        """What was delivered stays as it is: readers have it."""
        span, held = self.span, self.filled
        # Of a version that is not pinned a try that begins anew could bring other bytes: all are checked at the end.
        progress = None if etag is None else lambda received: self.arrived(held + received)
        payloads.read_into(storage, span.holder, span.start + held, self.view[held:], etag, progress)

    def clock_started(self) -> None:
        """The request goes out now."""
        self.started_s = time.monotonic()

    def arrived(self, received: int) -> None:
        """Check the blocks that are whole now, and wake who waits for them."""
        span = self.span
        if self.first_byte_s is None and self.started_s is not None:
            self.first_byte_s = time.monotonic() - self.started_s
        grid = span.grid
        bad, self._next_block = grid.first_bad(self.view, span.start, self._next_block, span.start + received)
        checked = grid.block_start(self._next_block) - span.start
        if checked > self.filled:
            self._show(checked)
        if bad is not None:
            raise BlockDiffers(f"{span.holder.name}: bytes {bad.start} to {bad.end} do not match their checksum", bad)

    def _show(self, checked: int) -> None:
        """Let readers have the first `checked` bytes."""
        span = self.span
        self.filled = checked
        if span.leader is not self:
            self._take_the_lead()
        self._stop_if_unwanted()
        if self._token is None or (checked == span.end - span.start and not self._wake_last):
            return
        if any(needed <= checked for needed, _ in list(span.waiters)):
            with suppress(trio.RunFinishedError):  # the reader is gone; so is whoever waited
                self._token.run_sync_soon(span.wake)

    def _take_the_lead(self) -> None:
        with _lock:
            if self.span.leader is None:
                self.span.leader = self
        self._stop_if_slower()

    def _stop_if_slower(self) -> None:
        if self.span.leader is not None and self.span.leader is not self:
            raise BrokenOff(f"{self.span.holder.name}: another transfer was faster")

    def _stop_if_unwanted(self) -> None:
        span = self.span
        if span.abandoned and span.end - span.start - self.filled > _WORTH_BREAKING_OFF_BYTES:
            raise BrokenOff(f"{span.holder.name}: nobody reads it any more")
