"""Mark copies by the results of reads: a failed one becomes suspect, a lost one that served a read is good again.

So `status` shows failures that were visible only as EIO before. `VerifiedReader` decides both, by reading all of a
chunk once more: a chunk is suspect only after two reads failed, and good again only once every byte of it matched its
checksums, not only those its reader wanted. Shared state, on the trio loop only: marks not written yet, and chunks
whose full read failed verification. Marks are written in a thread, each decided again in its own transaction
(chain_edits.set_state).
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict

import trio

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words.errors import Conflict, DataLoss, NotFound, PermissionDenied, TierfsError
from tierfs.base.words.names import printable
from tierfs.base.words.types import MIB, ChunkState, SegmentId, Tier
from tierfs.engine.metadata import chain_edits
from tierfs.engine.metadata.layout import PlacedChunk
from tierfs.engine.metadata.store import MetadataStore
from tierfs.reading.verified import VerifiedReader

log = logging.getLogger(__name__)

# Time from a failure to its proof: many reads of one chunk fail together, and one proof serves all.
_GATHER_S = 1.0

# Limit of waiting marks; further failures are left to the next reader (a guess).
_WAITING = 100

# Unproved chunks that one process remembers: about 2 MB.
_REMEMBERED = 10_000

# Larger lost chunks are read whole by `check` only (a guess).
_LARGEST_PROVED_BYTES = 256 * MIB

# Time for proofs when a process ends: an unmount or a command waits for it (a guess).
_LAST_PROOFS_S = 5.0

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

    def __init__(self, metadata: MetadataStore, reader: VerifiedReader) -> None:
        self._metadata = metadata
        self._reader = reader
        self._waiting: dict[_Key, _Met] = {}
        """Includes the one being proved now; after a try, the next reader may add a mark again."""
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
        """Prove and write marks without delaying readers; run until cancelled."""
        while True:
            await self._noted.wait()
            await trio.sleep(_GATHER_S)
            self._noted = trio.Event()
            await self.settle()

    async def settle(self) -> None:
        """Prove all waiting marks, and write those that hold."""
        async with self._settling:
            while self._waiting:
                if self._refused:
                    self._waiting.clear()
                else:
                    await self._decide(next(iter(self._waiting.values())))

    def finish(self) -> None:
        """Prove and write the waiting marks of failed copies, at the end of the process's reading.

        A process that reads once, as `tierfs cat` does, would leave none otherwise. After _LAST_PROOFS_S the rest is
        left to the next reader.
        """
        self._stopped.set()
        ends_s = time.monotonic() + _LAST_PROOFS_S
        for mark in self._waiting.values():
            proves = mark.state is ChunkState.GOOD or time.monotonic() > ends_s or self._proves(mark, threading.Event())
            if proves is False:
                self._write(mark)
        self._waiting.clear()

    async def _decide(self, mark: _Met) -> None:
        """Write a mark if all of the chunk, read once more, agrees; closing the reader does not wait for that."""
        proved = await trio.to_thread.run_sync(self._proves, mark, self._stopped, abandon_on_cancel=True)
        if proved is (mark.state is ChunkState.GOOD):
            await trio.to_thread.run_sync(self._write, mark)
        elif proved is False:
            self._unproved[mark.key] = None
            if len(self._unproved) > _REMEMBERED:
                self._unproved.popitem(last=False)
        del self._waiting[mark.key]

    def _proves(self, mark: _Met, stopped: threading.Event) -> bool | None:
        """Return whether all of a chunk is right; None if that is unknown now, or the mark would change nothing."""
        placed = mark.placed
        try:
            if not chain_edits.changes_state(
                self._metadata, mark.segment_id, placed.object.tier, placed.chunk, mark.state
            ):
                return None
            return self._reader.proves(placed, stopped)
        except TierfsError as exc:
            log.info("%s is not verified: %s", printable(placed.object.name), exc)
        except Exception:
            log.exception("verifying %s failed", printable(placed.object.name))
        return None

    def _write(self, mark: _Met) -> None:
        """Write a mark. An error is logged and stops no read: the copy fails its next reader again."""
        placed = mark.placed
        try:
            chain_edits.set_state(self._metadata, mark.segment_id, placed.object.tier, placed.chunk, mark.state)
        except (Conflict, PermissionDenied) as exc:  # a replica, or fenced: left to the owner
            self._refused = True
            log.info("copies were not marked: %s", exc)
        except TierfsError as exc:
            log.warning("%s could not be marked: %s", printable(placed.object.name), exc)
        except Exception:
            log.exception("marking %s failed", printable(placed.object.name))
