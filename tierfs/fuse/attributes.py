"""What stat shows of segments and directories. Pure.

Extended attributes `user.tierfs.*`: what tierfs knows of a segment, readable by name but not listed.
"""

from __future__ import annotations

import stat
from collections.abc import Callable
from dataclasses import dataclass

import pyfuse3

from tierfs import osio
from tierfs.fuse.options import MountOptions
from tierfs.metadata import directories, policies
from tierfs.metadata.records import DirectoryRecord, SegmentRecord
from tierfs.metadata.transaction import ReadTransaction
from tierfs.segments.stat import modified_ns, segment_crc
from tierfs.types import ReadPriority, Tier

_NS_PER_MS = 1_000_000
_STAT_BLOCK_BYTES = 512
IO_BLOCK_BYTES = 1024 * 1024
"""st_blksize: what tools read at a time."""

MISSING_TIMEOUT_S = 1.0
"""How long the kernel remembers that a name is missing. It is told of new names sooner; only when too many
changes came at once is it told of inodes alone, and new names still show within a second."""


def of_segment(record: SegmentRecord, options: MountOptions, sealed_timeout_s: float) -> pyfuse3.EntryAttributes:
    """Attributes of a segment: the kernel trusts those of a sealed one, and asks anew for an open one."""
    entry = _entry(record.inode, stat.S_IFREG | _file_mode(record) & ~options.umask, options)
    entry.st_size = record.range.length_bytes
    local_blocks = -(-record.local.bytes // _STAT_BLOCK_BYTES)
    # A tar that looks for holes archives a file without blocks as zeros.
    entry.st_blocks = max(local_blocks, 1 if entry.st_size else 0)
    entry.st_mtime_ns = modified_ns(record)
    entry.st_atime_ns = entry.st_mtime_ns
    entry.st_ctime_ns = max(record.changed_ms, record.modified_ms) * _NS_PER_MS
    entry.attr_timeout = sealed_timeout_s if record.sealed else 0
    entry.entry_timeout = sealed_timeout_s
    return entry


def _file_mode(record: SegmentRecord) -> int:
    """Who may read: all, or those who could read the file that the segment is a copy of, and its owner."""
    return record.file.mode & osio.SHOWN_FILE | stat.S_IRUSR if record.file.mode else osio.SHOWN_FILE


def of_directory(record: DirectoryRecord, options: MountOptions, timeout_s: float) -> pyfuse3.EntryAttributes:
    """Attributes of a directory."""
    entry = _entry(record.inode, stat.S_IFDIR | osio.SHOWN_DIRECTORY & ~options.umask, options)
    entry.st_nlink = 2
    entry.st_mtime_ns = entry.st_atime_ns = entry.st_ctime_ns = record.modified_ms * _NS_PER_MS
    entry.attr_timeout = entry.entry_timeout = timeout_s
    return entry


def missing() -> pyfuse3.EntryAttributes:
    """The answer to a lookup that found nothing."""
    entry = pyfuse3.EntryAttributes()
    entry.st_ino = 0
    entry.entry_timeout = MISSING_TIMEOUT_S
    return entry


def _entry(inode: int, mode: int, options: MountOptions) -> pyfuse3.EntryAttributes:
    entry = pyfuse3.EntryAttributes()
    entry.st_ino = inode
    entry.st_mode = mode
    entry.st_nlink = 1
    entry.st_uid, entry.st_gid = options.uid, options.gid
    entry.st_blksize = IO_BLOCK_BYTES
    entry.generation = 0
    return entry


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
    crc = segment_crc(shown.txn, segment)
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
