"""The records of followed files: their bytes in a stream, and where they are looked for. See records.proto."""

from __future__ import annotations

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words.types import DirectoryId
from tierfs.engine.metadata.records import Record, require

# The longest head and tail: a line with a time is shorter, and one read of a page has both.
MAX_PROOF_BYTES = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowedRange(Record):
    """Consecutive bytes of a file that are in a stream, in the same order and without others between them."""

    path: bytes
    device: int = 0
    inode: int = 0
    file_start: int = 0
    file_end: int = 0
    segment_start: int = 0
    head_length: int = 0
    head_crc32c: int = 0
    tail_length: int = 0
    tail_crc32c: int = 0
    modified_ns: int = 0
    committed_ms: int = 0
    gap: str = ""
    unended: bool = False
    late: bool = False
    cursor: str = ""
    sender: str = ""

    @property
    def segment_end(self) -> int:
        """Offset of the stream after the last byte."""
        return self.segment_start + self.file_end - self.file_start

    def check(self) -> None:
        """Raise DataLoss unless the range is one, and head and tail are as long as they may be."""
        require(self.file_start <= self.file_end, "a followed file with a reversed range", self.inode)
        bounded = max(self.head_length, self.tail_length) <= MAX_PROOF_BYTES and self.tail_length <= self.file_end
        require(bounded, "a followed file with an impossible head or tail", self.inode)


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowedSource(Record):
    """A path, directory or pattern of files that are followed into a directory of the store."""

    path: bytes
    below: str = ""
    directory_id: DirectoryId
    begun_ms: int = 0
    background: bool = False
    sender: str = ""
