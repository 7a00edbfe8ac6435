"""A range of one object's bytes in memory, and the transfers that fill it, each with a buffer of its own.

A span may have two transfers, the second a hedge against a slow first one. The first to deliver a checked block leads;
the other ends at its next step. A transfer is filled in a thread or on the loop; everything else of a span is for the
trio loop only.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress

import trio

from tierfs.base.system.metrics import MetricSink
from tierfs.base.words.errors import DataLoss, TierfsError
from tierfs.base.words.types import CRC_BLOCK_BYTES, MIB, ByteRange, Payer
from tierfs.engine.chunkstore.protocol import ChunkStorage
from tierfs.engine.metadata.records import ObjectRecord
from tierfs.reading.etags import Etags
from tierfs.reading.fetch.buffers import PooledBuffer
from tierfs.reading.fetch.checked_blocks import CheckedBlocks, fetch
from tierfs.reading.fetch.grid import Grid

# An unwanted transfer continues if less is left: a new connection costs more.
_WORTH_BREAKING_OFF_BYTES = 2 * MIB

_RELEASED = PooledBuffer(0, memoryview(b""))

# Guards the leader of a span and the owner of a transfer; held for an instant, once or twice per transfer.
_lock = threading.Lock()


class BrokenOff(Exception):
    """These bytes are no longer wanted: not a failure of the storage."""


class Span:
    """Bytes [start, end) of one object; those below `start + filled` have arrived and are checked.

    A span whose fetch failed is cut at the end of its arrived bytes.
    """

    __slots__ = (
        "abandoned",
        "ahead",
        "complete",
        "end",
        "error",
        "grid",
        "leader",
        "left",
        "passed_before_bytes",
        "record",
        "start",
        "transfers",
        "urgent",
        "waiters",
    )

    def __init__(self, record: ObjectRecord, grid: Grid, left: Callable[[], None]) -> None:
        """`left` is called when no reader waits for the span any more."""
        self.record = record
        self.grid = grid
        self.left = left
        self.start, self.end = grid.range.start, grid.range.end
        self.leader: Transfer | None = None
        """The transfer whose bytes are read: the first to deliver any."""
        self.transfers: list[Transfer] = []
        """Transfers that have not ended."""
        self.urgent = False
        """Queued with a waiting reader."""
        self.complete = False
        self.abandoned = False
        self.ahead = False
        """Fetched for a session that reads on: once passed it is rarely wanted again."""
        self.passed_before_bytes = 0
        """Bytes that readers had passed when it was requested: its age."""
        self.error: TierfsError | None = None
        self.waiters: list[tuple[int, trio.Event]] = []

    @property
    def queued(self) -> bool:
        """Whether its first transfer has no owner yet."""
        return not self.complete and not self.transfers[0].owned

    @property
    def filled(self) -> int:
        """Number of readable bytes from the start on."""
        return 0 if self.leader is None else self.leader.filled

    def has(self, wanted: ByteRange) -> bool:
        """Return whether the bytes, which lie inside the span, have arrived."""
        return self.leader is not None and self.start + self.leader.filled >= wanted.end

    def slice(self, wanted: ByteRange) -> memoryview:
        """Return the bytes, which have arrived, without a copy."""
        assert self.leader is not None
        return wanted.of(self.leader.buffer.view, self.start)

    async def wait_for(self, wanted: ByteRange) -> None:
        """Wait until the bytes have arrived; raise the fetch's error."""
        needed = wanted.end - self.start
        while self.filled < needed:
            if self.error is not None:
                raise self.error
            event = trio.Event()
            entry = (needed, event)
            self.waiters.append(entry)
            try:
                # The thread may have raised `filled` before it could see this waiter.
                if self.filled < needed:
                    await event.wait()
            finally:
                self.waiters.remove(entry)
                if not self.waiters:
                    self.left()

    def wake(self) -> None:
        """Wake the readers whose bytes have arrived, or all after an error."""
        filled = self.filled
        for needed, event in self.waiters:
            if self.error is not None or needed <= filled:
                event.set()


