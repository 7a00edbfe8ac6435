"""Copies that failed a reader: each is marked suspect once, so that `status` shows what only an EIO told so far.

Shared state: what failed and is not written yet, and what was seen; both on the trio loop only. The marks are written
in a thread, each decided again in its own transaction (metadata/marks.py).
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from dataclasses import dataclass

import trio

from tierfs.errors import Conflict, DataLoss, NotFound, PermissionDenied, TierfsError
from tierfs.metadata.layout import PlacedChunk
from tierfs.metadata.marks import mark
from tierfs.metadata.records import ChunkRecord
from tierfs.metadata.store import MetadataStore
from tierfs.names import printable
from tierfs.types import ChunkState, SegmentId, Tier

log = logging.getLogger(__name__)

_GATHER_S = 1.0
"""So long failures are gathered: a mark is a sync of the disk."""

_WAITING = 100
"""Marks written at once; more that fail meanwhile are met again by their next reader (a guess)."""

_REMEMBERED = 10_000
"""Failures that one process tells apart from new ones: about 2 MB."""

_Key = tuple[SegmentId, Tier, int, int]


@dataclass(frozen=True, slots=True)
class _Failed:
    segment_id: SegmentId
    tier: Tier
    chunk: ChunkRecord


class FailedCopies:
    """What failed the readers of one process."""

    def __init__(self, metadata: MetadataStore) -> None:
        self._metadata = metadata
        self._waiting: list[_Failed] = []
        self._seen: OrderedDict[_Key, None] = OrderedDict()
        self._noted = trio.Event()
        self._refused = False
        """Whether the store may change nothing."""

    def note(self, segment_id: SegmentId, placed: PlacedChunk, error: TierfsError) -> None:
        """A good copy turned out to be missing or damaged; what else fails says nothing of the copy."""
        if not isinstance(error, (NotFound, DataLoss)) or placed.chunk.state is not ChunkState.GOOD or self._refused:
            return
        key = (segment_id, placed.object.tier, placed.chunk.start_offset, placed.object.id)
        if key in self._seen or len(self._waiting) >= _WAITING:
            return
        self._seen[key] = None
        if len(self._seen) > _REMEMBERED:
            self._seen.popitem(last=False)
        log.info("%s becomes suspect: %s", printable(placed.object.name), error)
        self._waiting.append(_Failed(segment_id, placed.object.tier, placed.chunk))
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

    def _write(self, waiting: list[_Failed]) -> None:
        """An error is logged and keeps nobody from reading: the copy fails its next reader again."""
        try:
            for one in waiting:
                mark(self._metadata, one.segment_id, one.tier, one.chunk, ChunkState.SUSPECT)
        except (Conflict, PermissionDenied) as exc:  # a replica, or fenced: its owner's business
            self._refused = True
            log.info("copies that failed are not marked: %s", exc)
        except TierfsError as exc:
            log.warning("copies that failed could not be marked: %s", exc)
