"""Batches: what one write of an application made, and what its executors uploaded for it. See records.proto."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from tierfs.metadata.records import Record, require
from tierfs.types import AttemptId

MAX_BATCH = 2**63 - 1
"""Highest version of an application: Spark's batch ids are longs."""

MAX_APPLICATION_BYTES = 1024


class BatchState(IntEnum):
    """What a row, or a change of the journal, says of a batch."""

    COMMITTED = 0
    BEGUN = 1
    """Its segments follow in the journal. Only a journal that ends in between leaves such a row."""
    WATERMARK = 2
    """This version of the application and all below it count as committed."""
    DROPPED = 3
    """Only in the journal: the row goes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRecord(Record):
    """One version of an application that was committed."""

    application: str
    batch: str
    committed_ms: int = 0
    segment_ids: tuple[int, ...] = ()
    state: BatchState = BatchState.COMMITTED
    job: str = ""

    @property
    def number(self) -> int:
        """The version of the application."""
        return int(self.batch)

    def check(self) -> None:
        """An application has a name, and its versions are numbers."""
        named = 0 < len(self.application.encode()) <= MAX_APPLICATION_BYTES
        require(named, "a batch of an impossible application", self.application[:40])
        sound = self.batch.isascii() and self.batch.isdigit() and len(self.batch) <= len(str(MAX_BATCH))
        require(sound and self.number <= MAX_BATCH, "a batch with an impossible version", self.batch[:40])


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


@dataclass(frozen=True, slots=True)
class UploadedSegment:
    """What a task uploaded for one segment; travels from the executor to the driver."""

    segment: str
    """Full name of the segment."""
    objects: tuple[UploadedObject, ...]
    """Back to back from offset 0; none of a segment without bytes."""
    crc32c: int = 0
    """Of all bytes."""

    @property
    def length(self) -> int:
        """Bytes of the segment."""
        return sum(one.length for one in self.objects)
