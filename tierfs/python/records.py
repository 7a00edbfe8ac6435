"""What the Python face answers with: the facts of names and segments, as plain records."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import Self

from tierfs.segments.stat import Listed, SegmentStat, modified_ns
from tierfs.types import ByteRange, EntryKind, ReadPriority, SegmentKind, Tier

_MS_PER_S = 1000
_NS_PER_MS = 1_000_000


def time_of(time_ms: int) -> datetime | None:
    """Return a time in UTC; None for 0, which stands for never."""
    return datetime.fromtimestamp(time_ms / _MS_PER_S, UTC) if time_ms else None


@dataclass(frozen=True, slots=True)
class SegmentInfo:
    """The facts of one segment at one moment. Offsets and sizes are in bytes."""

    name: str
    start_offset: int
    """Its first readable byte; the bytes before were truncated."""
    length: int
    """The offset after its last byte, where the next append goes."""
    sealed: bool
    is_ledger: bool
    local_bytes: int
    cold_bytes: int
    crc32c: int | None
    """Of all readable bytes; None when a part is unknown."""
    read_priority: ReadPriority
    created: datetime | None
    modified: datetime | None
    successor: str | None
    """The segment that it continues in, if policy sealed it."""
    lost: tuple[ByteRange, ...]
    """Bytes without any copy that passed its checks; reading them fails."""
    suspect: tuple[tuple[Tier, ByteRange], ...]
    """Copies that are missing or damaged; another tier may have the bytes."""

    @classmethod
    def of(cls, stat: SegmentStat) -> Self:
        """Return the facts in a description of the layers below."""
        record = stat.record
        return cls(
            name=stat.name,
            start_offset=record.start_offset,
            length=record.length,
            sealed=record.sealed,
            is_ledger=record.kind is SegmentKind.LEDGER,
            local_bytes=record.local.bytes,
            cold_bytes=record.cold.bytes,
            crc32c=stat.crc32c,
            read_priority=stat.read_priority.value,
            created=time_of(record.created_ms),
            modified=time_of(modified_ns(record) // _NS_PER_MS),
            successor=stat.successor,
            lost=stat.lost,
            suspect=stat.suspect,
        )


@dataclass(frozen=True, slots=True)
class Name:
    """One name of a listing: a directory, or a segment with its sizes in bytes."""

    path: str
    """From the root of the store."""
    is_directory: bool
    start_offset: int = 0
    length: int = 0
    sealed: bool = False
    local_bytes: int = 0
    cold_bytes: int = 0
    modified: datetime | None = None

    @property
    def name(self) -> str:
        """The last part of the path."""
        return PurePosixPath(self.path).name

    @classmethod
    def of(cls, above: str, item: Listed) -> Self:
        """Return the name of an item in the listing of a directory; `above` is the directory's path."""
        path = f"{above}/{item.name}" if above else item.name
        record = item.segment
        if item.kind is EntryKind.DIRECTORY or record is None:
            modified = item.directory.modified_ms if item.directory is not None else 0
            return cls(path, is_directory=True, modified=time_of(modified))
        return cls(
            path,
            is_directory=False,
            start_offset=record.start_offset,
            length=record.length,
            sealed=record.sealed,
            local_bytes=record.local.bytes,
            cold_bytes=record.cold.bytes,
            modified=time_of(modified_ns(record) // _NS_PER_MS),
        )
