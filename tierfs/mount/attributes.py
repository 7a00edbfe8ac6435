"""Attributes of segments and directories for stat. Pure.

They are made from the rows' messages: a record of all fields takes 8 microseconds, a message 1 (measured), and a
listing makes one for each name.
"""

from __future__ import annotations

import stat

import pyfuse3

from tierfs.base.system import osio
from tierfs.engine.metadata import records_pb2 as pb
from tierfs.engine.segments.stat import modified_ns
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
