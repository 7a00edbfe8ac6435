"""Everything that would change something: EROFS."""

from __future__ import annotations

import errno
from typing import Any, NoReturn

import pyfuse3


async def _refuse(self: pyfuse3.Operations, *arguments: Any) -> NoReturn:
    raise pyfuse3.FUSEError(errno.EROFS)


_refused: Any = _refuse
"""One method in the place of twelve with different parameters."""


class ReadOnlyOperations(pyfuse3.Operations):
    """Operations of a read-only filesystem."""

    supports_dot_lookup = True
    enable_writeback_cache = False

    create = _refused
    link = _refused
    mkdir = _refused
    mknod = _refused
    rename = _refused
    removexattr = _refused
    rmdir = _refused
    setattr = _refused
    setxattr = _refused
    symlink = _refused
    unlink = _refused
    write = _refused
