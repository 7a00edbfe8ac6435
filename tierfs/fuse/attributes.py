"""What stat shows of segments and directories. Pure."""

from __future__ import annotations

import stat

import pyfuse3

from tierfs import osio
from tierfs.fuse.options import MountOptions
from tierfs.metadata.records import DirectoryRecord, SegmentRecord
from tierfs.segments.stat import modified_ns

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
