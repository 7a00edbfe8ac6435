"""The record of an append that its client may send again. See records.proto."""

from __future__ import annotations

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words.types import ByteRange, SegmentId
from tierfs.engine.metadata.records import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendKeyRecord(Record):
    """An append that was made under a key of its client."""

    segment_id: SegmentId
    start: int
    end: int
    crc32c: int
    seal: bool = False
    committed_ms: int = 0

    @property
    def range(self) -> ByteRange:
        """The bytes of the segment that it added."""
        return ByteRange(self.start, self.end)
