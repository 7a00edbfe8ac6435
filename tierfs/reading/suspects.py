"""Suspects: the holder reads suspect chunks again, and clears those that prove right.

A chunk stays suspect only while it is damaged: a mark left by a failure that is over (a disk that was away, a defect
that is mended) would keep its bytes from being offloaded, and the other copies of them from being removed, for ever.
Chunks are looked for only when the sum of suspect bytes has changed. A chunk that is still damaged is
read again after a pause, doubled each time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import islice

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words.errors import TierfsError
from tierfs.base.words.names import printable
from tierfs.base.words.types import ChunkState, LocationId
from tierfs.engine.chunkstore.local_files import ChunkFiles
from tierfs.engine.chunkstore.protocol import ChunkStorage
from tierfs.engine.metadata import chain_edits, chains, tables
from tierfs.engine.metadata.layout import PlacedChunk
from tierfs.engine.metadata.message_rows import messages
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.tables import CHUNKS
from tierfs.reading.verified import VerifiedReader

log = logging.getLogger(__name__)

# Chunks looked at in one transaction: some 10 ms.
_ROWS = 2000

_UNKNOWN = -1

_FIRST_PAUSE_S = 60.0
# Each try reads a whole chunk: a damaged one costs some twelve reads on its first day, and one a day from then on.
_LONGEST_PAUSE_S = 24 * 3600.0


@dataclass(slots=True)
class _Suspect:
    """A chunk known to be suspect."""

    pause_s: float = 0.0
    next_try_s: float = 0.0
    """By the monotonic clock."""


class Suspects:
    """The suspect chunks of one store. One thread at a time."""

    def __init__(
        self, metadata: MetadataStore, files: ChunkFiles, storage_of: Callable[[LocationId], ChunkStorage]
    ) -> None:
        self._metadata = metadata
        self._reader = VerifiedReader(metadata, storage_of, lambda: files)
        self._known: dict[bytes, _Suspect] = {}
        """By the key of the chunk's row."""
        self._suspect_bytes = 0
        """The sum for which they were looked for."""

    def look(self) -> int:
        """Read the suspect chunks whose pause is over; return the number of those that proved right.

        Costs one look at the sums when there are none. Raises what keeps a chunk from being read once all were tried:
        Unavailable, PermissionDenied.
        """
        self._find()
        cleared, error = 0, None
        now_s = self._metadata.clock.monotonic_s()
        for key in [key for key, suspect in self._known.items() if suspect.next_try_s <= now_s]:
            try:
                cleared += self._clears(key)
            except TierfsError as exc:  # one place that is away keeps no chunk of another from being cleared
                error = error or exc
            suspect = self._known[key]
            suspect.pause_s = min(_LONGEST_PAUSE_S, 2 * suspect.pause_s or _FIRST_PAUSE_S)
            suspect.next_try_s = self._metadata.clock.monotonic_s() + suspect.pause_s
        self._reader.etags.adopt()
        if cleared:
            self._suspect_bytes = _UNKNOWN  # another chunk of that length may become suspect before the next look
        if error is not None:
            raise error
        return cleared

    def _find(self) -> None:
        """Bring the known suspects up to date."""
        with self._metadata.read() as txn:
            suspect_bytes = 0 if txn.sums is None else txn.sums.suspect_local_bytes + txn.sums.suspect_cold_bytes
        if suspect_bytes == self._suspect_bytes:
            return
        known: dict[bytes, _Suspect] = {}
        start, rows_read = b"", _ROWS
        while rows_read == _ROWS:
            with self._metadata.read() as txn:
                rows = list(islice(messages(txn, CHUNKS, start), _ROWS))
            for key, row in rows:
                if row is not None and row.state == ChunkState.SUSPECT:
                    known[key] = self._known.get(key) or _Suspect()
            start, rows_read = rows[-1][0] + b"\0" if rows else b"", len(rows)
        self._known, self._suspect_bytes = known, suspect_bytes

    def _clears(self, key: bytes) -> bool:
        """Read one chunk; return whether it proved right, and is good now."""
        segment_id, tier, start_offset = tables.read_chunk(key)
        with self._metadata.read() as txn:
            chunk = txn.get(CHUNKS, key)
            if chunk is None or chunk.state is not ChunkState.SUSPECT:
                return False
            placed = PlacedChunk(chunk, chains.object_of(txn, chunk))
        if not self._reader.proves(placed):
            return False
        cleared = chain_edits.set_state(self._metadata, segment_id, tier, chunk, ChunkState.GOOD)
        if cleared:
            log.info("%s is verified: its chunk at %d is good again", printable(placed.object.name), start_offset)
        return cleared
