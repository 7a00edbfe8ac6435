"""Where readers are in packs: who reads one small file after another finds the next ones in memory.

Files of a pack lie in the order of their names, as a listing shows them. A read that goes on where another file
of the pack ended belongs to a session of the pack, as reads of one large file do to one of that file.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

from tierfs.metadata.layout import PlacedChunk
from tierfs.reading.readahead import FairShare, Sessions
from tierfs.reading.span import Span
from tierfs.reading.spans import SpanCache
from tierfs.reading.view import SegmentView
from tierfs.types import CRC_BLOCK_BYTES, ObjectId

_PACKS = 64
"""Packs whose readers are remembered."""

_PROVEN_BYTES = 2 * CRC_BLOCK_BYTES
"""Read in order by so much, files are read one after another: single ones are smaller, or are read in few requests."""


@dataclass(slots=True)
class _Pack:
    sessions: Sessions
    last: Span | None = None
    """Read last: what is read in another one has passed it."""


@dataclass(slots=True)
class PackAhead:
    """All packs that a process reads. On the trio loop only."""

    shares: FairShare
    spans: SpanCache
    _packs: OrderedDict[ObjectId, _Pack] = field(default_factory=OrderedDict)

    def sessions_of(self, object_id: ObjectId) -> Sessions:
        """The sessions of a pack."""
        return self._of(object_id).sessions

    def served(self, span: Span) -> None:
        """Bytes of a pack were read: the span before is done with when they lie in another one."""
        pack = self._of(span.holder.id)
        if pack.last is not span:
            if pack.last is not None:
                self.spans.passed(pack.last)
            pack.last = span
        self.spans.used(span)

    def _of(self, object_id: ObjectId) -> _Pack:
        pack = self._packs.get(object_id)
        if pack is not None:
            self._packs.move_to_end(object_id)
            return pack
        pack = self._packs[object_id] = _Pack(Sessions(self.shares, _PROVEN_BYTES))
        if len(self._packs) > _PACKS:
            _, oldest = self._packs.popitem(last=False)
            oldest.sessions.close()
        return pack


def is_whole_file(view: SegmentView, placed: PlacedChunk) -> bool:
    """Whether a chunk of a pack is all there is of its segment, so that who reads on reads another segment."""
    return placed.object.packed > 0 and placed.range.contains(view.segment.range)
