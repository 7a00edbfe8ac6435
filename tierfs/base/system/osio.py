"""Calls of the operating system that several layers make: whole reads and writes, durable names, precise errors."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words import errors
from tierfs.base.words.errors import (
    DataLoss,
    NotFound,
    PermissionDenied,
    ReadOnlyDisk,
    StorageFull,
    TierfsError,
    Unavailable,
)
from tierfs.base.words.names import printable

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

_NOT_SUPPORTED = (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)


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
        raise PermissionError(errno.EPERM, "it is a link, or no directory", str(path)) from exc
    try:
        status = os.fstat(fd)
    finally:
        os.close(fd)
    if status.st_uid != os.geteuid():
        raise PermissionError(errno.EPERM, "it belongs to another user", str(path))
    if status.st_mode & ~OWNER_DIRECTORY & 0o777:
        raise PermissionError(errno.EPERM, "others may use it", str(path))


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


@dataclass(frozen=True, slots=True)
class Meaning:
    """An error of the operating system as one of ours: `{subject}: ` and the message, or the reason without one."""

    error: type[TierfsError]
    message: str | None = None
    remedy: str | None = None


Meanings = Mapping[int, Meaning]


def meanings(*rows: tuple[Meaning, tuple[int, ...]]) -> Meanings:
    """Build a table from rows, each a meaning and its numbers."""
    return {number: meaning for meaning, numbers in rows for number in numbers}


# Errors of a write for which there is no room; the last one is of RLIMIT_FSIZE, or of a file system's longest file.
NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})

FILE_LIMIT = "a file would be larger than ulimit -f, or its file system, allows"
FILE_LIMIT_REMEDY = "run it with: ulimit -f unlimited (of a systemd unit: LimitFSIZE=infinity)"

# Errors of a file that is opened where the process, or the system, has too many open.
FEW_FILES = frozenset({errno.EMFILE, errno.ENFILE})
FEW_FILES_REMEDY = "close some files, or allow more: ulimit -n 4096 (of a systemd unit: LimitNOFILE=4096)"

# Of the files that a process may have open, the part for one cache of them: there are two, connections, and all else.
_CACHES_SHARE = 4
_LEAST_OPEN = 8


def open_files_within_limit(wanted: int) -> int:
    """Return how many files a cache may keep open that would have `wanted`, by the limit of this process."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return wanted if limit == resource.RLIM_INFINITY else min(wanted, max(_LEAST_OPEN, limit // _CACHES_SHARE))


def lacks_files(error: BaseException) -> bool:
    """Return whether an error, or its cause, is that too many files are open."""
    cause = error.__cause__ or error
    return isinstance(cause, OSError) and cause.errno in FEW_FILES


# Of files in the store's directory.
LOCAL_DISK = meanings(
    (
        Meaning(StorageFull, "the local disk is full", "free space, or run: tierfs evict"),
        (errno.ENOSPC, errno.EDQUOT),
    ),
    (Meaning(StorageFull, FILE_LIMIT, FILE_LIMIT_REMEDY), (errno.EFBIG,)),
    (Meaning(Unavailable, "too many open files", FEW_FILES_REMEDY), tuple(FEW_FILES)),
    (Meaning(NotFound), (errno.ENOENT, errno.ENOTDIR)),
    (Meaning(PermissionDenied), (errno.EACCES, errno.EPERM, errno.ELOOP)),
    (Meaning(ReadOnlyDisk, "the disk is read-only", errors.READ_ONLY_REMEDY), (errno.EROFS,)),
    (Meaning(DataLoss, remedy="check the disk, then run: tierfs check"), (errno.EIO,)),
)

_UNKNOWN = Meaning(Unavailable)


def ours(exc: OSError, subject: str, table: Meanings = LOCAL_DISK) -> TierfsError:
    """Return an error of the operating system as ours, naming `subject`; Unavailable where `table` has no meaning."""
    meaning = table.get(exc.errno or 0, _UNKNOWN)
    reason = meaning.message or (os.strerror(exc.errno) if exc.errno else str(exc))
    return meaning.error(f"{printable(subject)}: {reason}", remedy=meaning.remedy)


class map_os_errors:  # a class, as a generator costs three times as much
    """Turn errors of the operating system into ours, naming `subject`; Unavailable where `table` has no meaning."""

    __slots__ = ("_subject", "_table")

    def __init__(self, subject: str, table: Meanings = LOCAL_DISK) -> None:
        self._subject = subject
        self._table = table

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(exc, OSError):
            raise ours(exc, self._subject, self._table) from exc
