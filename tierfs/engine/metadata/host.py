"""Rules of the host for an LMDB environment: on a local filesystem, used from one PID namespace at a time; its errors.

LMDB's one write lock cannot be waited for with a time limit. So the pid of its holder is in a mapping that all
processes of the store share, and a watchdog thread names it to waiting writers.
"""

from __future__ import annotations

import errno
import logging
import mmap
import os
import resource
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

import lmdb

from tierfs.base.system import osio
from tierfs.base.system.locks import LockFile
from tierfs.base.words import errors
from tierfs.base.words.errors import (
    Closed,
    Conflict,
    DataLoss,
    InvalidRequest,
    PermissionDenied,
    ReadOnlyDisk,
    StorageFull,
    TierfsError,
    Unavailable,
)

# Not supported: LMDB's locks and shared mapping are only coherent within one kernel.
NETWORK_FILESYSTEMS = frozenset(
    {
        "nfs",
        "nfs4",
        "cifs",
        "smb3",
        "9p",
        "ceph",
        "glusterfs",
        "lustre",
        "beegfs",
        "afs",
        "ocfs2",
        "gfs2",
        "fuse.sshfs",
        "fuse.s3fs",
    }
)

# Options of a filesystem that takes no changes; ext4 has a word of its own for its state after an error.
_NO_CHANGES = frozenset({"ro", "emergency_ro"})

# Reader slots over all processes of the store; a slot is 64 bytes.
MAX_READERS = 4096

# File with the number of the process that writes, which all processes of the store share.
WRITER = "writer"

# What is written there to see whether the disk takes changes again: a page behind the one that is mapped.
_TRIED_AT, _TRIED_BYTES = 4096, 4096

# Slots of 64 bytes after a head of less than a page; LMDB accepts any size of the file.
_LOCK_FILE_BYTES = (MAX_READERS + 64) * 64

# The unit of st_blocks.
_BLOCK_BYTES = 512

# A filesystem with less free space is full: space that a failed write did not use may have been freed since.
_NO_ROOM_BYTES = 1 << 20

_UNLIMITED = "run with: ulimit -v unlimited (LimitAS=infinity); tierfs maps 1 TiB of addresses, which use no memory"

_CLAIM_ATTEMPTS = 50
_CLAIM_PAUSE_S = 0.01


def refuse_network_filesystem(path: Path) -> None:
    """Raise InvalidRequest when `path` lies on a network filesystem, and NotFound once it is gone."""
    with osio.map_os_errors(str(path)):
        kind = _filesystem_of(path)
    if kind in NETWORK_FILESYSTEMS:
        raise InvalidRequest(
            f"{path} is on a network filesystem ({kind}); a store's metadata is in LMDB, whose locks and shared memory "
            "hold within one kernel only",
            remedy="put the store on a local disk; its cold tier may be on the network (tierfs init --cold-dir)",
        )


def is_read_only_for_all(path: Path) -> bool:
    """Return whether the filesystem itself takes no changes, not only the mount by which this process sees it."""
    # proc_pid_mountinfo(5): the last field has the options of the superblock.
    return any(not _NO_CHANGES.isdisjoint(options.split(",")) for options in _mounted(path)[-1:])


def _filesystem_of(path: Path) -> str:
    """Return the type of the filesystem that holds `path`, or "unknown"."""
    return next(iter(_mounted(path)), "unknown")


def _mounted(path: Path) -> list[str]:
    """Return type, source and options of the filesystem that holds `path`; nothing where the kernel does not say."""
    device = os.stat(path).st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields, _, rest = line.partition(" - ")
        if fields.split()[2] == wanted:
            return rest.split()
    return []


