"""Whole blocks of a cold object, fetched into memory and checked; a block that differs is fetched once more."""

from __future__ import annotations

from tierfs.base.system.metrics import MetricName, MetricSink
from tierfs.base.words.errors import DataLoss
from tierfs.base.words.types import CRC_BLOCK_BYTES, ByteRange
from tierfs.engine.chunkstore.located import PlaceSeen
from tierfs.engine.chunkstore.protocol import ChunkStorage, OnReceived
from tierfs.engine.metadata.records import ObjectRecord
from tierfs.reading.etags import Etags
from tierfs.reading.fetch.grid import Grid


class BlockDiffers(DataLoss):
    """Arrived bytes do not match their CRC32C."""

    def __init__(self, message: str, block: ByteRange) -> None:
        """`block` is the first bad block, as bytes of the object; blocks before it were delivered."""
        super().__init__(message, remedy="run: tierfs check --read")
        self.block = block


class CheckedBlocks:
    """Memory for some blocks of one object; the first `filled` bytes are checked."""

    __slots__ = ("_next_block", "filled", "grid", "record", "start", "view")

    def __init__(self, record: ObjectRecord, grid: Grid, start: int, view: memoryview) -> None:
        """`view` is for the object's bytes from `start` on, whole blocks of `grid`."""
        self.record = record
        self.grid = grid
        self.start = start
        self.view = view
        self.filled = 0
        self._next_block = (start - grid.range.start) // CRC_BLOCK_BYTES

    def arrived(self, received: int) -> None:
        """Check the blocks that are complete with so many bytes in the view. Raises BlockDiffers."""
        grid = self.grid
        bad, self._next_block = grid.first_bad(self.view, self.start, self._next_block, self.start + received)
        checked = grid.block_start(self._next_block) - self.start
        if checked > self.filled:
            self.show(checked)
        if bad is not None:
            raise BlockDiffers(f"{self.record.name}: bytes {bad.start} to {bad.end} do not match their checksum", bad)

    def show(self, checked: int) -> None:
        """Take note that the first `checked` bytes are right; an override raises to stop the fetch."""
        self.filled = checked


def fetch(blocks: CheckedBlocks, storage: ChunkStorage, etags: Etags, metrics: MetricSink) -> str | None:
    """Fetch the missing bytes; return the etag under which they arrived, None for any.

    A block that differs is fetched once more, with those after it: a bit flipped in transit is not a bad object, and
    one of a place that the storage has left by now says nothing of the one where it is. Raises
    BlockDiffers if it still differs, and the errors of the storage and of `show`.
    """
    place, is_last = PlaceSeen(storage), False
    while True:
        try:
            for attempt in etags.attempts(blocks.record):
                with attempt:
                    held = blocks.filled  # delivered bytes stay unchanged: readers have them
                    # Without an etag a repeated try could deliver another version's bytes: check at the end.
                    progress = None if attempt.etag is None else _shifted(blocks, held)
                    start, view = blocks.start + held, blocks.view[held:]
                    etags.plain.read_into(storage, blocks.record, start, view, attempt.etag, progress)
            blocks.arrived(len(blocks.view))
            return attempt.etag
        except DataLoss as exc:
            # Another process may have repaired the rows that place the bytes in a compressed object, or in a ledger's.
            etags.plain.forget(blocks.record.id)
            if not isinstance(exc, BlockDiffers):
                raise
            metrics.count(MetricName.CHECKSUM_FAILURES, source="cold")
            if place.was_left():
                continue
            if is_last:
                raise
            is_last = True


def _shifted(blocks: CheckedBlocks, held: int) -> OnReceived:
    """Return the progress callback of a fetch that begins after the first `held` bytes."""
    return lambda received: blocks.arrived(held + received)
