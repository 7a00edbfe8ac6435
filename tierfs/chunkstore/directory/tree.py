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

from tierfs import osio
from tierfs.chunkstore.validate import MARK_NAME, check_open
from tierfs.errors import (
    AlreadyExists,
    InvalidRequest,
    NotFound,
    PermissionDenied,
    StorageFull,
    Unavailable,
    WrongColdTier,
)
from tierfs.names import printable
from tierfs.osio import Meaning

_Result = TypeVar("_Result")

READ_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
DIRECTORY_FLAGS = READ_FLAGS | os.O_DIRECTORY
_ROOT_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY
"""The root itself may be a link: it is named by the store's own settings."""

_DEAD_MOUNT = frozenset({errno.ESTALE, errno.ENOTCONN})
"""The filesystem below a held descriptor is gone for good, although another one may be mounted at its path."""

_MEANINGS = osio.meanings(
    (
        Meaning(StorageFull, remedy="free space on the cold directory's filesystem"),
        (errno.ENOSPC, errno.EDQUOT, errno.EFBIG),
    ),
    (Meaning(NotFound), (errno.ENOENT, errno.ENOTDIR)),
    (Meaning(AlreadyExists, "already exists"), (errno.EEXIST,)),
    (Meaning(PermissionDenied), (errno.EACCES, errno.EPERM, errno.EROFS, errno.ELOOP)),
    (Meaning(InvalidRequest), (errno.ENAMETOOLONG, errno.EISDIR, errno.EINVAL, errno.E2BIG, errno.ERANGE)),
)
"""EIO and ESTALE are in no row: on a network filesystem they pass."""

map_os_errors = partial(osio.map_os_errors, table=_MEANINGS)
"""Turn errors of a cold directory's filesystem into ours, naming an object."""


class HeldTree:
    """The root descriptor, counted, so that close() never pulls it from under a running call."""

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
        """Whether what is held, or was held before, was marked as a store's cold tier."""
        self._before: list[int] = []
        """Directories that were held before, until no call uses them."""

    @contextmanager
    def use(self) -> Iterator[int]:
        """The root's descriptor for the length of the block. Raises Closed."""
        with self._lock:
            check_open(self._closed, self.root)
            self._users += 1
            fd = self._fd
        try:
            yield fd
        finally:
            with self._lock:
                self._users -= 1
                self._release_if_unused()

    @contextmanager
    def open_directory(self, path: str, *, create: bool = False) -> Iterator[int]:
        """A descriptor of the directory `path` below the root ("" is the root itself).

        Created directories are not durable before sync_directories. Raises OSError.
        """
        with self.use() as root_fd:
            fd = self._open_root(root_fd)
            try:
                for part in path.split("/") if path else ():
                    below = _enter(fd, part, create=create)
                    os.close(fd)
                    fd = below
                yield fd
            finally:
                os.close(fd)

    def _open_root(self, root_fd: int) -> int:
        try:
            return os.open(".", DIRECTORY_FLAGS, dir_fd=root_fd)
        except OSError as exc:
            if exc.errno not in _DEAD_MOUNT or not self._renew(root_fd):
                raise
        return os.open(".", DIRECTORY_FLAGS, dir_fd=root_fd)

    def _renew(self, root_fd: int) -> bool:
        """Let the root's descriptor be of what is mounted there now; False while that is not mounted again."""
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
        """Make the entries of `path` and of every directory above it durable (clean ones cost next to nothing)."""
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
                    os.rmdir(name, dir_fd=fd)
            except OSError as exc:
                if exc.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT):
                    return
                raise
            path = parent

    def follow(self) -> bool:
        """Hold the directory that the root's path names by now, as after a mount; returns whether it is another one.

        A bare mount point does not take the place of a store's directory, which is marked, or the root of a mount: so
        a lazy unmount leaves what is held in use.
        """
        with self._lock:
            if self._closed:
                return False
            try:
                fd = os.open(self.root, _ROOT_FLAGS)
            except OSError:  # not there: what is held is all there is
                return False
            try:
                is_mount = _is_mount(fd)
            except OSError:  # it went away again
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
        """As `following`; what is missing in a place that is not there is not lost: WrongColdTier, not NotFound."""
        try:
            return self.following(work)
        except NotFound as exc:
            why = self._why_bare()
            if not why:
                raise
            raise WrongColdTier(
                f"nothing seems to be mounted at {printable(str(self.root))}: {why}",
                remedy="mount it, or bring it back",
            ) from exc

    def following(self, work: Callable[[], _Result]) -> _Result:
        """Do `work` with what is held, and once more with what is mounted in its place by now."""
        try:
            return work()
        except (NotFound, Unavailable):
            if not self.follow():
                raise
        return work()

    def _why_bare(self) -> str:
        """Why what is held looks like a mount point without its filesystem, in words; "" when it does not.

        One stat for a marked place, else the first entry of the root. Raises what map_os_errors raises.
        """
        with map_os_errors(str(self.root)), self.open_directory("") as fd:
            if _is_marked(fd):
                self._was_marked = True
            elif self._was_marked:
                return f"the mark {MARK_NAME} is not there any more"
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
    """Whether a directory is the root of a mounted filesystem."""
    return os.fstat(fd).st_dev != os.stat("..", dir_fd=fd).st_dev


def _identity(fd: int) -> tuple[int, int] | None:
    """What tells directories apart; None for one that does not answer any more, as after a server's death."""
    try:
        status = os.fstat(fd)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _is_marked(fd: int) -> bool:
    """Whether the directory says that it is a store's cold tier."""
    try:
        os.stat(MARK_NAME, dir_fd=fd, follow_symlinks=False)
    except OSError:
        return False
    return True


def _is_empty(fd: int) -> bool:
    with os.scandir(fd) as entries:
        return next(entries, None) is None


def _enter(fd: int, part: str, *, create: bool) -> int:
    """Open the directory `part` of `fd`, made when it is missing and `create` says so."""
    try:
        return os.open(part, DIRECTORY_FLAGS, dir_fd=fd)
    except FileNotFoundError:
        if not create:
            raise
    with suppress(FileExistsError):  # another thread was first: the same directory
        os.mkdir(part, osio.OWNER_DIRECTORY, dir_fd=fd)
    return os.open(part, DIRECTORY_FLAGS, dir_fd=fd)
