"""The abilities of a store's filesystem, found by experiment on a file that is removed again."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tierfs.base.words import errors
from tierfs.base.words.names import printable
from tierfs.faces.doctor.findings import DoctorFinding, fail, ok, warn

_BYTES = b"tierfs doctor\n"
_NO_SUCH_READ = (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)
_LOCAL_DISK = "put the store on ext4, xfs or btrfs"


def check_filesystem(directory: Path) -> Iterator[DoctorFinding]:
    """Check RWF_NOWAIT and link(2), in a directory made below `directory`. Raises OSError where nothing can be made."""
    try:
        made = tempfile.TemporaryDirectory(prefix=".doctor-", dir=directory)
    except OSError as exc:
        if exc.errno != errno.EROFS:
            raise
        yield fail("filesystem", f"{printable(str(directory))}: the disk is read-only", errors.READ_ONLY_REMEDY)
        return
    with made as own:
        file = Path(own) / "file"
        file.write_bytes(_BYTES)
        yield nowait(_nowait_error(file))
        yield links(_link_error(file, Path(own) / "link"))


def nowait(error: int) -> DoctorFinding:
    """Check whether reads from the page cache need no thread; `error` is the errno of trying, 0 for none."""
    if error not in _NO_SUCH_READ:
        return ok("RWF_NOWAIT", "reads of cached local bytes need no thread")
    return warn("RWF_NOWAIT", f"not supported ({os.strerror(error)}): every local read needs a thread", _LOCAL_DISK)


def links(error: int) -> DoctorFinding:
    """Check whether a name can be taken create-only; `error` is the errno of trying, 0 for none."""
    if not error:
        return ok("link(2)", "supported")
    tell = warn if error in _NO_LINKS else fail
    return tell("link(2)", f"{os.strerror(error)}: a cold tier in a directory here cannot store objects", _LOCAL_DISK)


def _nowait_error(file: Path) -> int:
    fd = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.preadv(fd, [bytearray(len(_BYTES))], 0, os.RWF_NOWAIT)
    except OSError as exc:
        return exc.errno or 0
    finally:
        os.close(fd)
    return 0


def _link_error(file: Path, link: Path) -> int:
    try:
        os.link(file, link)
    except OSError as exc:
        return exc.errno or 0
    return 0
