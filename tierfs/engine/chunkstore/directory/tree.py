"""A held directory: everything below it is reached from one descriptor, never through a symbolic link."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

from tierfs.base.system import os_errors, osio
from tierfs.base.system.os_errors import Meaning
from tierfs.base.words.errors import (
    AlreadyExists,
    InvalidRequest,
    NotFound,
    PermissionDenied,
    StorageFull,
    Unavailable,
    WrongColdTier,
)
from tierfs.base.words.names import printable
from tierfs.engine.chunkstore.validate import MARK_NAME, check_open

_Result = TypeVar("_Result")

READ_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
DIRECTORY_FLAGS = READ_FLAGS | os.O_DIRECTORY
# The root itself may be a link: the store's own settings name it.
_ROOT_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY

# The filesystem of a held descriptor is gone for good, although another may be mounted at its path.
_DEAD_MOUNT = frozenset({errno.ESTALE, errno.ENOTCONN})

# EIO and ESTALE are in no row: on a network filesystem they are transient.
_MEANINGS = os_errors.meanings(
    (
        Meaning(StorageFull, remedy="free space on the cold directory's filesystem"),
        (errno.ENOSPC, errno.EDQUOT),
    ),
    (Meaning(StorageFull, os_errors.FILE_LIMIT, os_errors.FILE_LIMIT_REMEDY), (errno.EFBIG,)),
    (Meaning(Unavailable, "too many open files", os_errors.FEW_FILES_REMEDY), tuple(os_errors.FEW_FILES)),
    (Meaning(NotFound), (errno.ENOENT, errno.ENOTDIR)),
    (Meaning(AlreadyExists, "already exists"), (errno.EEXIST,)),
    (Meaning(PermissionDenied), (errno.EACCES, errno.EPERM, errno.EROFS, errno.ELOOP)),
    (Meaning(InvalidRequest), (errno.ENAMETOOLONG, errno.EISDIR, errno.EINVAL, errno.E2BIG, errno.ERANGE)),
)

# Turn errors of a cold directory's filesystem into ours, naming an object.
map_os_errors = partial(os_errors.map_os_errors, table=_MEANINGS)


class RootDirectory:
    """The root descriptor with a count of its users, so that close() never closes it during a call."""

    def __init__(self, root: Path) -> None:
        """Open an existing directory; raises NotFound, PermissionDenied."""
        self.root = root
        self._lock = threading.Lock()
        self._users = 0
        self._closed = False
        with map_os_errors(str(root)):
            self._fd = os.open(root, _ROOT_FLAGS)
            self._is_mount = _is_mount(self._fd)
        self._was_marked = _is_marked(self._fd)
        """Whether this directory, or one held before it, was marked as a store's cold tier."""
        self._before: list[int] = []
        """Descriptors of directories held before, kept until no call uses them."""

    @contextmanager
    def open_directory(self, path: str, *, create: bool = False) -> Iterator[int]:
        """Yield a descriptor of the directory `path` below the root ("" is the root itself).

        The root's descriptor is kept open during the block. Created directories are not durable before
        sync_directories. Raises OSError, and Closed.
        """
        with self._lock:
            check_open(self._closed, self.root)
            self._users += 1
            root_fd = self._fd
        try:
            fd = self._open_root(root_fd)
            try:
                for part in path.split("/") if path else ():
                    below = _enter(fd, part, create=create)
                    os.close(fd)
                    fd = below
                yield fd
            finally:
                os.close(fd)
        finally:
            with self._lock:
                self._users -= 1
                if self._closed or self._before:
                    self._release_if_unused()

    def _open_root(self, root_fd: int) -> int:
        try:
            return os.open(".", DIRECTORY_FLAGS, dir_fd=root_fd)
        except OSError as exc:
            if exc.errno not in _DEAD_MOUNT or not self._renew(root_fd):
                raise
        return os.open(".", DIRECTORY_FLAGS, dir_fd=root_fd)

    def _renew(self, root_fd: int) -> bool:
        """Point the root's descriptor at the filesystem mounted there now; return False while there is none."""
        try:
            fd = os.open(self.root, _ROOT_FLAGS)
        except OSError:
            return False
        try:
            if self._is_mount and not _is_mount(fd):
                return False  # the bare directory below the mount point
            os.dup2(fd, root_fd, inheritable=False)
        finally:
            os.close(fd)
        return True

    def sync_directories(self, path: str) -> None:
        """Make the entries of `path` and of every directory above it durable (clean ones cost almost nothing)."""
        while True:
            with self.open_directory(path) as fd:
                os.fsync(fd)
            if not path:
                return
            path = os.path.dirname(path)

    def prune(self, path: str) -> None:
        """Remove `path` and the directories above it for as long as they are empty."""
        while path:
            parent, _, name = path.rpartition("/")
            try:
                with self.open_directory(parent) as fd:
                    os.rmdir(name.encode(), dir_fd=fd)
            except OSError as exc:
                if exc.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT):
                    return
                raise
            path = parent

    def follow(self) -> bool:
        """Reopen the root by its path, as after a mount; return whether it is another directory.

        A bare mount point replaces neither a marked store directory nor the root of a mount: so a lazy unmount leaves
        the held directory in use.
        """
        with self._lock:
            if self._closed:
                return False
            try:
                fd = os.open(self.root, _ROOT_FLAGS)
            except OSError:  # missing: keep the held directory
                return False
            try:
                is_mount = _is_mount(fd)
            except OSError:  # unmounted again
                os.close(fd)
                return False
            worse = (_is_marked(self._fd) and not _is_marked(fd)) or (self._is_mount and not is_mount)
            if worse or _identity(fd) == _identity(self._fd):
                os.close(fd)
                return False
            self._before.append(self._fd)
            self._fd, self._is_mount = fd, is_mount
            self._was_marked |= _is_marked(fd)
            self._release_if_unused()
            return True

    def reading(self, work: Callable[[], _Result]) -> _Result:
        """Do as `following`; without a mount raise WrongColdTier, not NotFound: a missing object is not lost then."""
        try:
            return self.following(work)
        except NotFound as exc:
            reason = self._why_bare()
            if not reason:
                raise
            raise WrongColdTier(
                f"nothing seems to be mounted at {printable(str(self.root))}: {reason}",
                remedy="mount it, or restore it",
            ) from exc

    def following(self, work: Callable[[], _Result]) -> _Result:
        """Do `work` in the held directory; if that fails, once more in the one mounted in its place now."""
        try:
            return work()
        except (NotFound, Unavailable):
            if not self.follow():
                raise
        return work()

    def _why_bare(self) -> str:
        """Return why the held directory looks like an unmounted mount point, in words; "" if it does not.

        One stat for a marked place, else the first entry of the root. Raises what map_os_errors raises.
        """
        with map_os_errors(str(self.root)), self.open_directory("") as fd:
            if _is_marked(fd):
                self._was_marked = True
            elif self._was_marked:
                return f"the mark {MARK_NAME} is missing"
            elif _is_empty(fd):
                return "it is empty"
        return ""

    def close(self) -> None:
        """Release the descriptor once no call uses it; idempotent."""
        with self._lock:
            self._closed = True
            self._release_if_unused()

    def _release_if_unused(self) -> None:
        while self._before and not self._users:
            os.close(self._before.pop())
        if self._closed and not self._users and self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _is_mount(fd: int) -> bool:
    """Return whether a directory is the root of a mounted filesystem."""
    return os.fstat(fd).st_dev != os.stat("..", dir_fd=fd).st_dev


def _identity(fd: int) -> tuple[int, int] | None:
    """Return device and inode of a directory; None if it no longer answers, as after a server's death."""
    try:
        status = os.fstat(fd)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _is_marked(fd: int) -> bool:
    """Return whether the directory is marked as a store's cold tier."""
    try:
        os.stat(MARK_NAME, dir_fd=fd, follow_symlinks=False)
    except OSError:
        return False
    return True


def _is_empty(fd: int) -> bool:
    with os.scandir(fd) as entries:
        return next(entries, None) is None


def _enter(fd: int, part: str, *, create: bool) -> int:
    """Open the directory `part` of `fd`; with `create`, make a missing one."""
    name = part.encode()  # the bytes of a name are UTF-8; the locale may have another encoding
    try:
        return os.open(name, DIRECTORY_FLAGS, dir_fd=fd)
    except FileNotFoundError:
        if not create:
            raise
    with suppress(FileExistsError):  # another thread was first: the same directory
        os.mkdir(name, osio.OWNER_DIRECTORY, dir_fd=fd)
    return os.open(name, DIRECTORY_FLAGS, dir_fd=fd)
