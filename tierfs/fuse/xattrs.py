"""Extended attributes `user.tierfs.*`: what tierfs knows of a segment, readable by name but not listed."""

from __future__ import annotations

from collections.abc import Callable

from tierfs.metadata import directories, policies
from tierfs.metadata.records import SegmentRecord
from tierfs.metadata.transaction import ReadTransaction
from tierfs.segments import stat

PREFIX = b"user.tierfs."


def _crc(txn: ReadTransaction, segment: SegmentRecord) -> str | None:
    crc = stat.segment_crc(txn, segment)
    return None if crc is None else f"{crc:08x}"


_VALUES: dict[str, Callable[[ReadTransaction, SegmentRecord], str | None]] = {
    "segment": lambda txn, segment: directories.path_of(txn, segment.parent_id, segment.name),
    "start_offset": lambda _, segment: str(segment.start_offset),
    "length": lambda _, segment: str(segment.length),
    "sealed": lambda _, segment: "1" if segment.sealed else "0",
    "chunks": lambda _, segment: str(segment.local.count + segment.cold.count),
    "local_bytes": lambda _, segment: str(segment.local.bytes),
    "cold_bytes": lambda _, segment: str(segment.cold.bytes),
    "crc32c": _crc,
    "read_priority": lambda txn, segment: policies.effective(txn, segment).read_priority.value,
}


def value_of(txn: ReadTransaction, segment: SegmentRecord, name: bytes) -> bytes | None:
    """The attribute's value, or None when there is none of this name."""
    find = _VALUES.get(name.removeprefix(PREFIX).decode(errors="replace")) if name.startswith(PREFIX) else None
    value = find(txn, segment) if find is not None else None
    return None if value is None else value.encode()
