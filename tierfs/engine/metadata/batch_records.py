"""Records of batches: results of one write of an application, and the objects that its executors uploaded for it.

records.proto documents every field.
"""

from __future__ import annotations

from enum import IntEnum

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words import units
from tierfs.base.words.types import AttemptId
from tierfs.engine.metadata.record_parts import IngestedFile
from tierfs.engine.metadata.records import Record, require

# Highest version of an application: Spark's batch ids are longs.
MAX_BATCH = 2**63 - 1

MAX_APPLICATION_BYTES = 1024

NO_FILE = IngestedFile()


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
        require(self.first <= self.number, "a range of versions is reversed", self.batch[:40])


@dataclass(frozen=True, slots=True)
class UploadedFrames:
    """The stored form of a compressed object: a frame for each 128 KiB, then the seek table."""

    lengths: bytes
    """Stored bytes of each frame, packed as checksums are."""
    stored_length: int
    stored_crc32c: int


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
    frames: UploadedFrames | None = None
    """Of a compressed object; the other fields are of its plain bytes."""

    @property
    def stored_bytes(self) -> int:
        """Size of the object itself."""
        return self.length if self.frames is None else self.frames.stored_length


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
