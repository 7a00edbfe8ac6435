"""Records of ledgers and of batches; records.proto documents every field.

Ledgers: positions of entries, and the progress of an offload. Batches: results of one write of an application, and the
objects its executors uploaded for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Self
from uuid import UUID

from tierfs.base.bytes.frozen import dataclass, field
from tierfs.base.words import units
from tierfs.base.words.types import AttemptId
from tierfs.engine.metadata.journal_state import IngestedFile
from tierfs.engine.metadata.records import Record, require

# Entries in one row of `entries`: 4 to 12 KiB, which a reader of one entry decodes in 0.1 ms.
MAX_RUN_ENTRIES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryRun(Record):
    """Consecutive entries of a ledger: each one's length, and the place of the first one's payload in the segment."""

    first_entry_id: int = 0
    payload_start: int = 0
    lengths: tuple[int, ...] = ()
    stored_offset: int = 0

    @property
    def end_entry_id(self) -> int:
        """Id after the last entry."""
        return self.first_entry_id + len(self.lengths)

    @property
    def payload_end(self) -> int:
        """Offset after the last entry's payload."""
        return self.payload_start + sum(self.lengths)

    def check(self) -> None:
        """Raise DataLoss unless the run has between one and MAX_RUN_ENTRIES entries."""
        require(0 < len(self.lengths) <= MAX_RUN_ENTRIES, "a run of entries is empty or too long", self.first_entry_id)


# Name of the driver in the context of a ledger that tierfs offloaded; of others it is what their writer recorded.
OUR_DRIVER = "tierfs"


@dataclass(frozen=True, slots=True, kw_only=True)
class OffloadProgress:
    """Progress of a ledger's offload (PIP-17)."""

    uid_msb: int = 0
    uid_lsb: int = 0
    complete: bool = False
    local_deleted: bool = False
    timestamp_ms: int = 0
    driver_name: str = ""
    driver_properties: Mapping[str, str] = field(default_factory=dict)

    @property
    def uuid(self) -> UUID | None:
        """The attempt; None when none began."""
        return UUID(int=self.uid_msb << 64 | self.uid_lsb) if self.uid_msb or self.uid_lsb else None

    @classmethod
    def begun(cls, uuid: UUID, driver_name: str = "", driver_properties: Mapping[str, str] | None = None) -> Self:
        """Return an attempt that begins now."""
        return cls(
            uid_msb=uuid.int >> 64,
            uid_lsb=uuid.int & (1 << 64) - 1,
            driver_name=driver_name,
            driver_properties=driver_properties or {},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRecord(Record):
    """Tiering's state of a ledger besides its segment."""

    ledger_id: int = 0
    segment_id: int
    entries: int = 0
    bytes: int = 0
    timestamp_ms: int = 0
    offload: OffloadProgress = OffloadProgress()
    elsewhere: OffloadProgress = OffloadProgress()
    """Of the offloader that a program gave its managed ledger."""


# Highest version of an application: Spark's batch ids are longs.
MAX_BATCH = 2**63 - 1

MAX_APPLICATION_BYTES = 1024


class BatchState(IntEnum):
    """State of a batch, in a row or in a change of the journal."""

    COMMITTED = 0
    BEGUN = 1
    """Its segments follow in the journal. Only a journal that ends in between leaves such a row."""
    WATERMARK = 2
    """This version of the application and all below it are forgotten: too old to tell whether they were committed."""
    DROPPED = 3
    """Only in the journal: the row is removed."""
    RANGE = 4
    """All versions from `first` on up to this one were committed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRecord(Record):
    """One version of an application that was committed, or a range of them."""

    application: str
    batch: str
    committed_ms: int = 0
    segment_ids: tuple[int, ...] = ()
    state: BatchState = BatchState.COMMITTED
    job: str = ""
    first: int = 0
    sequence: int = 0
    writer: str = ""

    @property
    def number(self) -> int:
        """The version of the application."""
        return int(self.batch)

    def check(self) -> None:
        """Raise DataLoss unless the application has a name and the version is a number, both within their limits."""
        named = 0 < len(self.application.encode()) <= MAX_APPLICATION_BYTES
        require(named, "a batch of an impossible application", self.application[:40])
        sound = units.decimal(self.batch, MAX_BATCH) is not None
        require(sound, "a batch with an impossible version", self.batch[:40])
        require(len(self.writer.encode()) <= MAX_APPLICATION_BYTES, "a batch of an impossible writer", self.batch[:40])
        require(self.first <= self.number, "a range of versions runs backwards", self.batch[:40])


@dataclass(frozen=True, slots=True)
class UploadedObject:
    """Consecutive bytes of a segment, in an object of their own."""

    name: str
    length: int
    etag: str
    crc32c: int
    crcs: bytes
    """CRC32C per 128 KiB, packed as checksum runs are."""
    attempt: AttemptId


NO_FILE = IngestedFile()


@dataclass(frozen=True, slots=True)
class UploadedSegment:
    """Objects that a task uploaded for one segment; travels from the executor to the driver."""

    segment: str
    """Full name of the segment."""
    objects: tuple[UploadedObject, ...]
    """Back to back from offset 0; empty for a segment without bytes."""
    crc32c: int = 0
    """CRC32C of all bytes."""
    file: IngestedFile = NO_FILE
    """The file that the bytes were read from."""

    @property
    def length(self) -> int:
        """Bytes of the segment."""
        return sum(uploaded.length for uploaded in self.objects)
