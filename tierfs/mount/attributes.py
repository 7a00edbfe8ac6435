"""Attributes of segments and directories for stat, and extended attributes `user.tierfs.*` of segments. Pure.

Those for stat are made from the rows' messages: a record of all fields takes 8 microseconds, a message 1 (measured),
and a listing makes one for each name. Extended attributes are readable by name but not listed.
"""

from __future__ import annotations

import stat
from collections.abc import Callable
from dataclasses import dataclass

import pyfuse3

from tierfs.base.options.precedence import Effective
from tierfs.base.system import osio
from tierfs.base.words.types import ReadPriority, Tier
from tierfs.engine.metadata import directories
from tierfs.engine.metadata import records_pb2 as pb
from tierfs.engine.metadata.records import SegmentRecord
from tierfs.engine.metadata.transaction import ReadTransaction
from tierfs.engine.segments.stat import modified_ns, segment_crc
from tierfs.mount.options import MountOptions

_NS_PER_MS = 1_000_000
_STAT_BLOCK_BYTES = 512
# st_blksize: the size tools read at a time.
IO_BLOCK_BYTES = 1024 * 1024

# Seconds the kernel remembers that a name is missing. It is notified of new names sooner; only when too many changes
# arrive at once is it notified of inodes alone, and new names still show within a second.
MISSING_TIMEOUT_S = 1.0


def of_segment(segment: pb.SegmentRecord, options: MountOptions, timeout_s: float) -> pyfuse3.EntryAttributes:
    """Return the attributes of a segment. The kernel caches them for `timeout_s`, unless it is told of a change."""
    entry = _entry(segment.inode, stat.S_IFREG | _file_mode(segment.file.mode) & ~options.umask, options)
    entry.st_size = size_bytes = segment.length - segment.start_offset
    # A tar that looks for holes archives a file without blocks as zeros.
    entry.st_blocks = max(-(-segment.local.bytes // _STAT_BLOCK_BYTES), 1 if size_bytes else 0)
    entry.st_mtime_ns = entry.st_atime_ns = modified_ns(segment)
    entry.st_ctime_ns = max(segment.changed_ms, segment.modified_ms) * _NS_PER_MS
    entry.attr_timeout = entry.entry_timeout = timeout_s
    return entry


def _file_mode(mode: int) -> int:
    """Return the read permissions: for all, or those of the file the segment is a copy of, and always the owner's."""
    return mode & osio.SHOWN_FILE | stat.S_IRUSR if mode else osio.SHOWN_FILE


def _directory_mode(mode: int) -> int:
    """Return the permissions to read and search: for all, or those of the directory it is a copy of."""
    return mode & osio.SHOWN_DIRECTORY | stat.S_IRUSR | stat.S_IXUSR if mode else osio.SHOWN_DIRECTORY


def of_directory(directory: pb.DirectoryRecord, options: MountOptions, timeout_s: float) -> pyfuse3.EntryAttributes:
    """Return the attributes of a directory."""
    entry = _entry(directory.inode, stat.S_IFDIR | _directory_mode(directory.mode) & ~options.umask, options)
    # As on btrfs: not counted. Two would say that it holds no directory, and find(1) may then not look for any.
    entry.st_nlink = 1
    entry.st_mtime_ns = entry.st_atime_ns = entry.st_ctime_ns = directory.modified_ms * _NS_PER_MS
    entry.attr_timeout = entry.entry_timeout = timeout_s
    return entry


def missing() -> pyfuse3.EntryAttributes:
    """Return the answer to a lookup that found nothing."""
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

# Most chunks from which a CRC32C is combined: 13 microseconds each (measured), on the loop.
_CRC_CHUNKS = 1000


@dataclass(frozen=True, slots=True)
class XattrContext:
    """The inputs of the values: one segment as one mount sees it."""

    txn: ReadTransaction
    segment: SegmentRecord
    priority_of: Callable[[ReadTransaction, SegmentRecord], Effective[ReadPriority]]
    """The mount's answer."""
    served_from: Tier | None


def _crc(context: XattrContext) -> str | None:
    segment = context.segment
    if segment.local.count + segment.cold.count > _CRC_CHUNKS:
        return None
    crc = segment_crc(context.txn, segment)
    return None if crc is None else f"{crc:08x}"


def _read_priority(context: XattrContext) -> Effective[ReadPriority]:
    return context.priority_of(context.txn, context.segment)


_VALUES: dict[bytes, Callable[[XattrContext], str | None]] = {
    b"segment": lambda context: directories.path_of(context.txn, context.segment.parent_id, context.segment.name),
    b"start_offset": lambda context: str(context.segment.start_offset),
    b"length": lambda context: str(context.segment.length),
    b"sealed": lambda context: "1" if context.segment.sealed else "0",
    b"chunks": lambda context: str(context.segment.local.count + context.segment.cold.count),
    b"local_bytes": lambda context: str(context.segment.local.bytes),
    b"cold_bytes": lambda context: str(context.segment.cold.bytes),
    b"crc32c": _crc,
    b"read_priority": lambda context: _read_priority(context).value.value,
    b"read_priority_origin": lambda context: str(_read_priority(context).origin),
    b"served_from": lambda context: "none" if context.served_from is None else context.served_from.name.lower(),
}


def value_of(context: XattrContext, name: bytes) -> bytes | None:
    """Return the attribute's value, or None for an unknown name and for a CRC of too many chunks."""
    find = _VALUES.get(name.removeprefix(PREFIX)) if name.startswith(PREFIX) else None
    value = find(context) if find is not None else None
    return None if value is None else value.encode()
