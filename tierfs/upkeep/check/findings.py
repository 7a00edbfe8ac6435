"""Findings: the results of a check, each with its severity, its place and its remedy."""

from __future__ import annotations

from enum import IntEnum, StrEnum

from tierfs.base.bytes.frozen import dataclass, field
from tierfs.base.words.types import ByteRange, Tier

# Remedy for metadata that only another copy can restore.
RECOVER = "rebuild the metadata from the bucket: tierfs recover; or from a backup: tierfs restore"

# Remedy for a place where nothing can be reached.
UNREACHABLE = (
    "check that the right place is mounted; nothing there counts as lost; to remove segments that are "
    "permanently gone: tierfs rm"
)


class Severity(IntEnum):
    """Severity of a finding."""

    NOTE = 0
    """Worth knowing; no invariant is broken and the exit code stays 0."""
    DAMAGE = 1
    """An invariant is broken. This check saw no byte lost."""
    LOSS = 2
    """No copy holds these bytes any more."""


class Kind(StrEnum):
    """Kind of a finding; docs/recovery.md has a section on each group."""

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
    TABLES = "tables-damaged"
    UNCHECKED = "unchecked"


class Mend(StrEnum):
    """The repair that `--repair` makes for a finding."""

    RAISE_COUNTERS = "raise the counters"
    RECOUNT_SUMS = "recount all rows"
    DROP_ROW = "drop the row"
    ADD_DIRENT = "add the missing name"
    RELINK_CHAIN = "recount and relink the chain"
    CLEAR_ACTIVE = "clear the active flag"
    RECOUNT_REFERENCES = "recount the references"
    COLLECT_OBJECT = "make the object garbage"
    DROP_CHUNKS = "drop the chunks"
    REBUILD_CHECKSUMS = "recompute the checksums if the bytes match the CRC32C of the whole object"
    SET_MODE = "make the file read-only"
    REPLACE_CHUNK = "keep readable bytes; mark the rest lost until a copy reappears"
    CLEAR_SUSPECT = "clear the mark if the bytes are valid"
    RESTORE = "restore the bytes if a valid copy exists"
    WRITE_CHECKPOINT = "write a checkpoint"
    WRITE_AGAIN = "write the object again"
    OFFLOAD_AGAIN = "forget the offload, so that it is repeated"
    RENEW_OBJECT = "write its verified bytes to a new object"
    RESTORE_ENTRIES = "restore the entries from their copy in the bucket"


@dataclass(frozen=True, slots=True)
class FindingPlace:
    """A place in a segment: the chunk that starts at `start_offset` in one tier, or the whole segment."""

    segment_id: int
    tier: Tier | None = None
    start_offset: int = 0


@dataclass(frozen=True, slots=True)
class Finding:
    """One broken invariant or remark."""

    kind: Kind
    severity: Severity
    subject: str
    """Name of a segment, file, object or row."""
    message: str
    range: ByteRange | None = None
    """The segment's bytes concerned."""
    mend: Mend | None = None
    """The repair of --repair; None if it cannot repair this."""
    remedy: str | None = None
    """The remedy without --repair."""
    place: FindingPlace | None = None
    object_id: int = 0
    row: tuple[bytes, bytes] | None = field(default=None, repr=False)
    """Database and key of the row concerned."""
