"""Find what a path stands for: the mount that covers it, and the name in that mount's store.

Only the kernel knows which mount covers a path: another filesystem may be mounted over it or below it, the path may
lead through a bind mount of one of its directories, and a working directory stays where it was. So the components of a
path are opened one by one (O_PATH, which opens no file) up to the first mount of tierfs; fdinfo has that mount's number
in the table. The rest is resolved by the table alone, as a store has no symbolic links: the mount may not answer.
"""

from __future__ import annotations

import errno
import os
import re
from collections import deque
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words.errors import InvalidRequest, Unavailable
from tierfs.base.words.names import from_os

# What the kernel adds to the root of a mount whose directory has no name any more.
_DELETED_ROOT = "//deleted"
# Symbolic links in one path, as path_resolution(7) counts them.
_MAX_LINKS = 40

_AUTOFS = "autofs"

# These tell nothing of the path.
_OF_THIS_PROCESS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})

# A mount's source is this and the store's directory.
FSNAME_PREFIX = "tierfs:"

_MOUNT_TABLE = Path("/proc/self/mountinfo")
# proc_pid_fd(5) and proc_pid_fdinfo(5) of this one.
PROCESS = Path("/proc/self")
# proc_pid_mountinfo(5): a blank, tab, line feed, backslash and, in some fields, # are three octal digits.
_ESCAPE = re.compile(rb"\\([0-7]{3})")
# Opens no file, asks for no permission to read one, and has autofs mount nothing.
LOOK = os.O_PATH | os.O_CLOEXEC


class MountRow(NamedTuple):
    """One line of the table."""

    id: int
    parent: int
    device: str
    root: str
    mountpoint: str
    kind: str
    source: str
    options: str = ""
    """Of the filesystem, not of the mount."""

    @property
    def is_ours(self) -> bool:
        """Whether it is a mount of tierfs, or a bind mount in one."""
        return self.kind.startswith("fuse") and self.source.startswith(FSNAME_PREFIX)


Table = Mapping[int, MountRow]


@dataclass(frozen=True, slots=True)
class Mount:
    """One mount of a tierfs store, or a bind mount of a part of one."""

    mountpoint: Path
    store: Path
    """As the process that serves the mount names it; another mount namespace may have another directory there."""
    device: str
    """Major and minor number, as in `0:57`: one for each process that serves a mount, on the whole machine."""
    root: str = ""
    """The directory or segment that it shows, as a path of the operating system; empty for the whole store."""
    id: int = 0

    @property
    def name(self) -> str:
        """The name of what it shows."""
        return from_os(self.root)


def mounts() -> list[Mount]:
    """Return all tierfs mounts this process can see, in mount order, also those that another one covers."""
    return [mount_from(row) for row in table().values() if row.is_ours]


def table(path: Path | None = None) -> dict[int, MountRow]:
    """Return the rows of a table, of this process by default, by their numbers. Raises Unavailable without a /proc."""
    try:
        lines = (path or _MOUNT_TABLE).read_bytes().split(b"\n")
    except OSError as exc:
        raise Unavailable(
            f"cannot read the table of mounts: {exc.strerror}; a path could refer to any segment",
            remedy="mount it: mount -t proc proc /proc",
        ) from exc
    return {row.id: row for row in map(_row, filter(None, lines))}


def _row(line: bytes) -> MountRow:
    fields, _, rest = line.partition(b" - ")
    number, parent, device, root, mountpoint = map(_unescape, fields.split(b" ")[:5])
    kind, source, options = map(_unescape, rest.split(b" ")[:3])
    return MountRow(int(number), int(parent), device, root, mountpoint, kind, source, options)


def _unescape(field: bytes) -> str:
    """Undo the kernel's octal escapes."""
    return os.fsdecode(_ESCAPE.sub(lambda match: bytes([int(match[1], 8)]), field))


def mount_from(row: MountRow) -> Mount:
    """Return what a row of ours says."""
    store = Path(row.source.removeprefix(FSNAME_PREFIX))
    return Mount(Path(row.mountpoint), store, row.device, row.root.strip("/"), row.id)


def mount_id(fd: int) -> int:
    """Return the number of a descriptor's mount in the table, see proc_pid_fdinfo(5)."""
    for line in (PROCESS / "fdinfo" / str(fd)).read_text().splitlines():
        if line.startswith("mnt_id:"):
            return int(line.partition(":")[2])
    raise Unavailable(f"{PROCESS}/fdinfo does not list the mount", remedy="tierfs needs Linux 3.15 or later")


def mountpoint_of(process: Path, mount: Mount) -> str | None:
    """Return where a process, by its directory in /proc, has the filesystem of a mount; None where it has none to see.

    A younger mount, of another store, may have the number by now.
    """
    try:
        lines = (process / _MOUNT_TABLE.name).read_bytes().splitlines()
    except OSError:
        return None
    rows = (_row(line) for line in lines if f" {mount.device} ".encode() in line)
    shown = (mount_from(row) for row in rows if row.is_ours and row.device == mount.device)
    return next((str(other.mountpoint) for other in shown if other.store == mount.store), None)