def claim_pid_namespace(file: LockFile, path: Path) -> None:
    """Hold a shared lock on the file together with all users of the same PID namespace.

    LMDB clears reader slots by pid, so users from two namespaces would free each other's. Raises Conflict when a user
    of another namespace is alive. Closing the file releases the lock.
    """
    mine = os.readlink("/proc/self/ns/pid").encode()
    for _ in range(_CLAIM_ATTEMPTS):
        if file.try_lock():
            os.pwrite(file.fd, mine, 0)
            os.ftruncate(file.fd, len(mine))
            if file.try_lock(shared=True):
                return
        elif file.try_lock(shared=True):
            if os.pread(file.fd, len(mine) + 1, 0) == mine:
                return
            raise Conflict(
                f"{path} is in use from another container (PID namespace)",
                remedy="share the PID namespace (hostPID, docker run --pid), or use one container per store",
            )
        time.sleep(_CLAIM_PAUSE_S)  # the first user holds the lock exclusively for a moment
    raise Conflict(f"{path}: the PID namespace lock is busy", remedy="try again")


@contextmanager
def open_shared(path: Path) -> Iterator[int]:
    """Open a file that all processes of the store share; yield its descriptor."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, osio.OWNER_FILE)
    try:
        yield fd
    finally:
        os.close(fd)


def try_to_write(path: Path) -> None:
    """Write a page to the disk. Raises OSError."""
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        os.pwrite(fd, bytes(_TRIED_BYTES), _TRIED_AT)
        os.fsync(fd)
    finally:
        os.close(fd)


def allocate_lock_file(path: Path) -> None:
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
        if exc.errno in osio.NO_ROOM:
            raise no_room(path) from exc
        raise
    finally:
        os.close(fd)


log = logging.getLogger(__name__)

# Design §5: after this wait, a writer's log names the holder.
WARN_AFTER_S = 5.0

_PID = struct.Struct("<Q")
_POLL_S = 1.0


class WriteWatch:
    """The holder of the write lock and the threads that wait for it; one per environment."""

    def __init__(self, fd: int) -> None:
        """Map `fd`, a file that all processes of the store share; raise OSError for a full disk.

        The page is allocated first: writing to the mapping of an unallocated page would be SIGBUS.
        """
        os.posix_fallocate(fd, 0, _PID.size)
        self._map = mmap.mmap(fd, _PID.size)
        self._waiting: dict[int, float] = {}
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()

    def close(self) -> None:
        """End the thread; idempotent. Otherwise a process that opens many stores would keep one thread of each."""
        self._closed.set()

    def waiting(self) -> None:
        """Note that the calling thread is about to request the write lock."""
        self._waiting[threading.get_ident()] = time.monotonic()
        if self._thread is None:
            self._thread = threading.Thread(target=self._watch, name="tierfs-write-watch", daemon=True)
            self._thread.start()

    def acquired(self) -> None:
        """Note that the calling thread got the lock."""
        self._waiting.pop(threading.get_ident(), None)
        _PID.pack_into(self._map, 0, os.getpid())

    def gave_up(self) -> None:
        """Note that the calling thread did not get the lock."""
        self._waiting.pop(threading.get_ident(), None)

    def released(self) -> None:
        """Note that the calling thread is about to release the lock; does nothing in a child of fork, whose parent
        holds it."""
        if _PID.unpack_from(self._map)[0] == os.getpid():
            _PID.pack_into(self._map, 0, 0)

    @property
    def holder_pid(self) -> int:
        """Process that holds the write lock; 0 when free. A hint, for messages."""
        return int(_PID.unpack_from(self._map)[0])

    def _watch(self) -> None:
        warned: dict[int, float] = {}  # here: a wait that is put back after its end would be warned of for ever
        while not self._closed.wait(_POLL_S):
            now = time.monotonic()
            for thread, since in list(self._waiting.items()):
                if now - max(since, warned.get(thread, since)) >= WARN_AFTER_S:
                    warned[thread] = now
                    log.warning(
                        "waiting for the metadata lock for %.0f s, held by process %d", now - since, self.holder_pid
                    )


def write_watch(fd: int, path: Path) -> WriteWatch:
    """Return the watch over the file `fd`. Raises StorageFull."""
    try:
        return WriteWatch(fd)
    except OSError as exc:
        if exc.errno in osio.NO_ROOM:
            raise no_room(path) from exc
        raise


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
    if isinstance(exc, lmdb.PanicError):
        return Unavailable(
            f"{path}: the disk failed at the end of a commit, which may hold or not", remedy="restart this process"
        )
    if isinstance(exc, lmdb.ReadersFullError):
        return Unavailable(f"{path}: more than {MAX_READERS} readers", remedy="close some readers")
    if isinstance(exc, (lmdb.MapFullError, lmdb.DiskError)):
        if isinstance(exc, lmdb.MapFullError) or "No space left" in str(exc) or _has_no_room(path):
            return no_room(path)
        return DataLoss(f"{path}: I/O error on the disk of the metadata: {exc}", remedy="run: tierfs check")
    if isinstance(exc, (lmdb.CorruptedError, lmdb.InvalidError, lmdb.VersionMismatchError, lmdb.PageNotFoundError)):
        return DataLoss(f"{path}: the metadata is damaged: {exc}", remedy="run: tierfs check")
    if isinstance(exc, lmdb.NotFoundError):
        return DataLoss(f"{path} holds no complete store", remedy="run tierfs init in an empty directory")
    if isinstance(exc, lmdb.ReadonlyError):
        return PermissionDenied(f"{path}: {exc}")
    return _from_message(path, exc)


def read_only_disk(path: Path) -> ReadOnlyDisk:
    """Return the error of a change on a disk that takes none."""
    return ReadOnlyDisk(f"{path}: the disk of the metadata is read-only", remedy=errors.READ_ONLY_REMEDY)


@contextmanager
def map_read_only(path: Path) -> Iterator[None]:
    """Turn the system's error for a read-only disk into ReadOnlyDisk."""
    try:
        yield
    except OSError as exc:
        if exc.errno != errno.EROFS:
            raise
        raise read_only_disk(path) from exc


