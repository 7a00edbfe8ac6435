"""Read ranges of objects of both tiers, and prove them: the one loop of all that waits in threads.

Its rules: an object is read under the etag that its place reports, which is adopted once its bytes prove right; frames
of ledgers are left out; a pack's chunks share blocks, so the chunk's own CRC32C decides about a block that has bytes of
others; a copy is damaged only if two reads of it differ, because a transfer damages bytes once, and both were of the
place where the store's records have it after them. Works without the store's metadata, as on an executor of Spark.
Readers on the trio loop have `fetch`, with the same rules.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple

from tierfs.base.bytes.checksum import crc32c
from tierfs.base.words.errors import Closed, DataLoss, NotFound
from tierfs.base.words.names import printable
from tierfs.base.words.types import CRC_BLOCK_BYTES, MIB, ByteRange, ChunkState, LocationId, SegmentId, Tier
from tierfs.engine.chunkstore.local_files import ChunkFiles
from tierfs.engine.chunkstore.located import PlaceSeen
from tierfs.engine.chunkstore.protocol import ChunkStorage
from tierfs.engine.metadata import chain_edits, checksums
from tierfs.engine.metadata.layout import PlacedChunk
from tierfs.engine.metadata.records import ObjectRecord
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.transaction import ReadTransaction
from tierfs.reading.etags import Etags
from tierfs.reading.fetch.checked_blocks import BlockDiffers
from tierfs.reading.fetch.grid import Grid, cut_grid
from tierfs.reading.plain_bytes import PlainBytes
from tierfs.reading.view import in_object

log = logging.getLogger(__name__)

# Bytes per request where a whole chunk or object is read.
_STEP_BYTES = 4 * MIB

# Reads of bytes that do not match: the transfer may have damaged them once.
TRIES = 2

# Largest chunk held in memory to be proved by its own CRC32C; packs have larger ones only by a setting.
_MOST_WHOLE_BYTES = 64 * MIB


class OwnSum(NamedTuple):
    """A chunk's bytes in its object, and the CRC32C of exactly these."""

    range: ByteRange
    crc32c: int

    def may_save(self, bad: Iterable[ByteRange]) -> bool:
        """Return whether the chunk may be right though these blocks are bad: each has bytes of another chunk."""
        return not any(self.range.contains(block) for block in bad)


def own_sum(placed: PlacedChunk) -> OwnSum | None:
    """Return the chunk's own checksum where it is known."""
    own = placed.chunk.bytes_crc32c
    return None if own is None else OwnSum(in_object(placed.range, placed), own)


def grid_in(txn: ReadTransaction, record: ObjectRecord, wanted: ByteRange) -> Grid:
    """Return the blocks of an object that touch `wanted`, which is not empty. Raises DataLoss for missing checksums."""
    begin, packed = checksums.PackedChecksums(txn).covering(record.id, wanted)
    return cut_grid(begin, packed, wanted, record.length)


def _no_files() -> ChunkFiles:
    raise AssertionError("this reader is for cold objects")


