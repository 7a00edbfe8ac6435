"""The local tier: chunk files that grow while they are active and never change once sealed.

A file is named `<fan-out>/<segment id>-<start offset>-<attempt>`; names are never reused. Bytes beyond
the committed length of its record do not exist for anybody. Files are opened relative to the held
directory and never through a symbolic link.
"""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tierfs import osio
from tierfs.errors import DataLoss, NotFound, TierfsError, Unavailable
from tierfs.osio import map_os_errors
from tierfs.types import AttemptId, SegmentId

log = logging.getLogger(__name__)

_FAN_OUT = 256
"""Directories below the root, so that a million files mean 4,000 to a directory."""

_FIRST = "00"
"""One of them, which is always there."""

_OPEN_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW
_CREATE_FLAGS = os.O_RDWR | os.O_CREAT | os.O_EXCL | _OPEN_FLAGS
_ATTEMPT_DIGITS = 16


def file_name(segment_id: SegmentId, start_offset: int, attempt: AttemptId) -> str:
    """Where a chunk of a segment lives, relative to the chunk directory."""
    return name_beside(segment_id, segment_id, start_offset, attempt)


def name_beside(first_id: SegmentId, segment_id: SegmentId, start_offset: int, attempt: AttemptId) -> str:
    """The same in the directory of segment `first_id`: files made together are made durable by one sync of it."""
    return f"{first_id % _FAN_OUT:02x}/{segment_id:x}-{start_offset:x}-{attempt[:_ATTEMPT_DIGITS]}"


@dataclass(frozen=True, slots=True)
class FoundFile:
    """One file of a scan."""

    name: str
    length_bytes: int
    mode: int


@dataclass(frozen=True, slots=True)
class DiskBytes:
    """The filesystem below the chunks."""

    size: int
    used: int
    """By anyone."""
    free: int
    """For unprivileged users: less than size - used where some is reserved for root."""


