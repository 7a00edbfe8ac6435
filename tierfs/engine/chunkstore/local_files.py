"""The local tier: chunk files that grow while they are active and never change once sealed.

A file is named `<fan-out>/<segment id>-<start offset>-<attempt>`; names are never reused. Bytes beyond the
committed length of its record are never read. Files are opened relative to the held directory and never through a
symbolic link. A name that tierfs does not make is refused by every function: it came from metadata that somebody else
wrote, and may lead anywhere.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.system import osio
from tierfs.base.system.os_errors import map_os_errors
from tierfs.base.words.errors import DataLoss, NotFound, TierfsError, Unavailable
from tierfs.base.words.names import printable
from tierfs.base.words.types import AttemptId, SegmentId

log = logging.getLogger(__name__)

# Directories below the root, so that a million files are 4,000 per directory.
_FAN_OUT = 256

# One of them, which always exists.
_FIRST = "00"

_OPEN_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW
_CREATE_FLAGS = os.O_RDWR | os.O_CREAT | os.O_EXCL | _OPEN_FLAGS
_ATTEMPT_DIGITS = 16

# The one form of the files' names.
NAME = re.compile(
    rf"[0-9a-f]{{2}}/(?P<segment>[1-9a-f][0-9a-f]{{0,15}})-(?P<start>0|[1-9a-f][0-9a-f]{{0,15}})-[0-9a-f]{{{_ATTEMPT_DIGITS}}}"
)


def file_name(segment_id: SegmentId, start_offset: int, attempt: AttemptId) -> str:
    """Return the file name of a chunk of a segment, relative to the chunk directory."""
    return name_beside(segment_id, segment_id, start_offset, attempt)


def name_beside(first_id: SegmentId, segment_id: SegmentId, start_offset: int, attempt: AttemptId) -> str:
    """Return the same in the directory of segment `first_id`: one sync then covers all files made together."""
    return f"{first_id % _FAN_OUT:02x}/{segment_id:x}-{start_offset:x}-{attempt[:_ATTEMPT_DIGITS]}"


def require_ours(name: str) -> str:
    """Return a name that tierfs makes; raises DataLoss for any other, before anything is done by it."""
    if NAME.fullmatch(name) is None:
        raise DataLoss(
            f"the metadata lists a chunk file {printable(name)}, which is not a tierfs name; it is not touched",
            remedy="run: tierfs check",
        )
    return name


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
    """By all users and files."""
    free: int
    """For unprivileged users: less than size - used if some is reserved for root."""


class ChunkFiles:
    """The chunk directory of one store. Thread-safe: it holds one descriptor and no state."""

    def __init__(self, root: Path) -> None:
        """Open an existing chunk directory; raises NotFound."""
        self.root = root
        with map_os_errors(str(root)):
            self._root_fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY | _OPEN_FLAGS)

    @classmethod
    def create(cls, root: Path) -> ChunkFiles:
        """Make an empty chunk directory, durably: whole or, by one that is killed, not at all."""
        with map_os_errors(str(root)):
            new = root.with_name(f"{root.name}.new")
            shutil.rmtree(new, ignore_errors=True)  # of one that was killed
            new.mkdir(mode=osio.OWNER_DIRECTORY)
            for number in range(_FAN_OUT):
                os.mkdir(f"{new}/{number:02x}", osio.OWNER_DIRECTORY)
            osio.sync_directory(new)
            os.rename(new, root)
            osio.sync_directory(root.parent)
            return cls(root)

    @property
    def is_mounted(self) -> bool:
        """Whether the directories for the files exist; an empty mount point has none."""
        return (self.root / _FIRST).is_dir()

    def create_file(self, name: str) -> int:
        """Create an empty file and return its descriptor, read-write. Not durable before sync_directory."""
        with map_os_errors(name):
            return os.open(require_ours(name), _CREATE_FLAGS, osio.OWNER_FILE, dir_fd=self._root_fd)

    def open_for_append(self, name: str) -> int:
        """Open an active chunk's file to continue it. Raises NotFound."""
        with map_os_errors(name):
            return os.open(require_ours(name), os.O_RDWR | _OPEN_FLAGS, dir_fd=self._root_fd)

    def open_for_read(self, name: str) -> int:
        """Open a file for reading; the caller closes the descriptor.

        Raises NotFound, and Unavailable while the filesystem of the files is not mounted: none is lost then.
        """
        try:
            return self._open_for_read(name)
        except NotFound as exc:
            if self._holds_files():
                raise
            if not self._follow():
                raise Unavailable(
                    f"{self.root} has no chunk files now; it seems not to be mounted", remedy="mount it"
                ) from exc
        return self._open_for_read(name)

    def read_into(self, name: str, offset: int, view: memoryview) -> None:
        """Fill `view` from a file. Raises DataLoss when it is shorter, and what open_for_read raises."""
        fd = self.open_for_read(name)
        try:
            with map_os_errors(name):
                if osio.read_all(fd, view, offset) < len(view):
                    raise DataLoss(f"chunk file {name} is shorter than its record says", remedy="run: tierfs check")
        finally:
            os.close(fd)

    def _open_for_read(self, name: str) -> int:
        with map_os_errors(name):
            return os.open(require_ours(name), os.O_RDONLY | _OPEN_FLAGS, dir_fd=self._root_fd)

    def _holds_files(self) -> bool:
        """Return whether the held directory is more than an empty mount point."""
        try:
            return stat.S_ISDIR(os.stat(_FIRST, dir_fd=self._root_fd).st_mode)
        except OSError:
            return False

    def _follow(self) -> bool:
        """Point the held descriptor at the filesystem mounted there now; return False without one."""
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
            osio.sync(os.path.dirname(require_ours(name)), dir_fd=self._root_fd, flags=os.O_DIRECTORY | _OPEN_FLAGS)

    def seal(self, name: str) -> None:
        """Make the file read-only, mode 0440: its bytes never change again. Raises NotFound for a missing file."""
        with map_os_errors(name):
            # chmod() would follow a link; opening does not, and does not wait for the other end of a pipe either.
            fd = os.open(require_ours(name), os.O_RDONLY | os.O_NONBLOCK | _OPEN_FLAGS, dir_fd=self._root_fd)
            try:
                os.fchmod(fd, osio.SEALED_FILE)
            finally:
                os.close(fd)

    def protect(self, name: str) -> None:
        """Seal after the commit that ended the chunk; an error is only logged, because tierfs check seals it later."""
        try:
            self.seal(name)
        except NotFound:
            return  # another process evicted it since; the drill of kills met that once in 200
        except TierfsError as exc:
            log.warning("%s cannot be made read-only; `tierfs check --repair` will do it: %s", name, exc)

    def seal_open(self, fd: int, name: str) -> None:
        """Seal by an open descriptor, which can still be written to."""
        with map_os_errors(name):
            os.fchmod(fd, osio.SEALED_FILE)

    def length_bytes(self, name: str) -> int:
        """Return the size of the file, which may exceed its committed length. Raises NotFound."""
        with map_os_errors(name):
            return os.stat(require_ours(name), dir_fd=self._root_fd, follow_symlinks=False).st_size

    def delete(self, name: str) -> None:
        """Remove the file; a missing one is success."""
        with map_os_errors(name):
            try:
                os.unlink(require_ours(name), dir_fd=self._root_fd)
            except FileNotFoundError:
                return

    def discard(self, name: str) -> None:
        """Remove a file that no record names; one that cannot be removed is left to the holder."""
        try:
            self.delete(name)
        except TierfsError as exc:
            log.info("%s is unreferenced, and cannot be removed yet: %s", name, exc)

    def names(self) -> Iterator[str]:
        """Yield the names of all files, in no order."""
        for directory in self.directories():
            yield from self.names_in(directory)

    def directories(self) -> Iterator[str]:
        """Yield the directories that hold the files."""
        return (f"{number:02x}" for number in range(_FAN_OUT))

    def names_in(self, directory: str) -> Iterator[str]:
        """Yield the names of the files in one directory."""
        for name in os.listdir(self.root / directory):
            yield f"{directory}/{name}"

    def scan(self) -> Iterator[FoundFile]:
        """Yield all files with lengths and modes, directory by directory: 2 µs each, against 4 for a stat by name.

        A file deleted during the scan is left out.
        """
        for directory in self.directories():
            with map_os_errors(directory), os.scandir(self.root / directory) as entries:
                for entry in entries:
                    try:
                        status = entry.stat(follow_symlinks=False)
                    except FileNotFoundError:
                        continue
                    if stat.S_ISREG(status.st_mode):
                        yield FoundFile(f"{directory}/{entry.name}", status.st_size, status.st_mode)

    def length_and_mode(self, name: str) -> tuple[int, int]:
        """Return length in bytes and mode. Raises NotFound."""
        with map_os_errors(name):
            status = os.stat(require_ours(name), dir_fd=self._root_fd, follow_symlinks=False)
        return status.st_size, status.st_mode

    def stat(self, name: str) -> tuple[int, int]:
        """Return length in bytes and time of the last change in milliseconds. Raises NotFound."""
        with map_os_errors(name):
            status = os.stat(require_ours(name), dir_fd=self._root_fd, follow_symlinks=False)
        return status.st_size, status.st_mtime_ns // 1_000_000

    def disk_bytes(self) -> DiskBytes:
        """Return size and usage of the filesystem."""
        status = os.fstatvfs(self._root_fd)
        unit = status.f_frsize
        used = (status.f_blocks - status.f_bfree) * unit
        return DiskBytes(size=status.f_blocks * unit, used=used, free=status.f_bavail * unit)

    def free_bytes(self) -> int:
        """Return free space of the filesystem for unprivileged users."""
        return self.disk_bytes().free

    def close(self) -> None:
        """Release the directory; idempotent."""
        if self._root_fd >= 0:
            os.close(self._root_fd)
            self._root_fd = -1
