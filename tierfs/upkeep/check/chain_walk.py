"""The walk along a chain of chunks. Its key order is the linked list, and its sums are in the segment's record."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words.types import ChunkState, Tier
from tierfs.upkeep.check.findings import Kind, Mend, Severity
from tierfs.upkeep.check.object_table import ObjectTable

_GOOD, _SUSPECT, _LOST = (int(state) for state in ChunkState)


@dataclass(frozen=True, slots=True)
class Problem:
    """One defect of a chunk or its chain."""

    kind: Kind
    message: str
    mend: Mend | None = None
    severity: Severity = Severity.DAMAGE


class ChainWalk:
    """The walk along the chain of one tier of one segment."""

    def __init__(self, segment: Any, tier: Tier, table: ObjectTable) -> None:
        self.tier = tier
        self.end = 0
        """End of the last chunk."""
        self.last_object: int | None = None
        """Number of the last chunk's object."""
        self._state = segment.local if tier is Tier.LOCAL else segment.cold
        self._limit = segment.length
        self._table = table
        self._first = self._last = self._count = self._bytes = 0
        self._next = 0

    def take(self, chunk: Any) -> Iterator[Problem]:
        """Take the chain's next chunk in key order. Nearly all chunks are sound: the test for that is first."""
        start, length, state, following = chunk.start_offset, chunk.length, chunk.state, chunk.next
        end = start + length
        sound = not self._count or (self._next == start and self.end <= start)
        if not sound:
            yield from self._linked_wrongly(start)
        if not self._count:
            self._first = start
        self._count += 1
        self._last, self.end, self._next = start, max(self.end, end), following
        if not length or end > self._limit or state > _LOST:
            yield Problem(Kind.CHUNK_RANGE, f"the chunk at {start} ends at {end}, its segment at {self._limit}")
        if state == _LOST:
            yield from self._lost(chunk)
            return
        self._bytes += length
        if state == _SUSPECT:
            text = "is damaged or unreadable; its other copies are kept"
            yield Problem(Kind.SUSPECT, f"the chunk at {start} {text}", Mend.CLEAR_SUSPECT)
        yield from self._object(chunk)

    def finish(self) -> Iterator[Problem]:
        """Yield the problems that show at the chain's end."""
        if self._count and self._next:
            text = f"its last chunk, at {self._last}, links to a next chunk at {self._next}"
            yield Problem(Kind.CHAIN_LIST, text, Mend.RELINK_CHAIN)
        state = self._state
        recorded = (state.first_chunk, state.last_chunk, state.count, state.bytes)
        counted = (self._first, self._last, self._count, self._bytes)
        if recorded != counted:
            text = "first, last, count and bytes are {}, {}, {}, {}; the record says {}, {}, {}, {}"
            yield Problem(Kind.CHAIN_STATE, text.format(*counted, *recorded), Mend.RELINK_CHAIN)

    def _linked_wrongly(self, start: int) -> Iterator[Problem]:
        if self.end > start:
            yield Problem(
                Kind.CHAIN_OVERLAP, f"the chunk at {start} starts before the previous chunk ends, at {self.end}"
            )
        if self._next != start:
            text = f"the chunk at {self._last} links to {self._next or 'no chunk'}, but {start} follows"
            yield Problem(Kind.CHAIN_LIST, text, Mend.RELINK_CHAIN)

    def _lost(self, chunk: Any) -> Iterator[Problem]:
        text = f"bytes {chunk.start_offset} to {chunk.start_offset + chunk.length} are recorded as lost"
        if chunk.object_id:
            yield Problem(Kind.LOST, text, Mend.RESTORE, Severity.NOTE)
            yield from self._object(chunk)
            return
        if self.tier is Tier.LOCAL:
            yield Problem(Kind.CHUNK_RANGE, f"the chunk at {chunk.start_offset} is lost, but has no file")
        yield Problem(Kind.LOST, text, severity=Severity.NOTE)

    def _object(self, chunk: Any) -> Iterator[Problem]:
        table = self._table
        number = table.number(chunk.object_id)
        self.last_object = number
        if number is None:
            text = f"the chunk at {chunk.start_offset} refers to object {chunk.object_id}, which does not exist"
            yield Problem(Kind.CHUNK_OBJECT, text, Mend.REPLACE_CHUNK)
            return
        table.counted[number] += 1
        if chunk.object_offset + chunk.length > table.lengths[number] or table.tiers[number] != self.tier:
            text = f"the chunk at {chunk.start_offset} reaches beyond its object, or into the other tier"
            yield Problem(Kind.CHUNK_RANGE, text, Mend.REPLACE_CHUNK)
