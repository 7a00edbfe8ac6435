"""What readers found out about copies: one that failed becomes suspect, a lost one that served a read comes back.

So `status` shows what only an EIO told before. A lost chunk is good again once all of it was read and proved right,
not only what its reader wanted. Shared state: what is not written yet, and what was seen; both on the trio loop only.
The marks are written in a thread, each decided again in its own transaction (metadata/marks.py).
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from dataclasses import dataclass

import trio

from tierfs.errors import Conflict, DataLoss, NotFound, PermissionDenied, TierfsError
from tierfs.metadata.layout import PlacedChunk
from tierfs.metadata.marks import mark
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


class CopyMarks:
    """What the readers of one process found out."""

    def __init__(self, metadata: MetadataStore, prover: Prover) -> None:
        self._metadata = metadata
        self._prover = prover
        self._waiting: list[_Met] = []
        self._seen: OrderedDict[_Key, None] = OrderedDict()
        self._noted = trio.Event()
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
        placed = met.placed
        key = (met.segment_id, placed.object.tier, placed.chunk.start_offset, placed.object.id, met.state)
        if key in self._seen or len(self._waiting) >= _WAITING or self._refused:
            return
        self._seen[key] = None
        if len(self._seen) > _REMEMBERED:
            self._seen.popitem(last=False)
        self._waiting.append(met)
        self._noted.set()

    async def keep_writing(self) -> None:
        """Write marks, some at once, and not in a reader's way; runs until it is cancelled."""
        while True:
            await self._noted.wait()
            await trio.sleep(_GATHER_S)
            self._noted = trio.Event()
            waiting, self._waiting = self._waiting, []
            await trio.to_thread.run_sync(self._write, waiting)

    def finish(self) -> None:
        """Write what waits; for the end of the process's reading."""
        waiting, self._waiting = self._waiting, []
        self._write(waiting)

    def _write(self, waiting: list[_Met]) -> None:
        """An error is logged and keeps nobody from reading: the copy fails its next reader again."""
        try:
            for one in waiting:
                placed = one.placed
                if one.state is ChunkState.SUSPECT or self._prover.proves(placed):
                    mark(self._metadata, one.segment_id, placed.object.tier, placed.chunk, one.state)
        except (Conflict, PermissionDenied) as exc:  # a replica, or fenced: its owner's business
            self._refused = True
            log.info("copies are not marked: %s", exc)
        except TierfsError as exc:
            log.warning("copies could not be marked: %s", exc)
