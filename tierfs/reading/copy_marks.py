"""What readers found out about copies: one that failed becomes suspect, a lost one that served a read comes back.

So `status` shows what only an EIO told before. A lost chunk is good again once all of it was read and proved right,
not only what its reader wanted. Shared state: what is not written yet, and what was read in vain; both on the trio loop
only. The marks are written in a thread, each decided again in its own transaction (chain_cuts.set_state).
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from dataclasses import dataclass

import trio

from tierfs.errors import Conflict, DataLoss, NotFound, PermissionDenied, TierfsError
from tierfs.metadata import chain_cuts
from tierfs.metadata.layout import PlacedChunk
from tierfs.metadata.store import MetadataStore
from tierfs.names import printable
from tierfs.reading.prove import Prover
from tierfs.types import MIB, ChunkState, SegmentId, Tier

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
            if not chain_cuts.changes_state(
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
                chain_cuts.set_state(self._metadata, one.segment_id, placed.object.tier, placed.chunk, one.state)
            except (Conflict, PermissionDenied) as exc:  # a replica, or fenced: its owner's business
                self._refused = True
                log.info("copies are not marked: %s", exc)
                return
            except TierfsError as exc:
                log.warning("%s could not be marked: %s", printable(placed.object.name), exc)
            except Exception:
                log.exception("marking %s failed", printable(placed.object.name))
