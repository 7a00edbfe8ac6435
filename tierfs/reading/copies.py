"""What readers found out about copies: one that failed becomes suspect, a lost one that served a read comes back.

So `status` shows what only an EIO told before. A lost chunk is good again once all of it was read and proved right,
not only what its reader wanted. Shared state: what is not written yet, and what was read in vain; both on the trio loop
only. The marks are written in a thread, each decided again in its own transaction (chain_cuts.set_state).

Proving a chunk: every byte of it is read from its object and checked against its checksums.
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
"""Of a chunk that is held in memory to be proved by its own CRC32C; packs have larger ones only by a setting."""


class Prover:
    """Reads chunks of both tiers. For threads: it waits for disks and servers."""

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
        """Whether all of a chunk is there and right.

        Raises Unavailable when its tier does not answer, Closed at the next step once it is `stopped`.
        """
        try:
            return self._blocks_are_right(placed, stopped) or self.whole_chunk(placed) is not None
        except (NotFound, DataLoss):
            return False

    def whole_chunk(self, placed: PlacedChunk) -> memoryview | None:
        """The bytes of a small chunk that prove right by its own CRC32C; None for others.

        Raises what reading them raises.
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
        """Returns the etag under which an object's bytes came."""
        holder = placed.object
        if holder.tier is Tier.COLD:
            return self._etags.read_into(self._storage_of(holder.location_id), holder, offset, view)
        self._files.read_into(holder.name, offset, view)
        return None


log = logging.getLogger(__name__)

_GATHER_S = 1.0
"""So long failures are gathered: a mark is a sync of the disk."""

_WAITING = 100
"""Marks written at once; more that are met meanwhile are met again by their next reader (a guess)."""

_REMEMBERED = 10_000
"""Chunks that one process tells apart from new ones: about 2 MB."""

_LARGEST_PROVED_BYTES = 256 * MIB
"""Larger lost chunks are read whole by `verify` and `fsck` only (a guess)."""

_Key = tuple[SegmentId, Tier, int, int, ChunkState]


@dataclass(frozen=True, slots=True)
class _Met:
    segment_id: SegmentId
    placed: PlacedChunk
    state: ChunkState
    """The one it is to have."""

    @property
    def key(self) -> _Key:
        """What tells it apart."""
        placed = self.placed
        return self.segment_id, placed.object.tier, placed.chunk.start_offset, placed.object.id, self.state


class CopyMarks:
    """What the readers of one process found out."""

    def __init__(self, metadata: MetadataStore, prover: Prover) -> None:
        self._metadata = metadata
        self._prover = prover
        self._waiting: dict[_Key, _Met] = {}
        """Also those that are written or proved right now; what was tried is met again by its next reader."""
        self._unproved: OrderedDict[_Key, None] = OrderedDict()
        """Lost chunks of which not all proved right: reading them whole once is enough."""
        self._noted = trio.Event()
        self._settling = trio.Lock()
        self._stopped = threading.Event()
        self._refused = False
        """Whether the store may change nothing."""

    def failed(self, segment_id: SegmentId, placed: PlacedChunk, error: TierfsError) -> None:
        """A good copy turned out to be missing or damaged; what else fails says nothing of the copy."""
        if isinstance(error, (NotFound, DataLoss)) and placed.chunk.state is ChunkState.GOOD:
            log.info("%s failed a reader: %s", printable(placed.object.name), error)
            self._note(_Met(segment_id, placed, ChunkState.SUSPECT))

    def served(self, segment_id: SegmentId, placed: PlacedChunk) -> None:
        """A copy delivered bytes that proved right; costs nothing unless it was lost."""
        if placed.chunk.lost and placed.chunk.length <= _LARGEST_PROVED_BYTES:
            self._note(_Met(segment_id, placed, ChunkState.GOOD))

    def _note(self, met: _Met) -> None:
        key = met.key
        if key in self._waiting or key in self._unproved or len(self._waiting) >= _WAITING or self._refused:
            return
        self._waiting[key] = met
        self._noted.set()

    async def keep_writing(self) -> None:
        """Write marks, some at once, and not in a reader's way; runs until it is cancelled."""
        while True:
            await self._noted.wait()
            await trio.sleep(_GATHER_S)
            self._noted = trio.Event()
            await self.settle()

    async def settle(self) -> None:
        """Write and prove what waits until nothing does."""
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
        """Write what waits and needs no reading; for the end of the process's reading."""
        self._stopped.set()
        self._write(self._in_state(ChunkState.SUSPECT))
        self._waiting.clear()

    def _in_state(self, state: ChunkState) -> list[_Met]:
        return [one for one in self._waiting.values() if one.state is state]

    def _tried(self, some: list[_Met]) -> None:
        for one in some:
            del self._waiting[one.key]

    async def _take_back(self, one: _Met) -> None:
        """Mark a lost chunk as good once all of it proved right; the end of the reader does not wait for that."""
        proved = await trio.to_thread.run_sync(self._proves, one, abandon_on_cancel=True)
        if proved:
            await trio.to_thread.run_sync(self._write, [one])
        elif proved is not None:
            self._unproved[one.key] = None
            if len(self._unproved) > _REMEMBERED:
                self._unproved.popitem(last=False)
        self._tried([one])

    def _proves(self, one: _Met) -> bool | None:
        """Whether all of a chunk is right; None when that is not to be known now, or was written down already."""
        placed = one.placed
        try:
            if not chain_edits.changes_state(
                self._metadata, one.segment_id, placed.object.tier, placed.chunk, one.state
            ):
                return None
            return self._prover.proves(placed, self._stopped)
        except TierfsError as exc:
            log.info("%s is not proved: %s", printable(placed.object.name), exc)
        except Exception:
            log.exception("proving %s failed", printable(placed.object.name))
        return None

    def _write(self, some: list[_Met]) -> None:
        """An error is logged and keeps nobody from reading: the copy fails its next reader again."""
        for one in some:
            placed = one.placed
            try:
                chain_edits.set_state(self._metadata, one.segment_id, placed.object.tier, placed.chunk, one.state)
            except (Conflict, PermissionDenied) as exc:  # a replica, or fenced: its owner's business
                self._refused = True
                log.info("copies are not marked: %s", exc)
                return
            except TierfsError as exc:
                log.warning("%s could not be marked: %s", printable(placed.object.name), exc)
            except Exception:
                log.exception("marking %s failed", printable(placed.object.name))
