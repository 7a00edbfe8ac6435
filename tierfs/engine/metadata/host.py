"""Rules of the host for an LMDB environment: on a local filesystem, used from one PID namespace at a time, on a disk
with room that takes changes.
"""

from __future__ import annotations

import errno
import os
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tierfs.base.system import os_errors, osio
from tierfs.base.system.locks import LockFile
from tierfs.base.words import errors
from tierfs.base.words.errors import Conflict, InvalidRequest, ReadOnlyDisk, StorageFull

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

# Files of an environment; the names are LMDB's own.
FILES = ("data.mdb", "lock.mdb")

# Reader slots over all processes of the store; a slot is 64 bytes.
MAX_READERS = 4096


# What is written there to see whether the disk takes changes again: a page behind the one that is mapped.
_TRIED_AT, _TRIED_BYTES = 4096, 4096

# Slots of 64 bytes after a head of less than a page; LMDB accepts any size of the file.
_LOCK_FILE_BYTES = (MAX_READERS + 64) * 64

# The unit of st_blocks.
_BLOCK_BYTES = 512
# A filesystem with less free space is full: space that a failed write did not use may have been freed since.
_NO_ROOM_BYTES = 1 << 20

_CLAIM_ATTEMPTS = 50
_CLAIM_PAUSE_S = 0.01


def refuse_network_filesystem(path: Path) -> None:
    """Raise InvalidRequest when `path` lies on a network filesystem, and NotFound once it is gone."""
    with os_errors.map_os_errors(str(path)):
        kind = _filesystem_of(path)
    if kind in NETWORK_FILESYSTEMS:
        raise InvalidRequest(
            f"{path} is on a network filesystem ({kind}); a store's metadata is in LMDB, whose locks and shared "
            "memory work only within one kernel",
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
    fd = osio.open_or_create(path / FILES[1])
    try:
        status = os.fstat(fd)
        if not status.st_size or status.st_blocks * _BLOCK_BYTES < status.st_size:
            os.posix_fallocate(fd, 0, status.st_size or _LOCK_FILE_BYTES)
    except OSError as exc:
        if exc.errno in os_errors.NO_ROOM:
            raise no_room(path) from exc
        raise
    finally:
        os.close(fd)


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
        return StorageFull(f"{path}: {os_errors.FILE_LIMIT}", remedy=os_errors.FILE_LIMIT_REMEDY)
    return StorageFull(f"{path}: the disk of the metadata is full", remedy="free space, or run: tierfs evict")


def has_no_room(path: Path) -> bool:
    """Return whether a failed write was cut short by a full disk, which LMDB reports as EIO (mdb_page_flush)."""
    status = os.statvfs(path)
    return status.f_bavail * status.f_frsize < _NO_ROOM_BYTES or _is_at_limit(path)


def _is_at_limit(path: Path) -> bool:
    """Return whether the metadata's files nearly have the largest size that this process may write."""
    limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    files = (path / name for name in FILES)
    sizes = [file.stat().st_size for file in files if file.exists()]
    return limit != resource.RLIM_INFINITY and max(sizes, default=0) + _NO_ROOM_BYTES >= limit
