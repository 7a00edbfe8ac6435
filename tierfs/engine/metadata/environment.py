"""The LMDB environment and its rules (design §5): one per process, stamped with the pid.

Open it after daemonizing; a child of fork opens its own and never touches its parent's (`parent_environments`).
`map_size` is large and sparse and never changes. After a commit that failed for anything but a full disk nothing is
written until the disk has taken a write again. LMDB undoes a commit that fails before its last page, and goes on. One
that fails at its last page may hold or not: LMDB then refuses everything (MDB_PANIC), and the process has to be
restarted.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from weakref import WeakSet

import lmdb

from tierfs.base.system import forks, osio
from tierfs.base.system.locks import LockFile, is_locked
from tierfs.base.words.errors import Conflict, NotFound, ReadOnlyDisk, StorageFull, TierfsError, Unavailable
from tierfs.engine.metadata import host, lmdb_errors
from tierfs.engine.metadata.host import FILES, MAX_READERS, map_read_only, read_only_disk
from tierfs.engine.metadata.lmdb_errors import map_lmdb_errors
from tierfs.engine.metadata.parent_environments import abandon, make_way
from tierfs.engine.metadata.tables import ALL_NAMES, LATER_NAMES
from tierfs.engine.metadata.write_watch import WRITER, write_watch

# All processes of a store hold a lock of this file; see host.py.
_NAMESPACE = "namespace"

# Between two looks whether a disk takes changes again (a guess: a second is not noticed).
_LOOK_AGAIN_S = 1.0

# Transactions take milliseconds: half a second in all (a guess).
_DRAIN_S = 0.01
_DRAINED_AFTER = 50


log = logging.getLogger(__name__)

# Address space, not disk: the file stays as small as its records.
MAP_SIZE_BYTES = 1 << 40

_MAX_DATABASES = 64

# Those this process has open, by path; changed here alone, with the lock.
environments: dict[Path, Environment] = {}
_registry_lock = threading.Lock()
# The users of each environment, by its path.
_users: dict[Path, WeakSet[object]] = {}
# Environments of stores that were removed and made anew: left open, as a thread may be reading from one.
_replaced: list[Environment] = []


def identity_at(path: Path) -> tuple[int, int] | None:
    """Return the identity of the metadata in `path`: another one for a store that was made anew. None: nothing there.

    Of the file, not of the directory, whose inode number a new one may get at once: this file is held open.
    """
    try:
        status = os.stat(path / FILES[0])
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_dev, status.st_ino


class Environment:
    """One open LMDB environment. Get it through `open_environment`, never directly."""

    read_only = False
    """Whether it was opened without locks, on a disk that takes no changes; see read_only.py."""

    def __init__(self, path: Path, *, create: bool = False) -> None:
        self.path = path
        self.pid = os.getpid()
        self.broken: TierfsError | None = None
        """The error of a commit since which the disk has taken no write."""
        self._looked_s = 0.0
        self._committing = threading.Lock()
        with ExitStack() as opened, map_lmdb_errors(path), map_read_only(path):
            namespace = opened.enter_context(closing(LockFile(path / _NAMESPACE)))
            host.claim_pid_namespace(namespace, path)
            shared = opened.enter_context(host.open_shared(path / WRITER))
            self.watch = opened.enter_context(closing(write_watch(shared, path)))
            host.allocate_lock_file(path)
            self.lmdb = opened.enter_context(closing(_open_lmdb(path)))
            self.identity = identity_at(path)
            self.databases: dict[bytes, lmdb._Database] = {}
            self._open_databases(ALL_NAMES, create=create)
            self._open_others()
            self.add_databases(LATER_NAMES)
            self.clear_dead_readers()
            self._opened = opened.pop_all()

    def leave(self) -> None:
        """End a transaction that `enter_read_only` began."""

    def require_writable(self) -> None:
        """Raise Unavailable or ReadOnlyDisk after a commit that failed, for anything but a full disk, until the disk
        takes changes again."""
        with self._committing:
            failed = self.broken
        if failed is None or self._takes_changes_again(failed):
            return
        if isinstance(failed, ReadOnlyDisk):
            raise read_only_disk(self.path)
        raise Unavailable(
            f"the disk accepts no changes since an earlier commit failed ({failed})",
            remedy="repair the disk; this process then continues by itself",
        )

    def _takes_changes_again(self, failed: TierfsError) -> bool:
        """Return whether the disk takes a write, tried once in a while. Raises Unavailable after MDB_PANIC."""
        with map_lmdb_errors(self.path), self.lmdb.begin():
            pass  # MDB_PANIC refuses readers too
        now_s = time.monotonic()
        if now_s - self._looked_s < _LOOK_AGAIN_S:
            return False
        self._looked_s = now_s
        try:
            host.try_to_write(self.path / WRITER)
        except OSError as exc:
            log.debug("%s: the disk still accepts no changes: %s", self.path, exc)
            return False
        if self.broken is failed:  # another thread's commit may have failed since
            self.broken = None
            log.warning("%s: the disk accepts changes again", self.path.parent)
        return self.broken is None

    def commit(self, txn: lmdb.Transaction) -> None:
        """Commit; after any failure but of a full disk nothing is written until the disk takes changes."""
        # LMDB lets the next change begin before it says that this one failed: that one waits to be told.
        with self._committing:
            try:
                txn.commit()
            except lmdb.Error as exc:
                error = lmdb_errors.meaning(self.path, exc)
                if not isinstance(error, StorageFull):
                    self.broken, self._looked_s = error, time.monotonic()
                raise error from exc

    def require_process(self) -> None:
        """Raise Closed in a child of the process that opened it."""
        if self.pid != os.getpid():
            raise forks.of_parent(self.pid, f"the open metadata in {self.path}")

    def add_databases(self, names: Iterable[bytes]) -> None:
        """Make missing databases, such as those of a newer version whose dump is loaded."""
        with map_lmdb_errors(self.path):
            self._open_databases([name for name in names if name not in self.databases], create=True)

    def copy_to(self, path: Path) -> None:
        """Write all that is committed now into a directory, as an environment of its own."""
        with map_lmdb_errors(self.path):
            self.lmdb.copy(str(path))

    def last_transaction_id(self) -> int:
        """Return the number of the newest committed transaction of any process, or less; a new reader sees that far.

        LMDB's info() is not used: it reports a commit while that is still being synced, when new readers do not see it
        yet. A cache that remembers that number would miss the commit for good.
        """
        with map_lmdb_errors(self.path), self.lmdb.begin() as txn:
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


class ReadOnlyEnvironment(Environment):
    """The environment on a disk that takes no changes: opened to read, without locks and without a reader's slot.

    A process that can write to it, by another mount of the same filesystem, might then reuse the pages that are being
    read: LMDB keeps only those that a reader's slot names. While there is such a process `enter` raises Conflict, and
    so does `leave` where one came meanwhile.
    """

    read_only = True

    def __init__(self, path: Path) -> None:
        self.path = path
        self.pid = os.getpid()
        self.broken = None
        self._committing = threading.Lock()
        self.transactions = 0
        """Those that are open: the environment is not closed under them."""
        self._looked_s = time.monotonic()
        self._require_no_writer()
        with ExitStack() as opened, map_lmdb_errors(path):
            self.lmdb = opened.enter_context(closing(_open_lmdb(path, readonly=True, lock=False)))
            self.identity = identity_at(path)
            self.databases = {}
            self._open_databases(ALL_NAMES, create=False)
            self._open_others()
            self._opened = opened.pop_all()
        log.warning("%s: the disk is read-only; data can be read, but not changed", path.parent)

    def require_writable(self) -> None:
        """Raise ReadOnlyDisk."""
        raise read_only_disk(self.path)

    def last_transaction_id(self) -> int:
        """Return the number of the newest committed transaction."""
        environment = enter_read_only(self)
        if environment is not self:
            return environment.last_transaction_id()
        try:
            return super().last_transaction_id()
        finally:
            self.leave()

    def clear_dead_readers(self) -> int:
        """Do nothing: nobody has a slot."""
        return 0

    def enter(self) -> None:
        """Begin a transaction. Raises Conflict while a process can write."""
        self._require_no_writer()
        self.transactions += 1

    def leave(self) -> None:
        """End a transaction. Raises Conflict if a process can write now."""
        with _registry_lock:
            self.transactions -= 1
        self._require_no_writer()

    def may_be_written_again(self) -> bool:
        """Return whether the disk takes changes again: looked for once in a while, and not during a transaction.

        At once where a process writes already, to which this one is a danger as long as it has no locks.
        """
        now_s = time.monotonic()
        if self.transactions or (now_s - self._looked_s < _LOOK_AGAIN_S and not self._has_writer()):
            return False
        self._looked_s = now_s
        try:
            os.close(osio.open_or_create(self.path / _NAMESPACE))
        except OSError:
            return False
        return True

    def _open_databases(self, names: Sequence[bytes], *, create: bool) -> None:
        # Each in a transaction that py-lmdb ends: in one that is given, a handle would be that transaction's alone.
        self.databases |= {name: self.lmdb.open_db(name, create=False) for name in names}

    def _has_writer(self) -> bool:
        return is_locked(self.path / _NAMESPACE) and not host.is_read_only_for_all(self.path)

    def _require_no_writer(self) -> None:
        if self._has_writer():
            raise Conflict(
                f"{self.path} is read-only here, but a process that can write to it has it open, so data could "
                "change while it is read",
                remedy="give this process write access, stop the other process, or read through it",
            )


def enter_read_only(environment: Environment) -> Environment:
    """Begin a transaction on a read-only environment, or return the one that took its place once it may be written.

    Raises Conflict.
    """
    for remaining in reversed(range(_DRAINED_AFTER)):
        with _registry_lock:
            environment = _current(environment.path)
            if not isinstance(environment, ReadOnlyEnvironment):
                return environment
            try:
                environment.enter()
            except Conflict:
                if not remaining or not environment.transactions:
                    raise
            else:
                return environment
        time.sleep(_DRAIN_S)  # others still read: then the disk takes changes again, and it is opened anew
    raise AssertionError


def _open_lmdb(path: Path, *, readonly: bool = False, lock: bool = True) -> lmdb.Environment:
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
        readonly=readonly,
        lock=lock,
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
    environment = environments.get(path)
    if environment is not None and not environment.read_only:
        return environment  # the path of every transaction: no system call, no lock
    if not path.is_dir():
        raise NotFound(f"{path} is not a tierfs store", remedy="create one with: tierfs init")
    with _registry_lock:
        return _current(path, create=create)


def open_present(path: Path, *, create: bool = False) -> Environment:
    """Do as `open_environment`, and never return that of a store that was at `path` before and was removed."""
    with _registry_lock:
        environment = environments.get(path)
        if environment is not None and environment.identity != identity_at(path):
            _replaced.append(environments.pop(path))
    return open_environment(path, create=create)


def _current(path: Path, *, create: bool = False) -> Environment:
    """Return the environment; called under the lock. One of a disk that takes changes again is opened anew."""
    environment = environments.get(path)
    if isinstance(environment, ReadOnlyEnvironment) and environment.may_be_written_again():
        _close(path)
        environment = None
    if environment is None:
        host.refuse_network_filesystem(path)
        make_way(path)
        environment = environments[path] = _open(path, create=create)
        if create:
            osio.sync_directory(path)  # LMDB syncs the contents of its files, not their names
    return environment


def _open(path: Path, *, create: bool) -> Environment:
    try:
        return Environment(path, create=create)
    except ReadOnlyDisk:
        if create:
            raise
    return ReadOnlyEnvironment(path)


def close_environment(path: Path) -> None:
    """Close and forget the environment of `path`; idempotent."""
    with _registry_lock:
        _close(path)


def _close(path: Path) -> None:
    environment = environments.pop(path, None)
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
    for path, environment in environments.items():
        abandon(path, environment)
    environments.clear()


os.register_at_fork(after_in_child=_forget_parents)
