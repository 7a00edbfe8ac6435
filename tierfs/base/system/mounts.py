"""Whether mounts of tierfs answer. `places` reads the kernel's table of them, and finds which one covers a path."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TypeVar

from tierfs.base.system.places import LOOK, Mount, mount_id

_Answer = TypeVar("_Answer")

# Longest wait for the answer of a mount (a guess).
ANSWER_S = 2.0

SILENT = f"does not answer within {ANSWER_S:g} s: it is stopped or stuck"
# Followed by the mount point.
SILENT_REMEDY = "let that process continue or kill it, then run: tierfs umount"


class MountState(Enum):
    """Whether a mount answers."""

    ALIVE = "alive"
    DEAD = "dead"
    """Its daemon is gone: everything below it fails until it is unmounted."""
    SILENT = "silent"
    """Its daemon is stopped or stuck: so is every process that makes a request to it."""
    COVERED = "covered"
    """Another filesystem is mounted over it: no path leads to it."""


def state_of(mount: Mount) -> MountState:
    """Ask the mount, and wait ANSWER_S for it at most."""
    return asked(lambda: _state(mount)) or MountState.SILENT


def _state(mount: Mount) -> MountState:
    try:
        fd = os.open(mount.mountpoint, LOOK)
    except OSError as exc:  # of a directory above it, such as one that only its owner may search
        return MountState.DEAD if exc.errno == errno.ENOTCONN else MountState.ALIVE
    try:
        if mount.id and mount_id(fd) != mount.id:
            return MountState.COVERED
        os.statvfs(fd)  # the kernel answers a stat from its cache, for minutes after the daemon died
    except OSError as exc:
        return MountState.DEAD if exc.errno == errno.ENOTCONN else MountState.ALIVE
    finally:
        os.close(fd)
    return MountState.ALIVE


def asked(question: Callable[[], _Answer]) -> _Answer | None:
    """Return the result of `question`, which must not raise; None when it takes longer than ANSWER_S.

    Its thread is then left to itself.
    """
    answers: SimpleQueue[_Answer] = SimpleQueue()
    threading.Thread(target=lambda: answers.put(question()), name="tierfs-ask-mount", daemon=True).start()
    try:
        return answers.get(timeout=ANSWER_S)
    except Empty:
        return None


def device_of(mountpoint: Path) -> str:
    """Return the number of the filesystem at a path, as the table writes it. Asks the filesystem."""
    device = os.stat(mountpoint).st_dev
    return f"{os.major(device)}:{os.minor(device)}"
