"""Which mounts there are, from the kernel's table: paths under one stand for segments."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

FSNAME_PREFIX = "tierfs:"
"""A mount's source is this and the store's directory."""

_MOUNT_TABLE = Path("/proc/self/mountinfo")


@dataclass(frozen=True, slots=True)
class Mount:
    """One mount of a tierfs store."""

    mountpoint: Path
    store: Path


def mounts() -> list[Mount]:
    """All tierfs mounts this process can see, in mount order."""
    found: list[Mount] = []
    for line in _MOUNT_TABLE.read_text().splitlines():
        fields, _, rest = line.partition(" - ")
        kind, source = rest.split()[:2]
        source = _unescape(source)
        if kind.startswith("fuse") and source.startswith(FSNAME_PREFIX):
            found.append(Mount(Path(_unescape(fields.split()[4])), Path(source.removeprefix(FSNAME_PREFIX))))
    return found


def name_under_mount(text: str, store: Path) -> str | None:
    """The segment name of a path under a mount of `store`, or None when it is no such path."""
    if not (text.startswith(("/", "./", "../")) or text in (".", "..")):
        return None
    path = Path(os.path.abspath(text))
    for mount in reversed(mounts()):
        if mount.store == store and path.is_relative_to(mount.mountpoint):
            name = str(path.relative_to(mount.mountpoint))
            return "" if name == "." else name
    return None


def _unescape(field: str) -> str:
    """Undo the kernel's octal escapes of blanks and backslashes."""
    return field.encode("latin-1").decode("unicode_escape").encode("latin-1").decode(errors="surrogateescape")