class MountedPlace(NamedTuple):
    """The meaning of a path."""

    mount: Mount
    name: str
    """Of a segment or directory in the store, which need not exist."""
    above: str = ""
    """The beginning of `name` that comes from the mount and the working directory. The rest was typed."""


def mount_of(path: Path) -> MountedPlace | None:
    """Return what a path stands for; None outside of all mounts. See `place_of`."""
    return place_of(str(path))


def mount_at(mountpoint: Path) -> Mount | None:
    """Return the tierfs mount at a path, the topmost there; None for any other path. Asks nothing of anyone."""
    place = place_of(str(mountpoint), enters=False)
    return place.mount if place is not None and place.name == place.mount.name else None


def is_autofs(directory: Path) -> bool:
    """Return whether autofs mounts something at a directory, or below it, for whoever looks into it."""
    try:
        fd = os.open(directory, LOOK)
    except OSError:
        return False
    try:
        row = table().get(mount_id(fd))
    finally:
        os.close(fd)
    return row is not None and row.kind == _AUTOFS


def place_of(text: str, *, enters: bool = True) -> MountedPlace | None:
    """Return the mount that covers a path, and the name that it stands for there; None outside of all mounts.

    A relative path begins at the working directory; the empty one is that. No mount is asked for anything. Raises
    InvalidRequest where the kernel does not tell what is meant: below another filesystem that is mounted over the mount
    or in it, in a directory that was removed, in a mount that was taken away. Without `enters` only the mount points
    are of interest: autofs mounts nothing at the end of the path, and a mount that is covered counts for nothing.
    """
    rows = table()
    is_lost = not text.startswith("/") and _working_directory_is_lost()
    if not is_lost and not any(row.is_ours or row.kind == _AUTOFS for row in rows.values()):
        return None
    return _Walk(text, rows, enters=enters).place()


def _working_directory_is_lost() -> bool:
    """Return whether no path leads to the working directory: it was removed, or its mount was taken away."""
    try:
        os.getcwd()
    except FileNotFoundError:
        return True
    return False