def no_room(path: Path) -> StorageFull:
    """Return the error of a write of the metadata for which there is no room."""
    if _is_at_limit(path):
        return StorageFull(f"{path}: {osio.FILE_LIMIT}", remedy=osio.FILE_LIMIT_REMEDY)
    return StorageFull(f"{path}: the disk of the metadata is full", remedy="free space, or run: tierfs evict")


def _has_no_room(path: Path) -> bool:
    """Return whether a failed write was cut short by a full disk, which LMDB reports as EIO (mdb_page_flush)."""
    status = os.statvfs(path)
    return status.f_bavail * status.f_frsize < _NO_ROOM_BYTES or _is_at_limit(path)


def _is_at_limit(path: Path) -> bool:
    """Return whether the metadata's files nearly have the largest size that this process may write."""
    limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    files = (path / name for name in ("data.mdb", "lock.mdb"))
    sizes = [file.stat().st_size for file in files if file.exists()]
    return limit != resource.RLIM_INFINITY and max(sizes, default=0) + _NO_ROOM_BYTES >= limit


def _from_message(path: Path, exc: lmdb.Error) -> TierfsError:
    """Return the error for a plain errno value, for which py-lmdb raises its base class: only the text differs."""
    text = str(exc)
    cut_short = "Input/output" in text and _has_no_room(path)
    if cut_short or any(os.strerror(number) in text for number in osio.NO_ROOM):
        return no_room(path)
    if "Permission denied" in text:
        return PermissionDenied(f"{path}: permission denied")
    if isinstance(exc, lmdb.MemoryError) or "Cannot allocate memory" in text:
        # ENOMEM of the map: nothing is known of the metadata then, least of all that it is damaged.
        return Unavailable(
            f"{path}: the metadata needs more memory than is free, or than ulimit -v allows", remedy=_UNLIMITED
        )
    if any(os.strerror(number) in text for number in (errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOLCK)):
        return Unavailable(f"{path}: the metadata cannot be opened now: {text}", remedy=osio.FEW_FILES_REMEDY)
    if os.strerror(errno.EROFS) in text:
        return read_only_disk(path)
    if "closed" in text:
        return Closed(f"{path}: the metadata was closed")
    return DataLoss(f"{path}: the metadata cannot be used: {text}", remedy="run: tierfs check")
