"""Mark copies by the results of reads: a failed one becomes suspect, a lost one that served a read is good again.

So `status` shows failures that were visible only as EIO before. A lost chunk is good again once every byte of it was
read from its object and matched its checksums, not only those its reader wanted (`Prover`). Shared state: marks not
written yet, and chunks read whole in vain; both on the trio loop only. Marks are written in a thread, each decided
again in its own transaction (chain_edits.set_state).
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

import trio

from tierfs.chunkstore.local_files import ChunkFiles
from tierfs.chunkstore.protocol import ChunkStorage
from tierfs.errors import Closed, Conflict, DataLoss, NotFound, PermissionDenied, TierfsError
from tierfs.metadata import chain_edits, checksums
from tierfs.metadata.layout import PlacedChunk
from tierfs.metadata.store import MetadataStore
from tierfs.names import printable
from tierfs.reading.etags import Etags
from tierfs.reading.fetch.grid import grid_of
from tierfs.reading.view import in_object
from tierfs.types import CRC_BLOCK_BYTES, MIB, ByteRange, ChunkState, LocationId, SegmentId, Tier

_STEP_BYTES = 4 * MIB

_MOST_WHOLE_BYTES = 64 * MIB
"""Largest chunk held in memory to be proved by its own CRC32C; packs have larger ones only by a setting."""


class Prover:
    """Checks whole chunks of both tiers. For threads: it waits for disks and servers."""

    def __init__(
        self,
        metadata: MetadataStore,
        files: ChunkFiles,
        storage_of: Callable[[LocationId], ChunkStorage],
        etags: Etags,
    ) -> None:
        self._metadata = metadata
        self._files = files
        self._storage_of = storage_of
        self._etags = etags

    def proves(self, placed: PlacedChunk, stopped: threading.Event) -> bool:
        """Return whether all of a chunk exists and is right.

        Raises Unavailable when its tier does not answer, Closed at the next step once `stopped` is set.
        """
        try:
            return self._blocks_are_right(placed, stopped) or self.whole_chunk(placed) is not None
        except (NotFound, DataLoss):
            return False

    def whole_chunk(self, placed: PlacedChunk) -> memoryview | None:
        """Return the bytes of a small chunk that match its own CRC32C; None for others.

        Raises as reading them does.
        """
        held = in_object(placed.range, placed)
        if placed.chunk.bytes_crc32c is None or held.length_bytes > _MOST_WHOLE_BYTES:
            return None
        view = memoryview(bytearray(held.length_bytes))
        self._fill(placed, held.start, view)
        return view if placed.proves(placed.range, view) else None

    def _blocks_are_right(self, placed: PlacedChunk, stopped: threading.Event) -> bool:
        held = in_object(placed.range, placed)
        begin = held.start - held.start % CRC_BLOCK_BYTES
        for start in range(begin, held.end, _STEP_BYTES):
            if stopped.is_set():
                raise Closed(f"{placed.object.name}: the store was closed while it was read")
            if not self._is_right(placed, ByteRange(max(start, held.start), min(start + _STEP_BYTES, held.end))):
                return False
        return True

    def _is_right(self, placed: PlacedChunk, span: ByteRange) -> bool:
        holder = placed.object
        with self._metadata.read() as txn:
            grid = grid_of(checksums.runs_covering(txn, holder.id, span), span, holder.length)
        view = memoryview(bytearray(grid.range.length_bytes))
        etag = self._fill(placed, grid.range.start, view)
        bad, _ = grid.first_bad(view, grid.range.start, 0, grid.range.end)
        if bad is None and holder.tier is Tier.COLD:
            self._etags.proved(holder, etag)
        return bad is None

    def _fill(self, placed: PlacedChunk, offset: int, view: memoryview) -> str | None:
        """Fill `view` from a chunk's object; return the etag of a cold one, None for any."""
        holder = placed.object
        if holder.tier is Tier.COLD:
            return self._etags.read_into(self._storage_of(holder.location_id), holder, offset, view)
        self._files.read_into(holder.name, offset, view)
        return None


log = logging.getLogger(__name__)

_GATHER_S = 1.0
"""Time for which failures are gathered: each write of marks is a sync of the disk."""

_WAITING = 100
"""Limit of waiting marks; further failures are left to the next reader (a guess)."""

_REMEMBERED = 10_000
"""Unproved chunks that one process remembers: about 2 MB."""

_LARGEST_PROVED_BYTES = 256 * MIB
"""Larger lost chunks are read whole by `verify` and `fsck` only (a guess)."""

_Key = tuple[SegmentId, Tier, int, int, ChunkState]


