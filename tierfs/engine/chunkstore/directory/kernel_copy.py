"""Copy ranges between open files inside the kernel, which shares blocks on filesystems that can."""

from __future__ import annotations

import errno
import os

# copy_file_range(2): other filesystems, old kernels, network and FUSE filesystems that lack it.
_CANNOT = frozenset({errno.EXDEV, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.EPERM})

# Linux copies at most 2 GiB per call.
_LARGEST_COPY_BYTES = 1 << 30


def copy_range(source: int, offset: int, length_bytes: int, target: int) -> int:
    """Append a range of one open file to another at its position; return the number of bytes copied.

    That is less than `length_bytes` if the source ends early. Raises OSError.
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
