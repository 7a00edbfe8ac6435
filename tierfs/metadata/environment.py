"""The LMDB environment and its rules (design §5): one per process, stamped with the pid.

Open it after daemonizing; a child of fork opens its own and never touches its parent's. `map_size` is large and sparse
and never changes. After a commit that failed for anything but a full disk it is not trusted again.

A child of fork keeps the parent's environments open and unused (`abandon`, `make_way`). Closing one in a child would
wait for ever when a thread of the parent was writing at the moment of the fork, and would free the slots of the
parent's readers in the lock file that both map, so that the pages they read are overwritten. LMDB itself allows a child
to open the environment again; its locks belong to the process.
"""

from __future__ import annotations

import errno
import gc
import logging
import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from types import TracebackType
from weakref import WeakSet

import lmdb

from tierfs import osio
from tierfs.errors import Closed, DataLoss, NotFound, PermissionDenied, StorageFull, TierfsError, Unavailable
from tierfs.metadata import host
from tierfs.metadata.host import WriteWatch
from tierfs.metadata.tables import ALL_NAMES
from tierfs.system import guards
from tierfs.system.locks import LockFile

_FILES = ("data.mdb", "lock.mdb")

# Paths of environments that a parent of this process had open.
_paths: set[Path] = set()


def abandon(path: Path, environment: object) -> None:
    """Keep the parent's environment, in a child, as it is until this process ends."""
    guards.leak(environment)
    _paths.add(path)


def make_way(path: Path) -> None:
    """Let py-lmdb forget, before an environment is opened, that the parent had it open.

    It refuses to open a file twice in a process and knows files by device and inode, in a set that a child inherits and
    that only closing shortens.
    """
    if path not in _paths:
        return
    _paths.discard(path)
    statuses = [os.stat(path / name) for name in _FILES]
    keys = frozenset(("ino", status.st_dev, status.st_ino) for status in statuses)
    for candidate in gc.get_objects():
        if type(candidate) is set and not candidate.isdisjoint(keys):
            candidate.difference_update(keys)


log = logging.getLogger(__name__)

# Reader slots over all processes of the store; a slot is 64 bytes.
MAX_READERS = 4096

# Address space, not disk: the file stays as small as its records.
MAP_SIZE_BYTES = 1 << 40

# Slots of 64 bytes after a head of less than a page; LMDB accepts any size of the file.
_LOCK_FILE_BYTES = (MAX_READERS + 64) * 64

# The unit of st_blocks.
_BLOCK_BYTES = 512

# A filesystem with less free space is full: space that a failed write did not use may have been freed since.
_NO_ROOM_BYTES = 1 << 20

_MAX_DATABASES = 64

_UNLIMITED = "run with: ulimit -v unlimited (LimitAS=infinity); tierfs maps 1 TiB of addresses, which use no memory"

_registry: dict[Path, Environment] = {}
_registry_lock = threading.Lock()
# The users of each environment, by its path.
_users: dict[Path, WeakSet[object]] = {}


