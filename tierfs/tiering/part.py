"""The part of segments that a command moves: all bytes before an offset of one, or all but the newest of each.

The newest bytes are counted as `offload_above_bytes` counts them: of a stream through all its segments, and of a
managed ledger through its ledgers, which stay or move as a whole. Chunks are never cut, so that at least as many stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words import names
from tierfs.base.words.errors import InvalidRequest, IsDirectory
from tierfs.base.words.names import printable
from tierfs.base.words.types import DirectoryId, SegmentId, SegmentKind, Tier
from tierfs.engine.metadata import chains
from tierfs.engine.metadata.records import SegmentRecord
from tierfs.engine.metadata.transaction import ReadTransaction

# Per segment the offset up to which its chunks move: those that end there or before.
Ends = Mapping[SegmentId, int]


@dataclass(frozen=True, slots=True)
class MovedPart:
    """What of the segments below a path moves; either of these."""

    before_offset: int | None = None
    """Every byte of the one segment before this offset."""
    keep_bytes: int = 0
    """All but so many of the newest bytes."""

    def check(self, path: str, segments: Iterable[tuple[str, SegmentRecord]]) -> None:
        """Raise IsDirectory or InvalidRequest where an offset means nothing, or lies beyond the segment."""
        if self.before_offset is None:
            return
        name, shown = names.join(names.split(path)), printable(path) or "/"
        segment = next((segment for segment_name, segment in segments if segment_name == name), None)
        if segment is None:
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

    def ends(self, txn: ReadTransaction, segments: Iterable[SegmentRecord]) -> Ends:
        """Return up to where the chunks of each segment move."""
        if self.before_offset is None:
            return _all_but_newest(segments, self.keep_bytes)
        (segment,) = segments
        last = max(0, self.before_offset - 1)
        chunk = chains.chunk_at(txn, segment.id, Tier.LOCAL, last) if segment.local.count else None
        reaches = chunk is not None and self.before_offset and chunk.start_offset <= last < chunk.end_offset
        return {segment.id: chunk.end_offset if chunk is not None and reaches else self.before_offset}


def _all_but_newest(segments: Iterable[SegmentRecord], keep_bytes: int) -> dict[SegmentId, int]:
    ends: dict[SegmentId, int] = {}
    left: dict[tuple[DirectoryId, str], int] = {}
    for segment in sorted(segments, key=_age, reverse=True):
        stream = (segment.parent_id, "" if segment.kind is SegmentKind.LEDGER else segment.stream)
        kept = left.get(stream, keep_bytes)
        left[stream] = max(0, kept - segment.range.length_bytes)
        if segment.kind is SegmentKind.LEDGER:
            ends[segment.id] = 0 if kept else segment.length
        else:
            ends[segment.id] = max(segment.start_offset, segment.length - kept)
    return ends


def _age(segment: SegmentRecord) -> int:
    """Return a number that is greater for the younger of two segments of one stream, or managed ledger."""
    if segment.kind is not SegmentKind.LEDGER:
        return segment.first_offset
    ledger_id = names.ledger_id(segment.name)
    return segment.id if ledger_id is None else ledger_id
