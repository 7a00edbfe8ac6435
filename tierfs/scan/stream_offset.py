"""The offset of a stream over segments: a watermark, and a position in each segment that is still open. Pure.

Segments that appeared up to `done` and are not in `open` are finished, so an offset is as large as there are open
segments. A position is a byte offset, or of entries the id of the next one: entries may be empty.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tierfs.errors import InvalidRequest
from tierfs.types import SegmentId

VERSION = 1

_NEW_CHECKPOINT = "begin with a new checkpoint location"


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """How far a stream has read."""

    store: str
    """Id of the store."""
    read: str
    """What is read, as the options said: positions mean nothing to another read."""
    done: int = 0
    """Birth of the last segment that was begun; see SegmentRecord.birth."""
    open: Mapping[SegmentId, int] = field(default_factory=dict)
    sealed_ms: int = 0
    """When the last of the finished segments was sealed: one that was sealed later had been unsealed."""
    bytes: int = 0
    """Bytes read since the stream began: tells whether a batch that is read again has lost some."""

    def as_json(self) -> dict[str, Any]:
        """As Spark keeps it. Keys are sorted: Spark compares offsets as text."""
        return {
            "bytes": self.bytes,
            "done": self.done,
            "open": {text: self.open[SegmentId(int(text))] for text in sorted(map(str, self.open))},
            "read": self.read,
            "sealed_ms": self.sealed_ms,
            "store": self.store,
            "v": VERSION,
        }

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> StreamOffset:
        """The offset in a checkpoint. Raises InvalidRequest for one that this tierfs cannot read."""
        version = found.get("v")
        if isinstance(version, int) and version > VERSION:
            raise InvalidRequest(
                f"the checkpoint has offsets of version {version}, this tierfs reads {VERSION}", remedy="upgrade tierfs"
            )
        try:
            return cls(
                store=str(found["store"]),
                read=str(found["read"]),
                done=_count(found["done"]),
                open={SegmentId(int(one)): _count(position) for one, position in found["open"].items()},
                sealed_ms=_count(found["sealed_ms"]),
                bytes=_count(found["bytes"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as exc:
            raise InvalidRequest("the checkpoint has no offset of tierfs", remedy=_NEW_CHECKPOINT) from exc

    def require_read(self, read: str) -> None:
        """Raise InvalidRequest where the checkpoint is of another read."""
        if self.read != read:
            raise InvalidRequest(
                f"the checkpoint is of a stream that reads {self.read}, and this one reads {read}",
                remedy=f"set the paths and options as they were, or {_NEW_CHECKPOINT}",
            )


def _count(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"not a count: {value!r}")
    return value