class Environment:
    """One open LMDB environment. Get it through `open_environment`, never directly."""

    def __init__(self, path: Path, *, create: bool = False) -> None:
        self.path = path
        self.pid = os.getpid()
        self.broken: str | None = None
        with ExitStack() as opened, map_lmdb_errors(path):
            namespace = opened.enter_context(closing(LockFile(path / "namespace")))
            host.claim_pid_namespace(namespace, path)
            shared = opened.enter_context(_shared_file(path / "writer"))
            self.watch = opened.enter_context(closing(_write_watch(shared, path)))
            _allocate_lock_file(path)
            self.lmdb = opened.enter_context(closing(_open_lmdb(path)))
            self.databases: dict[bytes, lmdb._Database] = {}
            self._open_databases(ALL_NAMES, create=create)
            self._open_others()
            self.clear_dead_readers()
            self._opened = opened.pop_all()

    def require_process(self) -> None:
        """Raise Closed in a child of the process that opened it."""
        if self.pid != os.getpid():
            raise guards.of_parent(self.pid, f"the open metadata in {self.path}")

    def add_databases(self, names: Iterable[bytes]) -> None:
        """Make missing databases, such as those of a newer version whose dump is loaded."""
        with map_lmdb_errors(self.path):
            self._open_databases([name for name in names if name not in self.databases], create=True)

    def last_transaction_id(self) -> int:
        """Return the number of the newest committed transaction of any process, or less; a new reader sees that far.

        LMDB's info() is not used: it reports a commit while that is still being synced, when new readers do not see it
        yet. A cache that remembers that number would miss the commit for good.
        """
        with self.lmdb.begin() as txn:
            return int(txn.id())

    def clear_dead_readers(self) -> int:
        """Free the slots of processes that were killed in a read, which keep old pages from being reused; return how
        many."""
        with map_lmdb_errors(self.path):
            return int(self.lmdb.reader_check())

    def _open_others(self) -> None:
        """Open databases of a newer version, so that a dump includes them."""
        with self.lmdb.begin() as txn, txn.cursor() as cursor:
            others = [bytes(name) for name in cursor.iternext(values=False) if name not in self.databases]
        self._open_databases(others, create=False)

    def _open_databases(self, names: Sequence[bytes], *, create: bool) -> None:
        """Open all of them in one transaction, which LMDB syncs once: else each opens one of its own."""
        if names:
            with self.lmdb.begin(write=True) as txn:  # py-lmdb wants a write transaction, to open them too
                opened = {name: self.lmdb.open_db(name, txn=txn, create=create) for name in names}
            self.databases |= opened

    def close(self) -> None:
        """Release everything; idempotent. The owner makes sure that no transaction is open."""
        self._opened.close()


@contextmanager
def _shared_file(path: Path) -> Iterator[int]:
    """Open a file that all processes of the store share; yield its descriptor."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, osio.OWNER_FILE)
    try:
        yield fd
    finally:
        os.close(fd)


def _write_watch(fd: int, path: Path) -> WriteWatch:
    try:
        return WriteWatch(fd)
    except OSError as exc:
        if exc.errno in (errno.ENOSPC, errno.EDQUOT):
            raise _disk_full(path) from exc
        raise


def _allocate_lock_file(path: Path) -> None:
    """Allocate every slot of LMDB's readers on the disk: writing to an unallocated page of a mapping is SIGBUS.

    Called before LMDB opens the file, as closing it later would release LMDB's own locks. An existing file keeps its
    size, which other processes have mapped.
    """
    fd = osio.open_or_create(path / "lock.mdb")
    try:
        status = os.fstat(fd)
        if not status.st_size or status.st_blocks * _BLOCK_BYTES < status.st_size:
            os.posix_fallocate(fd, 0, status.st_size or _LOCK_FILE_BYTES)
    except OSError as exc:
        if exc.errno in (errno.ENOSPC, errno.EDQUOT):
            raise _disk_full(path) from exc
        raise
    finally:
        os.close(fd)


def _open_lmdb(path: Path) -> lmdb.Environment:
    return lmdb.open(
        str(path),
        map_size=MAP_SIZE_BYTES,
        max_readers=MAX_READERS,
        max_dbs=_MAX_DATABASES,
        mode=osio.OWNER_FILE,
        subdir=True,
        metasync=True,
        sync=True,
        writemap=False,
    )


def create_directory(path: Path) -> None:
    """Make the environment's directory. Raises InvalidRequest on a filesystem that LMDB does not support."""
    path.mkdir(mode=osio.OWNER_DIRECTORY)
    osio.sync_directory(path.parent)
    host.refuse_network_filesystem(path)


def open_environment(path: Path, *, create: bool = False) -> Environment:
    """Return the process's environment for `path`, opened on first use and again after a fork.

    `path` is absolute and free of links. `create` makes the databases of a new store; the directory must exist. Raises
    NotFound when there is none, Conflict from another PID namespace, DataLoss for damage, StorageFull.
    """
    environment = _registry.get(path)
    if environment is not None:
        return environment  # the path of every transaction: no system call, no lock
    if not path.is_dir():
        raise NotFound(f"{path} is not a tierfs store", remedy="create one with: tierfs init")
    with _registry_lock:
        environment = _registry.get(path)
        if environment is None:
            host.refuse_network_filesystem(path)
            make_way(path)
            environment = _registry[path] = Environment(path, create=create)
            if create:
                osio.sync_directory(path)  # LMDB syncs the contents of its files, not their names
        return environment


def close_environment(path: Path) -> None:
    """Close and forget the environment of `path`; idempotent."""
    with _registry_lock:
        _close(path)


