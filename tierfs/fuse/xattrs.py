"""Extended attributes `user.tierfs.*`: what tierfs knows of a segment, readable by name but not listed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tierfs.metadata import directories, policies
from tierfs.metadata.records import SegmentRecord
from tierfs.metadata.transaction import ReadTransaction
from tierfs.segments import stat
from tierfs.types import ReadPriority, Tier

PREFIX = b"user.tierfs."

_CRC_CHUNKS = 1000
"""A CRC32C is combined from so many chunks at most: 13 microseconds each (measured), on the loop."""


@dataclass(frozen=True, slots=True)
class Shown:
    """What the values are made of: one segment as one mount sees it."""

    txn: ReadTransaction
    segment: SegmentRecord
    priority: ReadPriority | None
    """What overrides the policies in this mount."""
    served_from: Tier | None


def _crc(shown: Shown) -> str | None:
    segment = shown.segment
    if segment.local.count + segment.cold.count > _CRC_CHUNKS:
        return None
    crc = stat.segment_crc(shown.txn, segment)
    return None if crc is None else f"{crc:08x}"


def _read_priority(shown: Shown) -> str:
    return (shown.priority or policies.effective(shown.txn, shown.segment).read_priority).value


_VALUES: dict[bytes, Callable[[Shown], str | None]] = {
    b"segment": lambda shown: directories.path_of(shown.txn, shown.segment.parent_id, shown.segment.name),
    b"start_offset": lambda shown: str(shown.segment.start_offset),
    b"length": lambda shown: str(shown.segment.length),
    b"sealed": lambda shown: "1" if shown.segment.sealed else "0",
    b"chunks": lambda shown: str(shown.segment.local.count + shown.segment.cold.count),
    b"local_bytes": lambda shown: str(shown.segment.local.bytes),
    b"cold_bytes": lambda shown: str(shown.segment.cold.bytes),
    b"crc32c": _crc,
    b"read_priority": _read_priority,
    b"served_from": lambda shown: "none" if shown.served_from is None else shown.served_from.name.lower(),
}


def value_of(shown: Shown, name: bytes) -> bytes | None:
    """The attribute's value, or None when there is none of this name. A CRC of many chunks is not there."""
    find = _VALUES.get(name.removeprefix(PREFIX)) if name.startswith(PREFIX) else None
    value = find(shown) if find is not None else None
    return None if value is None else value.encode()