class VerifiedReader:
    """Reads and proves objects. Thread-safe; it waits for disks and servers."""

    def __init__(
        self,
        metadata: MetadataStore | None,
        storage_of: Callable[[LocationId], ChunkStorage],
        files: Callable[[], ChunkFiles] | None = None,
        etags: Etags | None = None,
        plain: PlainBytes | None = None,
    ) -> None:
        """Without `metadata` its callers have the checksums; without `files` only cold objects are read.

        `etags` are those of a process whose readers share them, `plain` that of a task that has its own.
        """
        self._metadata = metadata
        self._storage_of = storage_of
        self.files = files or _no_files
        self.etags = etags or Etags(metadata)
        self._plain = plain

    def fill(self, record: ObjectRecord, offset: int, view: memoryview) -> str | None:
        """Fill `view` from an object, unproved; return the etag of a cold one's bytes, None for any.

        Raises NotFound, DataLoss for a shorter object, and what the storage raises.
        """
        if record.tier is Tier.COLD:
            try:
                return self.etags.read_into(self._storage_of(record.location_id), record, offset, view, self._plain)
            except DataLoss:
                self._forget_rows(record)
                raise
        self.files().read_into(record.name, offset, view)
        return None

    def steps(self, record: ObjectRecord, wanted: ByteRange) -> Iterator[memoryview]:
        """Yield bytes of an object in order, unproved; a step is valid until the next. Raises as `fill`."""
        buffer = memoryview(bytearray(min(_STEP_BYTES, wanted.length_bytes)))
        for start in range(wanted.start, wanted.end, _STEP_BYTES):
            view = buffer[: min(_STEP_BYTES, wanted.end - start)]
            self.fill(record, start, view)
            yield view

    def bad_blocks(self, record: ObjectRecord, grid: Grid, view: memoryview) -> list[ByteRange]:
        """Fill `view` with all blocks of `grid`; return those that differ in this read. Raises as `fill`."""
        etag = self.fill(record, grid.range.start, view)
        bad = list(grid.bad_blocks(view, grid.range.start))
        if bad:
            self._forget_rows(record)
        else:
            self.proved(record, etag)
        return bad

    def proved(self, record: ObjectRecord, etag: str | None) -> None:
        """Note that an object's bytes under this etag match."""
        if record.tier is Tier.COLD:
            self.etags.proved(record, etag)

    def read(self, record: ObjectRecord, wanted: ByteRange, grid: Grid, own: OwnSum | None) -> memoryview:
        """Return bytes of an object that proved right; `grid` has the blocks they touch, `own` is of their chunk.

        Raises BlockDiffers if two reads differ, and as `fill`.
        """
        whole = own is not None and own.range == wanted  # read without the rest of its blocks, which may be much longer
        view = memoryview(bytearray(0 if whole else grid.range.length_bytes))
        tries, place = 0, self.place(record)
        while tries < TRIES:
            bad = [wanted] if whole else self.bad_blocks(record, grid, view)
            if not bad:
                return wanted.of(view, grid.range.start)
            if own is not None and (whole or own.may_save(bad)):
                right = self.by_itself(record, own, wanted)
                if right is not None:
                    return right
            tries = 0 if place.was_left() else tries + 1
        where = f"between bytes {bad[0].start} and {bad[0].end}"
        raise BlockDiffers(f"{printable(record.name)} does not match its checksums {where}", bad[0])

    def by_itself(self, record: ObjectRecord, own: OwnSum, wanted: ByteRange) -> memoryview | None:
        """Return bytes of a chunk, all of which is read and matches its own CRC32C; None if it does not.

        Raises as `fill`.
        """
        whole, at, kept = 0, own.range.start, memoryview(bytearray(wanted.length_bytes))
        for view in self.steps(record, own.range):
            part = ByteRange(at, at + len(view)).intersect(wanted)
            if part:
                part.of(kept, wanted.start)[:] = part.of(view, at)
            whole, at = crc32c(view, whole), at + len(view)
        if whole != own.crc32c:
            self._forget_rows(record)
        return kept if whole == own.crc32c else None

    def grid(self, record: ObjectRecord, wanted: ByteRange) -> Grid:
        """Return the recorded checksums of the blocks that touch `wanted`. Raises DataLoss for missing ones."""
        assert self._metadata is not None
        with self._metadata.read() as txn:
            return grid_in(txn, record, wanted)

    def whole_chunk(self, placed: PlacedChunk) -> memoryview | None:
        """Return the bytes of a small chunk that match its own CRC32C; None for others. Raises as `fill`."""
        own = own_sum(placed)
        if own is None or own.range.length_bytes > _MOST_WHOLE_BYTES:
            return None
        return self.by_itself(placed.object, own, own.range)

    def proves(self, placed: PlacedChunk, stopped: threading.Event | None = None) -> bool:
        """Return whether all of a chunk exists and is right, by one read.

        Raises Unavailable when its tier does not answer, Closed at the next step once `stopped` is set.
        """
        place = self.place(placed.object)
        while True:
            with suppress(NotFound, DataLoss):
                if self._blocks_are_right(placed, stopped) or self.whole_chunk(placed) is not None:
                    return True
            if not place.was_left():
                return False

    def place(self, record: ObjectRecord) -> PlaceSeen:
        """Return where an object is read now. Costs a microsecond, before each read of bytes that may be accused."""
        return PlaceSeen(self._storage_of(record.location_id) if record.tier is Tier.COLD else None)

    def accuse(self, segment_id: SegmentId, placed: PlacedChunk) -> bool:
        """Read a chunk again that failed once; return whether it fails again. If so it is suspect now.

        Raises as `proves`, and what keeps the mark from being written.
        """
        # A defect of ours, too, damages bytes once. A mark keeps the other copies of the bytes from being removed, and
        # a chunk that has none from being offloaded: one read is not enough.
        if self.proves(placed):
            log.warning("%s failed a read, but the second read was valid", printable(placed.object.name))
            return False
        self.suspect(segment_id, placed)
        return True

    def suspect(self, segment_id: SegmentId, placed: PlacedChunk) -> None:
        """Mark a chunk that failed two reads. Raises what keeps the mark from being written."""
        assert self._metadata is not None
        chain_edits.set_state(self._metadata, segment_id, placed.object.tier, placed.chunk, ChunkState.SUSPECT)

    def _forget_rows(self, record: ObjectRecord) -> None:
        """Look up where an object's bytes are before the next read of it: another process may repair the rows."""
        if record.tier is Tier.COLD:
            (self._plain or self.etags.plain).forget(record.id)

    def _blocks_are_right(self, placed: PlacedChunk, stopped: threading.Event | None) -> bool:
        held = in_object(placed.range, placed)
        for start in range(held.start - held.start % CRC_BLOCK_BYTES, held.end, _STEP_BYTES):
            if stopped is not None and stopped.is_set():
                raise Closed(f"{placed.object.name}: the store was closed while it was read")
            step = ByteRange(max(start, held.start), min(start + _STEP_BYTES, held.end))
            grid = self.grid(placed.object, step)
            if self.bad_blocks(placed.object, grid, memoryview(bytearray(grid.range.length_bytes))):
                return False
        return True
