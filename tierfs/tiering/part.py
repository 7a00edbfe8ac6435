"""The part of segments that a command moves: all bytes before an offset of one, or all but the newest of each.

The newest bytes are counted as `offload_above_bytes` counts them: of a stream through all its segments, and of a
managed ledger through its ledgers, which stay or move as a whole. Chunks are never cut, so that at least as many stay.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words import names
from tierfs.base.words.errors import InvalidRequest, IsDirectory
from tierfs.base.words.names import printable
from tierfs.base.words.types import SegmentKind, Tier
from tierfs.engine.metadata import chains
from tierfs.engine.metadata.records import SegmentRecord
from tierfs.engine.metadata.transaction import ReadTransaction

# Directory and name of a stream, or of a managed ledger.
_Stream = tuple[int, str]


@dataclass(frozen=True, slots=True)
class MovedPart:
    """The part of the segments below a path that moves: either of these."""

    before_offset: int | None = None
    """Every byte of the one segment before this offset."""
    keep_bytes: int = 0
    """All but so many of the newest bytes."""

    def check(self, path: str, segments: Iterable[tuple[str, SegmentRecord]]) -> None:
        """Raise IsDirectory or InvalidRequest where an offset means nothing, or lies beyond the segment.

        `segments`: those at or below the path, which for a segment is this one.
        """
        if self.before_offset is None:
            return
        name, shown = names.join(names.split(path)), printable(path) or "/"
        listed_name, segment = next(iter(segments), ("", None))
        if segment is None or listed_name != name:
            raise IsDirectory(f"{shown} is a directory: an offset needs a segment", remedy="use: --keep SIZE")
        if segment.kind is SegmentKind.LEDGER:
            managed = printable(name.rpartition("/")[0])
            raise InvalidRequest(
                f"{shown} is a ledger, which moves as a whole",
                remedy=f"give its managed ledger and a position: tierfs offload {managed} --before LEDGER[:ENTRY]",
            )
        if self.before_offset > segment.length:
            raise InvalidRequest(f"{shown} ends at {segment.length}: there is no offset {self.before_offset}")

    def takes_active(self, segment: SegmentRecord) -> bool:
        """Return whether the chunk that is appended to has to end first."""
        if self.before_offset is None:
            return segment.active and not self.keep_bytes
        return segment.active and segment.local.last_chunk < self.before_offset

    def ends(
        self, begin: Callable[[], AbstractContextManager[ReadTransaction]], rows: Callable[[], Iterable[Any]]
    ) -> PartEnds:
        """Return up to where the chunks of segments move; `rows` yields their messages, each time that it is called."""
        if self.before_offset is None:
            return _all_but_newest(rows, self.keep_bytes)
        segment = next(iter(rows()), None)
        if segment is None:
            return PartEnds({})
        last = max(0, self.before_offset - 1)
        with begin() as txn:
            chunk = chains.chunk_at(txn, segment.id, Tier.LOCAL, last) if segment.local.count else None
        reaches = chunk is not None and self.before_offset and chunk.start_offset <= last < chunk.end_offset
        return PartEnds({segment.id: chunk.end_offset if chunk is not None and reaches else self.before_offset})


class PartEnds:
    """Up to which offset the chunks of each segment move: those that end there or before.

    Kept are those of ledgers, and of segments in streams of several. For any other one its record says it.
    """

    def __init__(
        self, known: Mapping[int, int], streams: Collection[_Stream] = frozenset(), keep_bytes: int | None = None
    ) -> None:
        """`keep_bytes`: of each segment in no ledger and in none of these `streams`; None: all of it stays."""
        self._known = known
        self._streams = streams
        self._keep_bytes = keep_bytes

    def of(self, segment: Any) -> int:
        """Return the offset for a segment, given its record or message; 0 for one in a stream that came meanwhile."""
        known = self._known.get(segment.id)
        if known is not None or self._keep_bytes is None or _is_counted(segment, self._streams):
            return known or 0
        return max(int(segment.start_offset), int(segment.length) - self._keep_bytes)


def _stream(segment: Any) -> _Stream:
    return segment.parent_id, "" if segment.kind == SegmentKind.LEDGER else segment.stream_name or segment.name


def _is_counted(segment: Any, streams: Collection[_Stream]) -> bool:
    """Return whether the newest bytes of a segment are counted together with those of others."""
    return segment.kind == SegmentKind.LEDGER or _stream(segment) in streams


def _all_but_newest(rows: Callable[[], Iterable[Any]], keep_bytes: int) -> PartEnds:
    streams = {_stream(segment) for segment in rows() if segment.stream_name}
    counted = [
        (_age(segment), _stream(segment), segment.id, segment.start_offset, segment.length)
        for segment in rows()
        if _is_counted(segment, streams)
    ]
    ends: dict[int, int] = {}
    left: dict[_Stream, int] = {}
    for _, stream, segment_id, start, length in sorted(counted, reverse=True):
        kept = left.get(stream, keep_bytes)
        left[stream] = max(0, kept - (length - start))
        is_ledger = not stream[1]
        ends[segment_id] = (0 if kept else length) if is_ledger else max(start, length - kept)
    return PartEnds(ends, streams, keep_bytes)


def _age(segment: Any) -> int:
    """Return a number that is greater for the younger of two segments of one stream, or managed ledger."""
    if segment.kind != SegmentKind.LEDGER:
        return int(segment.first_offset)
    ledger_id = names.ledger_id(segment.name)
    return int(segment.id) if ledger_id is None else ledger_id
