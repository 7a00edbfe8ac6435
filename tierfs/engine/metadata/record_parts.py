"""Parts of the records of segments, directories and locations. records.proto documents their fields."""

from __future__ import annotations

from typing import Any

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words.names import printable
from tierfs.base.words.types import IN_PLACE, SegmentStatus, recordable_ns

# Of an ObjectRecord with an archive class: a tierfs that would take a refusal to read it for wrong keys refuses it.
ARCHIVED_VERSION = 2

# Of one in the archive place: a tierfs that knows only classes would look for it in the cold tier.
PLACED_VERSION = 3


def object_version(archive_class: str) -> int:
    """Return the least format version of an object's record."""
    if archive_class == IN_PLACE:
        return PLACED_VERSION
    return ARCHIVED_VERSION if archive_class else 1


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestedFile:
    """The file that a segment was copied from; mode 0: not copied from a file."""

    mode: int = 0
    modified_ns: int = 0
    length: int = 0

    def __post_init__(self) -> None:
        recordable = recordable_ns(self.modified_ns)
        if recordable != self.modified_ns:
            object.__setattr__(self, "modified_ns", recordable)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerView:
    """The owner's state of a segment that a replica shows only as far as the bucket holds it; length 0: the same."""

    length: int = 0
    status: SegmentStatus = SegmentStatus.OPEN
    sealed_ms: int = 0


NOTHING_HELD_BACK = OwnerView()


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """The removal that put a segment or directory into the trash, with the sums at and below it; due 0: not there."""

    path: str = ""
    removed_ms: int = 0
    due_ms: int = 0
    segments: int = 0
    directories: int = 0
    bytes: int = 0
    local_bytes: int = 0
    cold_bytes: int = 0
    uncovered_bytes: int = 0
    active_bytes: int = 0
    sequence: int = 0


NOT_REMOVED = Removal()


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterInfo:
    """The process that appends to a segment; for messages."""

    pid: int = 0
    host: str = ""
    command: str = ""
    since_ms: int = 0

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host} ({printable(self.command)})" if self.pid else "an unknown process"


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptionTimer:
    """A foreign location that the holder adopts again and again; every_s 0: it does not."""

    every_s: int = 0
    layout: str = ""
    directory_id: int = 0
    last_ms: int = 0
    accept_loss: bool = False


NOT_REPEATED = AdoptionTimer()


def may_have_length(record: Any, length_bytes: int) -> bool:
    """Return whether the object of a record, or of its message, may have a length.

    A foreign object may be longer than what counts of it: its system appends to it, or wrote bytes that it never
    acknowledged.
    """
    longer = record.foreign and not record.encoding and length_bytes > record.length
    return bool(longer) or length_bytes == (record.stored_length or record.length)
