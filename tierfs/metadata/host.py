"""Where an LMDB environment may live: on a local filesystem, used from one PID namespace at a time."""

from __future__ import annotations

import os
import time
from pathlib import Path

from tierfs.errors import Conflict, InvalidRequest
from tierfs.locks import LockFile

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
"""LMDB's locks and shared mapping are only coherent within one kernel."""

_CLAIM_ATTEMPTS = 50
_CLAIM_PAUSE_S = 0.01


def refuse_network_filesystem(path: Path) -> None:
    """Raise InvalidRequest when `path` lies on a network filesystem."""
    kind = _filesystem_of(path)
    if kind in NETWORK_FILESYSTEMS:
        raise InvalidRequest(
            f"{path} is on a network filesystem ({kind}); a store's metadata needs a local disk",
            remedy="put the store on a local disk; its cold tier may be on the network (tierfs init --cold-dir)",
        )


def _filesystem_of(path: Path) -> str:
    """Type of the filesystem that holds `path`, from the longest matching mount point."""
    device = os.stat(path).st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields, _, rest = line.partition(" - ")
        if fields.split()[2] == wanted:
            return rest.split()[0]
    return "unknown"


def claim_pid_namespace(file: LockFile, path: Path) -> None:
    """Hold a shared lock on the file together with all users of the same PID namespace.

    LMDB clears reader slots by pid, so users from two namespaces would free each other's. Raises
    Conflict when a user of another namespace is alive. The lock goes when the file is closed.
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
