"""Sessions of packs, so that a reader of one small file after another finds the next ones in memory. Pure.

Files of a pack lie in the order of their names, as in a listing. A read that continues where another file of the pack
ended belongs to a session of the pack, as reads of one large file do to one of that file.
"""

from __future__ import annotations

from collections import OrderedDict

from tierfs.base.bytes.frozen import dataclass, field
from tierfs.base.words.types import CRC_BLOCK_BYTES, ObjectId
from tierfs.engine.metadata.layout import PlacedChunk
from tierfs.reading.fetch.span import Span
from tierfs.reading.fetch.span_cache import SpanCache
from tierfs.reading.readahead import FairShare, Sessions
from tierfs.reading.view import SegmentView

# Packs whose readers are remembered.
MOST_PACKS = 64

# Reading so much in order proves that files are read one after another: single files take less, or few requests.
_PROVEN_BYTES = 2 * CRC_BLOCK_BYTES


@dataclass(slots=True)
class _Pack:
    sessions: Sessions
    last: Span | None = None
    """Span read last: a read in another span has passed it."""


@dataclass(slots=True)
class PackAhead:
    """All packs that a process reads. On the trio loop only."""

    shares: FairShare
    spans: SpanCache
    _packs: OrderedDict[ObjectId, _Pack] = field(default_factory=OrderedDict)

    def sessions_of(self, object_id: ObjectId) -> Sessions:
        """Return the sessions of a pack."""
        return self._of(object_id).sessions

    def served(self, span: Span) -> None:
        """Note a read of a pack: a read in another span than before has passed the previous one."""
        pack = self._of(span.record.id)
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
        if len(self._packs) > MOST_PACKS:
            _, oldest = self._packs.popitem(last=False)
            oldest.sessions.close()
            if oldest.last is not None:  # else a pack of a single span would keep it for ever: nothing passes it
                self.spans.passed(oldest.last)
        return pack


def is_whole_file(view: SegmentView, placed: PlacedChunk) -> bool:
    """Return whether a chunk of a pack is its whole segment, so that a sequential reader goes to another segment."""
    return placed.object.packed > 0 and placed.range.contains(view.segment.range)
