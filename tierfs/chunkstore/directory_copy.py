"""Copying ranges between files inside the kernel, sharing their blocks where the filesystem can."""

from __future__ import annotations

import errno
import os

_CANNOT = frozenset({errno.EXDEV, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.EPERM})
"""copy_file_range(2): other filesystems, old kernels, network and FUSE filesystems that lack it."""

_LARGEST_COPY_BYTES = 1 << 30
"""Linux copies at most 2 GiB per call."""


def copy_range(source: int, offset: int, length_bytes: int, target: int) -> int:
    """Append a range of one open file to another at its position; returns how many bytes there were.

    Less than `length_bytes` when the source ends before. Raises OSError.
    """
    done = 0
    while done < length_bytes:
        size = min(length_bytes - done, _LARGEST_COPY_BYTES)
        copied = _copy(source, offset + done, size, target)
        if not copied:
            break
        done += copied
    return done


def _copy(source: int, offset: int, size: int, target: int) -> int:
    try:
        return os.copy_file_range(source, target, size, offset_src=offset)
    except OSError as exc:
        if exc.errno not in _CANNOT:
            raise
    return os.sendfile(target, source, offset, size)