def _close(path: Path) -> None:
    environment = _registry.pop(path, None)
    if environment is not None:
        environment.close()  # under the lock: py-lmdb refuses to open a file that is still open


def add_user(path: Path, user: object) -> None:
    """Keep the environment of `path`, once it is opened, until `remove_user`; call it before opening."""
    with _registry_lock:
        _users.setdefault(path, WeakSet()).add(user)


def remove_user(path: Path, user: object) -> None:
    """Close the environment of `path` unless others use it; idempotent."""
    with _registry_lock:
        users = _users.get(path, WeakSet())
        users.discard(user)
        if not users:
            _users.pop(path, None)
            _close(path)


def _forget_parents() -> None:
    """Start a child of fork without an environment."""
    if _registry_lock.locked():  # held by a thread of the parent, which does not exist here
        _registry_lock.release()
    for path, environment in _registry.items():
        abandon(path, environment)
    _registry.clear()


os.register_at_fork(after_in_child=_forget_parents)


class map_lmdb_errors:  # a class, as a generator costs three times as much
    """Turns LMDB's errors into ours: Unavailable, StorageFull and PermissionDenied, and DataLoss for damage."""

    __slots__ = ("_path",)

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        raise_as_ours(self._path, exc)


def raise_as_ours(path: Path, exc: BaseException | None) -> None:
    """Raise one of LMDB's errors as ours; nothing for any other."""
    if isinstance(exc, lmdb.Error):
        raise meaning(path, exc) from exc


def meaning(path: Path, exc: lmdb.Error) -> TierfsError:
    """Return one of LMDB's errors as ours."""
    if isinstance(exc, lmdb.ReadersFullError):
        return Unavailable(f"{path}: more than {MAX_READERS} readers", remedy="close some readers")
    if isinstance(exc, (lmdb.MapFullError, lmdb.DiskError)):
        if isinstance(exc, lmdb.MapFullError) or "No space left" in str(exc) or _has_no_room(path):
            return _disk_full(path)
        return DataLoss(f"{path}: I/O error on the disk of the metadata: {exc}", remedy="run: tierfs check")
    if isinstance(exc, (lmdb.CorruptedError, lmdb.InvalidError, lmdb.VersionMismatchError, lmdb.PageNotFoundError)):
        return DataLoss(f"{path}: the metadata is damaged: {exc}", remedy="run: tierfs check")
    if isinstance(exc, lmdb.NotFoundError):
        return DataLoss(f"{path} holds no complete store", remedy="run tierfs init in an empty directory")
    if isinstance(exc, lmdb.ReadonlyError):
        return PermissionDenied(f"{path}: {exc}")
    return _from_message(path, exc)


def _disk_full(path: Path) -> StorageFull:
    return StorageFull(f"{path}: the disk of the metadata is full", remedy="free space, or run: tierfs evict")


def _has_no_room(path: Path) -> bool:
    """Return whether a failed write was cut short by a full disk, which LMDB reports as EIO (mdb_page_flush)."""
    status = os.statvfs(path)
    return status.f_bavail * status.f_frsize < _NO_ROOM_BYTES


def _from_message(path: Path, exc: lmdb.Error) -> TierfsError:
    """Return the error for a plain errno value, for which py-lmdb raises its base class: only the text differs."""
    text = str(exc)
    if "No space left" in text or "Disk quota" in text or ("Input/output" in text and _has_no_room(path)):
        return _disk_full(path)
    if "Permission denied" in text:
        return PermissionDenied(f"{path}: permission denied")
    if isinstance(exc, lmdb.MemoryError) or "Cannot allocate memory" in text:
        # ENOMEM of the map: nothing is known of the metadata then, least of all that it is damaged.
        return Unavailable(
            f"{path}: the metadata needs more memory than is free, or than ulimit -v allows", remedy=_UNLIMITED
        )
    if any(os.strerror(number) in text for number in (errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOLCK)):
        return Unavailable(f"{path}: the metadata cannot be opened now: {text}", remedy="try again; see: ulimit -n")
    if os.strerror(errno.EROFS) in text:
        return PermissionDenied(f"{path}: the disk of the metadata is read-only")
    if "closed" in text:
        return Closed(f"{path}: the metadata was closed")
    return DataLoss(f"{path}: the metadata cannot be used: {text}", remedy="run: tierfs check")