class _Walk:
    """The way along one path, with a descriptor of the place that was reached."""

    def __init__(self, text: str, table: Table, *, enters: bool) -> None:
        self._text = text
        self._enters = enters
        self._table = table
        self._todo = deque(_parts(text))
        self._start = "/" if text.startswith("/") else "."
        self._links = 0
        self._fd = -1

    def place(self) -> MountedPlace | None:
        """Go to the first mount of tierfs, and on by the table. Raises InvalidRequest as `place_of`."""
        try:
            self._fd = os.open(self._start, LOOK)
        except OSError as exc:  # of a mount in which it was removed, or whose process is gone
            raise InvalidRequest(
                f"cannot find the path of the working directory: {exc.strerror}", remedy="change to another directory"
            ) from exc
        try:
            while True:
                row = self._covering()
                if row is not None and row.is_ours:
                    place = self._inside(row)
                    if place is not None:
                        return place
                elif not self._todo:
                    self._nothing_there()
                    return None
                elif not self._step():
                    return None
        finally:
            os.close(self._fd)

    def _covering(self) -> MountRow | None:
        """Return the mount of the place that was reached; None for one that is above the root of this process."""
        row = self._table.get(mount_id(self._fd))
        if row is None and self._start == "." and _working_directory_is_lost():
            raise InvalidRequest(
                f"the working directory is in a removed mount, so {self._shown} refers to nothing",
                remedy="change to another directory",
            )
        return row

    def _step(self) -> bool:
        """Go to the next component, through symbolic links; return False where it does not exist."""
        part = self._todo.popleft()
        try:
            reached = self._open(part)
        except ValueError:  # a NUL, or a surrogate
            return False
        except OSError as exc:
            if exc.errno in _OF_THIS_PROCESS:
                raise Unavailable(f"cannot look up {self._shown}: {exc.strerror}", remedy="try again") from exc
            return self._nothing_there()
        target = _link_target(reached)
        if target is None:
            self._go_to(reached)
            return True
        os.close(reached)
        return self._follow(target)

    def _open(self, part: str) -> int:
        """Open a component of the way; where autofs has it mounted for whoever goes there, have it mounted."""
        here = self._covering()
        try:
            reached = os.open(part, LOOK | os.O_NOFOLLOW, dir_fd=self._fd)
        except FileNotFoundError:
            if here is None or here.kind != _AUTOFS:
                raise
        else:
            row = self._table.get(mount_id(reached))
            if row is None or row.kind != _AUTOFS or not (self._todo or self._enters):
                return reached
            os.close(reached)
        reached = os.open(f"{part}/.", LOOK, dir_fd=self._fd)
        self._table = table()
        return reached

    def _nothing_there(self) -> bool:
        """Refuse a path that seems to lead into a mount, although this process cannot go there; return False."""
        if not self._enters or (self._start == "." and _working_directory_is_lost()):
            return False
        place = Path(os.path.abspath(self._text or "."))
        for row in self._table.values():
            if row.is_ours and place.is_relative_to(row.mountpoint):
                raise InvalidRequest(
                    f"{self._shown} is below the mount at {row.mountpoint}, but does not lead into it: another "
                    "filesystem covers it, or a directory on the way is missing or may not be searched",
                    remedy="give the segment's name in the store, without the path of the mount",
                )
        return False

    def _follow(self, target: str) -> bool:
        self._links += 1
        if self._links > _MAX_LINKS:
            return False
        if target.startswith("/"):
            self._go_to(os.open("/", LOOK))
        self._todo.extendleft(reversed(_parts(target)))
        return True

    def _go_to(self, fd: int) -> None:
        os.close(self._fd)
        self._fd = fd

    @property
    def _shown(self) -> str:
        return self._text or "it"

    def _inside(self, row: MountRow) -> MountedPlace | None:
        """Return what the rest of the path stands for in a mount; None when it leads out again, with the walk there."""
        if row.root.endswith(_DELETED_ROOT):
            raise InvalidRequest(
                f"{self._shown} is in a bind mount of {row.root.removesuffix(_DELETED_ROOT)}, which has since been "
                "removed or replaced",
                remedy=f"mount it again: umount {row.mountpoint}; mount --bind DIR {row.mountpoint}",
            )
        above = _below(row.mountpoint, self._path())
        entered, depth, typed = row, len(above), list[str]()
        while self._todo:
            part = self._todo.popleft()
            if part != "..":
                typed.append(part)
            elif typed:
                typed.pop()
            elif above:
                above.pop()
            elif row is not entered:
                raise InvalidRequest(
                    f"{self._shown} leads out of a mount inside another mount",
                    remedy="give the path in that mount directly",
                )
            else:
                self._go_to(os.open("/".join([".."] * (depth + 1)), LOOK, dir_fd=self._fd))
                return None
            inner = _mounted_at(self._table.values(), row, [*above, *typed])
            if inner is None:
                continue
            if not inner.is_ours:
                raise InvalidRequest(
                    f"{self._shown} is in another filesystem, which is mounted at {inner.mountpoint}",
                    remedy="give the segment's name in the store, without the path of the mount",
                )
            row, above, typed = inner, [], []
        return self._named(row, above, typed)

    def _path(self) -> str:
        """Return the path of the place that was reached. Raises InvalidRequest where it has none."""
        if self._start == "." and _working_directory_is_lost():
            raise InvalidRequest("the working directory was removed", remedy="change to another directory")
        return os.readlink(f"{PROCESS}/fd/{self._fd}")

    def _named(self, row: MountRow, above: list[str], typed: list[str]) -> MountedPlace:
        known = [*_parts(row.root), *above]
        return MountedPlace(mount_from(row), from_os("/".join([*known, *typed])), from_os("/".join(known)))


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]


def _below(mountpoint: str, path: str) -> list[str]:
    parts, above = _parts(path), _parts(mountpoint)
    if parts[: len(above)] != above:
        raise InvalidRequest(f"{path} is not below {mountpoint}, where it is mounted", remedy="try again")
    return parts[len(above) :]


def _mounted_at(rows: Iterable[MountRow], outer: MountRow, parts: list[str]) -> MountRow | None:
    """Return the topmost mount in a directory of another mount; None where nothing is mounted."""
    place = "/".join([outer.mountpoint.rstrip("/"), *parts])
    by_parent = {row.parent: row for row in rows if row.mountpoint == place and row.id != row.parent}
    topmost: MountRow | None = None
    while (over := by_parent.get((topmost or outer).id)) is not None:  # what is mounted over a mount is its child
        topmost = over
    return topmost


def _link_target(fd: int) -> str | None:
    """Return where a symbolic link leads; None for everything else."""
    try:
        return os.readlink("", dir_fd=fd)
    except OSError as exc:
        if exc.errno in (errno.ENOENT, errno.EINVAL):
            return None
        raise


def is_path(text: str) -> bool:
    """Return whether a text can only be a path, or begins at the root; all others may be names of a store."""
    return text.startswith(("/", "./", "../")) or text in (".", "..")


def place_of_typed(text: str) -> MountedPlace | None:
    """Return what a typed path or name stands for under a mount, as `place_of`; None for a name of the store.

    A bare name is a path in a mount around the working directory, as far as it does not lead out of that.
    """
    if is_path(text):
        return place_of(text)
    here = place_of("")
    place = place_of(text)
    return place if here is None or place is None or place.mount.device == here.mount.device else None