@dataclass(frozen=True, slots=True)
class _Met:
    segment_id: SegmentId
    placed: PlacedChunk
    state: ChunkState
    """The state to set."""

    @property
    def key(self) -> _Key:
        """Identity of the mark."""
        placed = self.placed
        return self.segment_id, placed.object.tier, placed.chunk.start_offset, placed.object.id, self.state


class CopyMarks:
    """The marks of one process, gathered and written."""

    def __init__(self, metadata: MetadataStore, prover: Prover) -> None:
        self._metadata = metadata
        self._prover = prover
        self._waiting: dict[_Key, _Met] = {}
        """Includes those being written or proved now; after a try, the next reader may add a mark again."""
        self._unproved: OrderedDict[_Key, None] = OrderedDict()
        """Lost chunks that did not prove right: reading them whole once is enough."""
        self._noted = trio.Event()
        self._settling = trio.Lock()
        self._stopped = threading.Event()
        self._refused = False
        """Whether the store may change nothing."""

    def failed(self, segment_id: SegmentId, placed: PlacedChunk, error: TierfsError) -> None:
        """Note a good copy that is missing or damaged; other errors prove nothing about the copy."""
        if isinstance(error, (NotFound, DataLoss)) and placed.chunk.state is ChunkState.GOOD:
            log.info("%s failed a reader: %s", printable(placed.object.name), error)
            self._note(_Met(segment_id, placed, ChunkState.SUSPECT))

    def served(self, segment_id: SegmentId, placed: PlacedChunk) -> None:
        """Note a copy that delivered right bytes; costs nothing unless it was lost."""
        if placed.chunk.lost and placed.chunk.length <= _LARGEST_PROVED_BYTES:
            self._note(_Met(segment_id, placed, ChunkState.GOOD))

    def _note(self, met: _Met) -> None:
        key = met.key
        if key in self._waiting or key in self._unproved or len(self._waiting) >= _WAITING or self._refused:
            return
        self._waiting[key] = met
        self._noted.set()

    async def keep_writing(self) -> None:
        """Write marks, several at once, without delaying readers; run until cancelled."""
        while True:
            await self._noted.wait()
            await trio.sleep(_GATHER_S)
            self._noted = trio.Event()
            await self.settle()

    async def settle(self) -> None:
        """Write and prove all waiting marks."""
        async with self._settling:
            while self._waiting:
                if failed := self._in_state(ChunkState.SUSPECT):
                    await trio.to_thread.run_sync(self._write, failed)
                    self._tried(failed)
                elif self._refused:
                    self._waiting.clear()
                else:
                    await self._take_back(next(iter(self._waiting.values())))

    def finish(self) -> None:
        """Write the waiting marks that need no reading, at the end of the process's reading."""
        self._stopped.set()
        self._write(self._in_state(ChunkState.SUSPECT))
        self._waiting.clear()

    def _in_state(self, state: ChunkState) -> list[_Met]:
        return [mark for mark in self._waiting.values() if mark.state is state]

    def _tried(self, marks: list[_Met]) -> None:
        for mark in marks:
            del self._waiting[mark.key]

    async def _take_back(self, mark: _Met) -> None:
        """Mark a lost chunk as good once all of it proved right; closing the reader does not wait for that."""
        proved = await trio.to_thread.run_sync(self._proves, mark, abandon_on_cancel=True)
        if proved:
            await trio.to_thread.run_sync(self._write, [mark])
        elif proved is not None:
            self._unproved[mark.key] = None
            if len(self._unproved) > _REMEMBERED:
                self._unproved.popitem(last=False)
        self._tried([mark])

    def _proves(self, mark: _Met) -> bool | None:
        """Return whether all of a chunk is right; None if that is unknown now, or already recorded."""
        placed = mark.placed
        try:
            if not chain_edits.changes_state(
                self._metadata, mark.segment_id, placed.object.tier, placed.chunk, mark.state
            ):
                return None
            return self._prover.proves(placed, self._stopped)
        except TierfsError as exc:
            log.info("%s is not proved: %s", printable(placed.object.name), exc)
        except Exception:
            log.exception("proving %s failed", printable(placed.object.name))
        return None

    def _write(self, marks: list[_Met]) -> None:
        """Write marks. An error is logged and stops no read: the copy fails its next reader again."""
        for mark in marks:
            placed = mark.placed
            try:
                chain_edits.set_state(self._metadata, mark.segment_id, placed.object.tier, placed.chunk, mark.state)
            except (Conflict, PermissionDenied) as exc:  # a replica, or fenced: left to the owner
                self._refused = True
                log.info("copies are not marked: %s", exc)
                return
            except TierfsError as exc:
                log.warning("%s could not be marked: %s", printable(placed.object.name), exc)
            except Exception:
                log.exception("marking %s failed", printable(placed.object.name))
