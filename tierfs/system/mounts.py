"""Mounts of tierfs, from the kernel's table: paths under one stand for segments."""

from __future__ import annotations

import errno
import os
import re
import threading
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TypeVar

from tierfs.errors import InvalidRequest, NotFound
from tierfs.frozen import dataclass

_Answer = TypeVar("_Answer")

# A mount's source is this and the store's directory.
FSNAME_PREFIX = "tierfs:"

# Longest wait for the answer of a mount (a guess).
ANSWER_S = 2.0

SILENT = f"does not answer within {ANSWER_S:g} s: it is stopped or stuck"
# Followed by the mount point.
SILENT_REMEDY = "let that process continue or kill it, then run: tierfs umount"

_MOUNT_TABLE = Path("/proc/self/mountinfo")
# proc_pid_mountinfo(5): a blank, tab, line feed and backslash are three octal digits.
_ESCAPE = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Mount:
    """One mount of a tierfs store."""

    mountpoint: Path
    store: Path
    device: str
    """Major and minor number, as in `0:57`."""


def mounts() -> list[Mount]:
    """Return all tierfs mounts this process can see, in mount order."""
    present: list[Mount] = []
    for line in _MOUNT_TABLE.read_text(errors="surrogateescape").split("\n"):
        fields, _, rest = line.partition(" - ")
        kind, _, rest = rest.partition(" ")
        source = _unescape(rest.partition(" ")[0])
        if kind.startswith("fuse") and source.startswith(FSNAME_PREFIX):
            _, _, device, _, mountpoint = fields.split(" ")[:5]
            present.append(Mount(Path(_unescape(mountpoint)), Path(source.removeprefix(FSNAME_PREFIX)), device))
    return present


class MountState(Enum):
    """Whether a mount answers."""

    ALIVE = "alive"
    DEAD = "dead"
    """Its daemon is gone: everything below it fails until it is unmounted."""
    SILENT = "silent"
    """Its daemon is stopped or stuck: so is every process that makes a request to it."""


def state_of(mount: Mount) -> MountState:
    """Ask the mount, and wait ANSWER_S for it at most."""
    dead = asked(lambda: _is_dead(mount))
    if dead is None:
        return MountState.SILENT
    return MountState.DEAD if dead else MountState.ALIVE


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


def _is_dead(mount: Mount) -> bool:
    try:
        os.statvfs(mount.mountpoint)  # the kernel answers a stat from its cache, for minutes after the daemon died
    except OSError as exc:
        return exc.errno == errno.ENOTCONN
    return False


def mount_of(path: Path) -> tuple[Mount, str] | None:
    """Return the mount that `path` is in, and the segment or directory it stands for; None outside of all mounts."""
    present = mounts()
    # It is resolved only when it is in no mount as it stands: to resolve it asks a mount, which may not answer.
    for absolute in (os.path.abspath, os.path.realpath) if present else ():
        place = Path(absolute(path))
        for mount in reversed(present):
            if place.is_relative_to(mount.mountpoint):
                name = str(place.relative_to(mount.mountpoint))
                return mount, "" if name == "." else name
    return None


def only_mount(store: Path, verb: str) -> Path:
    """Return the mount of a store, for a verb without a MOUNT. Raises NotFound, or InvalidRequest for several."""
    points = [mount.mountpoint for mount in mounts() if os.path.realpath(mount.store) == os.path.realpath(store)]
    if not points:
        raise NotFound(f"{store} is not mounted", remedy=f"mount it: tierfs --store {store} mount DIR")
    if len(points) > 1:
        shown = ", ".join(map(str, points))
        raise InvalidRequest(
            f"{store} has {len(points)} mounts: {shown}", remedy=f"name one: tierfs {verb} {points[0]}"
        )
    return points[0]


def is_path(text: str) -> bool:
    """Return whether a text can only be a path, or begins at the root; all others may be names of a store."""
    return text.startswith(("/", "./", "../")) or text in (".", "..")


def mount_of_typed(text: str) -> tuple[Mount, str] | None:
    """Return the mount that a typed path or name is in, and the name that it stands for there, as `mount_of`.

    The empty text stands for the working directory.
    """
    if is_path(text):
        return mount_of(Path(text))
    try:
        here = mount_of(Path())
        if here is None:
            return mount_of(Path(text))
    except FileNotFoundError:  # the working directory was removed
        return None
    name = os.path.normpath(os.path.join(here[1], text))
    return None if name.startswith("..") else (here[0], "" if name == "." else name)


def name_under_mount(text: str, store: Path) -> str | None:
    """Return the name that a text stands for under a mount of `store`, by `mount_of_typed`; None when it is in none.

    The empty text is the whole store, from everywhere. Raises InvalidRequest for a path in a mount of another store.
    """
    if not text:
        return None
    place = mount_of_typed(text)
    if place is None:
        return None
    mount, name = place
    if mount.store == store or os.path.realpath(mount.store) == os.path.realpath(store):
        return name
    if not is_path(text):
        return None
    raise InvalidRequest(
        f"{text} is in a mount of the store {mount.store}, not of {store}",
        remedy="leave out --store: the mount names its store",
    )


def _unescape(field: str) -> str:
    """Undo the kernel's octal escapes: blanks and backslashes only, so each is one ASCII character."""
    return _ESCAPE.sub(lambda match: chr(int(match[1], 8)), field)
