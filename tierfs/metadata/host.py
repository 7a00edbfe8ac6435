"""Rules of the host for an LMDB environment: on a local filesystem, used from one PID namespace at a time.

LMDB's one write lock cannot be waited for with a time limit. So the pid of its holder is in a mapping that all
processes of the store share, and a watchdog thread names it to waiting writers.
"""

from __future__ import annotations

import logging
import mmap
import os
import struct
import threading
import time
from pathlib import Path

from tierfs.errors import Conflict, InvalidRequest
from tierfs.system.locks import LockFile

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

_CLAIM_ATTEMPTS = 50
_CLAIM_PAUSE_S = 0.01


def refuse_network_filesystem(path: Path) -> None:
    """Raise InvalidRequest when `path` lies on a network filesystem."""
    kind = _filesystem_of(path)
    if kind in NETWORK_FILESYSTEMS:
        raise InvalidRequest(
            f"{path} is on a network filesystem ({kind}); a store's metadata is in LMDB, whose locks and shared memory "
            "hold within one kernel only",
            remedy="put the store on a local disk; its cold tier may be on the network (tierfs init --cold-dir)",
        )


def _filesystem_of(path: Path) -> str:
    """Return the type of the filesystem that holds `path`, or "unknown"."""
    device = os.stat(path).st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields, _, rest = line.partition(" - ")
        if fields.split()[2] == wanted:
            return rest.split()[0]
    return "unknown"


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