class ChunkFiles:
    """The chunk directory of one store. Thread-safe: it holds one descriptor and no state."""

    def __init__(self, root: Path) -> None:
        """Open an existing chunk directory; raises NotFound."""
        self.root = root
        with map_os_errors(str(root)):
            self._root_fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY | _OPEN_FLAGS)

    @classmethod
    def create(cls, root: Path) -> ChunkFiles:
        """Make an empty chunk directory, durably."""
        with map_os_errors(str(root)):
            root.mkdir(mode=osio.OWNER_DIRECTORY)
            for number in range(_FAN_OUT):
                (root / f"{number:02x}").mkdir(mode=osio.OWNER_DIRECTORY)
            files = cls(root)
            os.fsync(files._root_fd)
        return files

    @property
    def is_mounted(self) -> bool:
        """Whether the directories for the files are there; an empty mount point has none."""
        return (self.root / _FIRST).is_dir()

    def create_file(self, name: str) -> int:
        """A new empty file, open for reading and writing. Not durable before sync_directory."""
        with map_os_errors(name):
            return os.open(name, _CREATE_FLAGS, osio.OWNER_FILE, dir_fd=self._root_fd)

    def open_for_append(self, name: str) -> int:
        """An active chunk's file, to go on with it. Raises NotFound."""
        with map_os_errors(name):
            return os.open(name, os.O_RDWR | _OPEN_FLAGS, dir_fd=self._root_fd)

    def open_for_read(self, name: str) -> int:
        """A descriptor to read from; the caller closes it.

        Raises NotFound, and Unavailable while nothing is mounted where the files are: none is lost then.
        """
        try:
            return self._open_for_read(name)
        except NotFound as exc:
            if self._holds_files():
                raise
            if not self._follow():
                raise Unavailable(
                    f"{self.root} holds no chunk files now, as if it was not mounted", remedy="mount it"
                ) from exc
        return self._open_for_read(name)

    def read_into(self, name: str, offset: int, view: memoryview) -> None:
        """Fill `view` from a file. Raises DataLoss when it is shorter, and what open_for_read raises."""
        fd = self.open_for_read(name)
        try:
            with map_os_errors(name):
                if osio.read_all(fd, view, offset) < len(view):
                    raise DataLoss(f"chunk file {name} is shorter than its record says", remedy="run: tierfs fsck")
        finally:
            os.close(fd)

    def _open_for_read(self, name: str) -> int:
        with map_os_errors(name):
            return os.open(name, os.O_RDONLY | _OPEN_FLAGS, dir_fd=self._root_fd)

    def _holds_files(self) -> bool:
        """Whether the directory that is held is more than a mount point."""
        try:
            return stat.S_ISDIR(os.stat(_FIRST, dir_fd=self._root_fd).st_mode)
        except OSError:
            return False

    def _follow(self) -> bool:
        """Let the held descriptor be of what is mounted there by now; False while that is nothing."""
        if not self.is_mounted:
            return False
        with map_os_errors(str(self.root)):
            fd = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | _OPEN_FLAGS)
            try:
                os.dup2(fd, self._root_fd, inheritable=False)
            finally:
                os.close(fd)
        return True

    def sync_directory(self, name: str) -> None:
        """Make the creation of `name` durable."""
        with map_os_errors(name):
            osio.sync(os.path.dirname(name), dir_fd=self._root_fd, flags=os.O_DIRECTORY | _OPEN_FLAGS)

    def seal(self, name: str) -> None:
        """The file's bytes never change again: mode 0440. A missing file is the caller's DataLoss to find."""
        with map_os_errors(name):
            os.chmod(name, osio.SEALED_FILE, dir_fd=self._root_fd)

    def protect(self, name: str) -> None:
        """The same after the commit that ended the chunk, which stands whatever the disk says: fsck does it later."""
        try:
            self.seal(name)
        except TierfsError as exc:
            log.warning("%s cannot be made read-only, and `tierfs fsck --repair` will do it: %s", name, exc)

    def seal_open(self, fd: int, name: str) -> None:
        """The same by an open descriptor of the file, which can still be written to."""
        with map_os_errors(name):
            os.fchmod(fd, osio.SEALED_FILE)

    def length_bytes(self, name: str) -> int:
        """Size of the file, which may exceed its committed length. Raises NotFound."""
        with map_os_errors(name):
            return os.stat(name, dir_fd=self._root_fd, follow_symlinks=False).st_size

    def delete(self, name: str) -> None:
        """Remove the file; a missing one is success."""
        with map_os_errors(name):
            try:
                os.unlink(name, dir_fd=self._root_fd)
            except FileNotFoundError:
                return

    def names(self) -> Iterator[str]:
        """All files, in no order."""
        for number in range(_FAN_OUT):
            yield from self.names_in(f"{number:02x}")

    def names_in(self, directory: str) -> Iterator[str]:
        """The files of one of the directories."""
        for name in os.listdir(self.root / directory):
            yield f"{directory}/{name}"

    def scan(self) -> Iterator[FoundFile]:
        """All files with their lengths and modes, directory by directory: 2 µs each where a stat by name takes 4.

        A file that is deleted meanwhile is left out.
        """
        for number in range(_FAN_OUT):
            directory = f"{number:02x}"
            with map_os_errors(directory), os.scandir(self.root / directory) as entries:
                for entry in entries:
                    try:
                        status = entry.stat(follow_symlinks=False)
                    except FileNotFoundError:
                        continue
                    if stat.S_ISREG(status.st_mode):
                        yield FoundFile(f"{directory}/{entry.name}", status.st_size, status.st_mode)

    def length_and_mode(self, name: str) -> tuple[int, int]:
        """Length in bytes and mode. Raises NotFound."""
        with map_os_errors(name):
            status = os.stat(name, dir_fd=self._root_fd, follow_symlinks=False)
        return status.st_size, status.st_mode

    def stat(self, name: str) -> tuple[int, int]:
        """Length in bytes and time of the last change in milliseconds. Raises NotFound."""
        with map_os_errors(name):
            status = os.stat(name, dir_fd=self._root_fd, follow_symlinks=False)
        return status.st_size, status.st_mtime_ns // 1_000_000

    def disk_bytes(self) -> DiskBytes:
        """How large and how full the filesystem is."""
        status = os.fstatvfs(self._root_fd)
        unit = status.f_frsize
        used = (status.f_blocks - status.f_bfree) * unit
        return DiskBytes(size=status.f_blocks * unit, used=used, free=status.f_bavail * unit)

    def free_bytes(self) -> int:
        """Free space of the filesystem for unprivileged users."""
        return self.disk_bytes().free

    def close(self) -> None:
        """Release the directory; idempotent."""
        if self._root_fd >= 0:
            os.close(self._root_fd)
            self._root_fd = -1
