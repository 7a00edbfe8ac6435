"""Whole blocks of a cold object on their way into memory: fetched, checked, and fetched once more where one differs."""

from __future__ import annotations

from tierfs.chunkstore.protocol import ChunkStorage, OnReceived
from tierfs.errors import DataLoss
from tierfs.metadata.records import ObjectRecord
from tierfs.metrics import MetricName, MetricSink
from tierfs.reading.etags import Etags
from tierfs.reading.grid import Grid
from tierfs.types import CRC_BLOCK_BYTES, ByteRange


class BlockDiffers(DataLoss):
    """Bytes arrived that do not match their CRC32C."""

    def __init__(self, message: str, block: ByteRange) -> None:
        """`block`: the first one, as bytes of the object; those before it were delivered."""
        super().__init__(message, remedy="run: tierfs fsck --deep")
        self.block = block


class CheckedBlocks:
    """Memory for some blocks of one object, of which the first `filled` bytes were checked."""

    __slots__ = ("_next_block", "filled", "grid", "holder", "start", "view")

    def __init__(self, holder: ObjectRecord, grid: Grid, start: int, view: memoryview) -> None:
        """`view` is to hold the object's bytes from `start` on, whole blocks of `grid`."""
        self.holder = holder
        self.grid = grid
        self.start = start
        self.view = view
        self.filled = 0
        self._next_block = (start - grid.range.start) // CRC_BLOCK_BYTES

    def arrived(self, received: int) -> None:
        """Check the blocks that are whole, now that so many bytes are in the view. Raises BlockDiffers."""
        grid = self.grid
        bad, self._next_block = grid.first_bad(self.view, self.start, self._next_block, self.start + received)
        checked = grid.block_start(self._next_block) - self.start
        if checked > self.filled:
            self.show(checked)
        if bad is not None:
            raise BlockDiffers(f"{self.holder.name}: bytes {bad.start} to {bad.end} do not match their checksum", bad)

    def show(self, checked: int) -> None:
        """The first `checked` bytes are right; raises to break the fetch off."""
        self.filled = checked


def fetch(blocks: CheckedBlocks, storage: ChunkStorage, etags: Etags, metrics: MetricSink) -> str | None:
    """Fetch what is missing; returns the etag under which it came, None for any.

    A block that differs is fetched once more, with what follows: a flipped bit on the way is not a bad object. Raises
    BlockDiffers when it still does, what the storage raises, and what `show` raises.
    """
    for is_last in (False, True):
        try:
            for attempt in etags.attempts(blocks.holder):
                with attempt:
                    held = blocks.filled  # what was delivered stays as it is: readers have it
                    # Of a version that is not pinned a repeated try could bring other bytes: checked at the end.
                    progress = None if attempt.etag is None else _shifted(blocks, held)
                    start, view = blocks.start + held, blocks.view[held:]
                    etags.payloads.read_into(storage, blocks.holder, start, view, attempt.etag, progress)
            blocks.arrived(len(blocks.view))
            return attempt.etag
        except BlockDiffers:
            metrics.count(MetricName.CHECKSUM_FAILURES, source="cold")
            if is_last:
                raise
    raise AssertionError("unreachable")


def _shifted(blocks: CheckedBlocks, held: int) -> OnReceived:
    """For a fetch that begins after the first `held` bytes."""
    return lambda received: blocks.arrived(held + received)
