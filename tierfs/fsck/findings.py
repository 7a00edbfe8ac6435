"""What a check found."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum, StrEnum

from tierfs.types import ByteRange, Tier


class Severity(IntEnum):
    """How bad it is."""

    NOTE = 0
    """Worth knowing; no invariant is broken and the exit code stays 0."""
    DAMAGE = 1
    """An invariant is broken. No byte is lost by what this check saw."""
    LOSS = 2
    """Bytes that nothing holds any more."""


class Kind(StrEnum):
    """What is wrong; docs/recovery.md has a section on each group."""

    METADATA_UNREADABLE = "metadata-unreadable"
    RECORD = "record-damaged"
    COUNTER = "counter"
    SUMS = "sums"
    OUTBOX = "outbox"
    INTENT = "intent"
    GARBAGE = "garbage"
    POLICY = "policy-without-target"
    LOCATION = "location-missing"
    ENTRIES = "entries"
    DIRENT_DANGLING = "dirent-dangling"
    DIRENT_WRONG = "dirent-wrong"
    DIRENT_MISSING = "dirent-missing"
    DIRECTORY_CYCLE = "directory-cycle"
    DIRECTORY_PARENT = "directory-parent"
    INODE = "inode-twice"
    SEGMENT = "segment"
    ACTIVE = "active-flag"
    CHAIN_STATE = "chain-sums"
    CHAIN_LIST = "chain-list"
    CHAIN_OVERLAP = "chain-overlap"
    CHUNK_ORPHAN = "chunk-orphan"
    CHUNK_OBJECT = "chunk-without-object"
    CHUNK_RANGE = "chunk-range"
    SUSPECT = "suspect"
    LOST = "lost"
    UNREACHABLE = "not-reachable"
    HOLE = "hole"
    OBJECT_UNUSED = "object-unused"
    REFERENCES = "references"
    CHECKSUM_GAP = "checksum-gap"
    CHECKSUM_ORPHAN = "checksum-orphan"
    FILE_MISSING = "file-missing"
    FILE_SHORT = "file-short"
    FILE_MODE = "file-mode"
    FILE_ORPHANS = "file-orphans"
    OBJECT_MISSING = "object-missing"
    OBJECT_DIFFERS = "object-differs"
    COMPANION = "ledger-object-missing"
    ETAGS = "etags"
    OBJECT_ORPHANS = "object-orphans"
    JOURNAL = "journal"
    BYTES = "bytes-damaged"
    UNCHECKED = "unchecked"


class Mend(StrEnum):
    """How `--repair` mends a finding."""

    RAISE_COUNTERS = "raise the counters"
    RECOUNT_SUMS = "count all rows anew"
    DROP_ROW = "drop the row"
    ADD_DIRENT = "add the missing name"
    RELINK_CHAIN = "count and link the chain anew"
    CLEAR_ACTIVE = "clear the active flag"
    RECOUNT_REFERENCES = "count the references anew"
    COLLECT_OBJECT = "make the object garbage"
    DROP_CHUNKS = "drop the chunks"
    REBUILD_CHECKSUMS = "compute the checksums anew, if the whole's CRC32C proves the bytes"
    SET_MODE = "make the file read-only"
    REPLACE_CHUNK = "keep what is good, and mark lost what is in no copy, until it comes back"
    CLEAR_SUSPECT = "clear the mark, if the bytes are good"
    RESTORE = "take the bytes back, if they are there and good"
    WRITE_CHECKPOINT = "write a checkpoint"
    WRITE_AGAIN = "write the object again"
    RESTORE_ENTRIES = "take the entries from their copy in the bucket"


RECOVER = "rebuild the metadata from the bucket: tierfs recover; or from a dump: tierfs load"
"""Remedy for metadata that only another copy of it can mend."""


UNREACHABLE = "is it mounted, and the right one? nothing there is taken for lost; what is gone for good: tierfs rm"
"""Remedy for a place of which nothing is there."""


@dataclass(frozen=True, slots=True)
class FindingPlace:
    """Where in a segment: the chunk that starts at `start_offset` in one tier, or all of the segment."""

    segment_id: int
    tier: Tier | None = None
    start_offset: int = 0


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong."""

    kind: Kind
    severity: Severity
    subject: str
    """A segment's name, a file, an object, a row: in words."""
    message: str
    range: ByteRange | None = None
    """The segment's bytes concerned."""
    mend: Mend | None = None
    """What --repair does about it; None when it can do nothing."""
    remedy: str | None = None
    """What mends it otherwise."""
    place: FindingPlace | None = None
    object_id: int = 0
    row: tuple[bytes, bytes] | None = field(default=None, repr=False)
    """Database and key of the row concerned."""
