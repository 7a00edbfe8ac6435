"""Calls of the operating system that several layers make: whole reads and writes, durable names, private files."""

from __future__ import annotations

import errno
import os
import resource
import select
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

OWNER_DIRECTORY = 0o700
OWNER_FILE = 0o600
# A file whose bytes never change again.
SEALED_FILE = 0o440
# In a mount, which is read-only.
SHOWN_DIRECTORY = 0o555
SHOWN_FILE = 0o444
# Less what the umask forbids.
SHARED_DIRECTORY = 0o777
SHARED_FILE = 0o666

_MS_PER_S = 1000
# A C int.
_LONGEST_POLL_MS = 2**31 - 1

_NOT_SUPPORTED = (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)

# Of the files that a process may have open, the part for one cache of them: there are two, connections, and all else.
_CACHES_SHARE = 4
_LEAST_OPEN = 8


def read_all(fd: int, view: memoryview, offset: int, *, over: int | None = None) -> int:
    """Fill `view` from `offset` on; return the number of bytes read before the file, or the errno `over`, ended it."""
    done = 0
    while done < len(view):
        try:
            count = os.preadv(fd, [view[done:]], offset + done)
        except OSError as exc:
            if exc.errno != over:
                raise
            break
        if not count:
            break
        done += count
    return done


def readable(fd: int, timeout_s: float = 0) -> bool:
    """Wait up to `timeout_s`, or about 24 days if it is longer; return whether a read would return at once.

    Also true at the end of a pipe or connection, and for files.
    """
    waited = select.poll()  # select.select() has no descriptors above 1,023: a follower, or a driver of Spark, has more
    waited.register(fd, select.POLLIN)
    return bool(waited.poll(min(max(0, timeout_s * _MS_PER_S), _LONGEST_POLL_MS)))


def write_all(fd: int, data: bytes | bytearray | memoryview, offset: int) -> None:
    """Write all of `data` at `offset`. Raises OSError."""
    view = memoryview(data)
    while view:
        written = os.pwrite(fd, view, offset)
        view, offset = view[written:], offset + written


class PageCache:
    """Reads of files of one filesystem that do not wait for its disk."""

    def __init__(self) -> None:
        self.tells = True
        """Whether the filesystem can tell what is in the page cache."""

    def read(self, fd: int, view: memoryview, offset: int) -> int:
        """Copy what is in the page cache; return its length, 0 where that cannot be told."""
        if not self.tells:
            return 0
        try:
            # preadv2(2): what is not in the page cache is EAGAIN, or a short read.
            return os.preadv(fd, [view], offset, os.RWF_NOWAIT)
        except OSError as exc:  # the blocking read meets and reports any other error
            self.tells = exc.errno not in _NOT_SUPPORTED
            return 0


def sync(path: str | bytes | Path, *, dir_fd: int | None = None, flags: int = 0) -> None:
    """Make a file's bytes, or the names in a directory, durable. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | flags, dir_fd=dir_fd)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_directory(path: str | Path) -> None:
    """Make the names in a directory durable. Raises OSError."""
    # fsync(2): syncing a file does not sync its entry in the directory.
    sync(path, flags=os.O_DIRECTORY)


def make_directories(path: Path, mode: int) -> None:
    """Make a directory and its missing parents, durably; one that exists is success. Raises OSError."""
    missing = [place for place in (path, *path.parents) if not place.exists()]
    path.mkdir(mode=mode, parents=True, exist_ok=True)
    for made in missing:
        sync_directory(made.parent)


def private_directory(path: Path) -> None:
    """Make a directory for this user alone, in a place where others make theirs; one that exists is success.

    Raises PermissionError unless it is the user's, closed to others, and no link: another user may have made it first.
    """
    with suppress(FileExistsError):
        path.mkdir(mode=OWNER_DIRECTORY)
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except NotADirectoryError as exc:
        raise PermissionError(errno.EPERM, "it is a link, or not a directory", str(path)) from exc
    try:
        status = os.fstat(fd)
    finally:
        os.close(fd)
    if status.st_uid != os.geteuid():
        raise PermissionError(errno.EPERM, "it belongs to another user", str(path))
    if status.st_mode & ~OWNER_DIRECTORY & 0o777:
        raise PermissionError(errno.EPERM, "other users have access to it", str(path))


@contextmanager
def durable_file(
    path: str | Path, flags: int, mode: int = OWNER_FILE, *, dir_fd: int | None = None
) -> Iterator[BinaryIO]:
    """Open a file to write, whose bytes are durable when the block ends; not so its name. Raises OSError."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | flags, mode, dir_fd=dir_fd)
    with os.fdopen(fd, "wb") as file:
        yield file
        file.flush()
        os.fsync(fd)


def open_or_create(path: str | Path) -> int:
    """Open the owner's own file, made empty when it is missing; never through a link. Raises OSError."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, OWNER_FILE)


def open_files_within_limit(wanted: int) -> int:
    """Return how many files a cache may keep open that would have `wanted`, by the limit of this process."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return wanted if limit == resource.RLIM_INFINITY else min(wanted, max(_LEAST_OPEN, limit // _CACHES_SHARE))


def allow_more_open_files(wanted: int) -> None:
    """Raise the limit of this process towards `wanted`, as far as the system lets it. Its children inherit that."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
