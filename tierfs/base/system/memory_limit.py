"""The memory limit of this process: of its control group, or of one above it, as containers and systemd set it.

Both versions of control groups are read. In a container the kernel shows the own group as the root of the tree, or the
tree has only the own part mounted: what is visible from the mount point down to the own group counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.system import places
from tierfs.base.system.places import PROCESS
from tierfs.base.words import units
from tierfs.base.words.errors import Unavailable

_MEMORY = "memory"

# Version 1 has no word for "no limit", but the largest number of whole pages in 63 bits: pages have up to 64 KiB.
_NO_LIMIT_BYTES = 2**63 - 2**16


@dataclass(frozen=True, slots=True)
class MemoryLimit:
    """The least limit, and the memory that is left below it."""

    limit_bytes: int
    available_bytes: int
    """Includes the part of the page cache that the kernel would drop first."""
    group: Path
    """Directory of the control group that has it."""


@dataclass(frozen=True, slots=True)
class _Version:
    """Names of files, and of a number in memory.stat."""

    limits: tuple[str, ...]
    used: str
    droppable: str


# Above memory.high the kernel slows a process down until almost nothing moves: for a budget it is a limit too.
_SECOND = _Version(("memory.max", "memory.high"), "memory.current", "inactive_file")
_FIRST = _Version(("memory.limit_in_bytes",), "memory.usage_in_bytes", "total_inactive_file")


def find(process: Path = PROCESS) -> MemoryLimit | None:
    """Return the least limit that this process sees; None without one, or without control groups."""
    try:
        limits = [limit for version, group in _groups(process) if (limit := _limit(version, group)) is not None]
    except Unavailable:
        return None  # no /proc: nothing is known
    return min(limits, key=lambda limit: limit.limit_bytes, default=None)


def _groups(process: Path) -> Iterator[tuple[_Version, Path]]:
    """Yield the control groups that may limit the process, the own one first."""
    own = _own_groups(process)
    for row in places.table(process / "mountinfo").values():
        version = _SECOND if row.kind == "cgroup2" else _FIRST
        if row.kind != "cgroup2" and not (row.kind == "cgroup" and _MEMORY in row.options.split(",")):
            continue
        if (group := own.get(version)) is None:
            continue
        # A group outside of what is mounted cannot be read; the mount point is then the nearest one.
        is_below = group.is_relative_to(row.root) and ".." not in group.parts
        below = group.relative_to(row.root) if is_below else PurePosixPath()
        for each in (below, *below.parents):
            yield version, Path(row.mountpoint, each)


def _own_groups(process: Path) -> dict[_Version, PurePosixPath]:
    """Return the group of the process in each version that counts memory."""
    own = {}
    for line in _text(process / "cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:
            own[_SECOND] = PurePosixPath(path)
        elif _MEMORY in controllers.split(","):
            own[_FIRST] = PurePosixPath(path)
    return own


def _limit(version: _Version, group: Path) -> MemoryLimit | None:
    numbers = [units.decimal(_text(group / name).strip(), _NO_LIMIT_BYTES) for name in version.limits]
    limit_bytes = min((number for number in numbers if number is not None), default=_NO_LIMIT_BYTES)
    if limit_bytes >= _NO_LIMIT_BYTES:
        return None
    used_bytes = units.decimal(_text(group / version.used).strip()) or 0
    droppable = re.search(rf"^{version.droppable} ([0-9]+)$", _text(group / "memory.stat"), re.MULTILINE)
    kept_bytes = used_bytes - ((units.decimal(droppable[1]) or 0) if droppable is not None else 0)
    return MemoryLimit(limit_bytes, max(0, limit_bytes - max(0, kept_bytes)), group)


def _text(path: Path) -> str:
    """Return a file's text; empty for one that is missing or that this process may not read: then nothing is known."""
    try:
        return path.read_text(errors="surrogateescape")
    except OSError:
        return ""