class Transfer(CheckedBlocks):
    """One attempt to fill a span. It waits for an owner, and keeps that one until it ends."""

    __slots__ = (
        "_token",
        "_wake_last",
        "buffer",
        "cached_bytes",
        "charged_bytes",
        "etag",
        "first_byte_s",
        "owned",
        "payer",
        "span",
        "started_s",
    )

    def __init__(self, span: Span, buffer: PooledBuffer) -> None:
        super().__init__(span.record, span.grid, span.start, buffer.view[: span.grid.range.length_bytes])
        self.span = span
        self.buffer = buffer
        self.cached_bytes = 0
        """Bytes of it from the disk cache."""
        self.etag: str | None = None
        """Etag of the bytes that arrived last; None for any."""
        self.owned = False
        """Whether a thread or the loop fills the buffer, or the transfer was withdrawn."""
        self.payer: Payer | None = None
        """The reader that it counts for, by the gate; None without one."""
        self.charged_bytes = 0
        self.started_s: float | None = None
        self.first_byte_s: float | None = None
        """Seconds from its start to the first bytes."""
        self._token: trio.lowlevel.TrioToken | None = None
        self._wake_last = True

    def release(self) -> PooledBuffer:
        """Give up the buffer, so that a queue that still refers to this transfer does not keep the memory."""
        buffer, self.buffer, self.view = self.buffer, _RELEASED, _RELEASED.view
        return buffer

    def deliver_to(self, token: trio.lowlevel.TrioToken, *, last: bool) -> None:
        """Wake readers of this loop from now on; `last` includes those of the last bytes, else woken at the end."""
        self._token = token
        self._wake_last = last

    def own(self) -> bool:
        """Take ownership, for good; return False if it has an owner."""
        with _lock:
            first, self.owned = not self.owned, True
            return first

    def resume(self, held: int) -> None:
        """Continue after the first `held` bytes: whole blocks, checked and already in the buffer."""
        if held > self.filled:
            self.cached_bytes = held
            self._next_block = -(-held // CRC_BLOCK_BYTES)
            self.show(held)

    def run(self, storage: ChunkStorage, etags: Etags, metrics: MetricSink) -> None:
        """Fetch the missing bytes, if any. Raises BrokenOff, DataLoss for a short object, and as `grid.fetch` does."""
        self._stop_if_slower()
        span = self.span
        if self.filled == span.end - span.start:
            return
        self.clock_started()
        if span.record.length < span.end:
            raise DataLoss(f"{span.record.name} has {span.record.length} bytes, its chunks need {span.end}")
        self.etag = fetch(self, storage, etags, metrics)

    def clock_started(self) -> None:
        """Start the clock: the request is sent now."""
        self.started_s = time.monotonic()

    def arrived(self, received: int) -> None:
        """Check the complete blocks, and wake the readers that wait for them."""
        if self.first_byte_s is None and self.started_s is not None:
            self.first_byte_s = time.monotonic() - self.started_s
        super().arrived(received)

    def show(self, checked: int) -> None:
        """Show readers the first `checked` bytes. Raises BrokenOff."""
        span = self.span
        self.filled = checked
        if span.leader is not self:
            self._take_the_lead()
        self._stop_if_unwanted()
        if self._token is None or (checked == span.end - span.start and not self._wake_last):
            return
        if any(needed <= checked for needed, _ in list(span.waiters)):
            with suppress(trio.RunFinishedError):  # the reader is gone, and its waiters too
                self._token.run_sync_soon(span.wake)

    def _take_the_lead(self) -> None:
        with _lock:
            if self.span.leader is None:
                self.span.leader = self
        self._stop_if_slower()

    def _stop_if_slower(self) -> None:
        if self.span.leader is not None and self.span.leader is not self:
            raise BrokenOff(f"{self.span.record.name}: another transfer was faster")

    def _stop_if_unwanted(self) -> None:
        span = self.span
        if span.abandoned and span.end - span.start - self.filled > _WORTH_BREAKING_OFF_BYTES:
            raise BrokenOff(f"{span.record.name}: no reader needs it any more")
