"""Write a file under its name: all of it, durably, or not at all, even through kill -9."""

from __future__ import annotations

import os
import re
import secrets
import stat
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress

from tierfs.base.system import osio
from tierfs.base.system.clock import Clock
from tierfs.base.words.errors import NotFound
from tierfs.engine.chunkstore.directory.metadata import FileMetadata
from tierfs.engine.chunkstore.directory.tree import READ_FLAGS, RootDirectory, map_os_errors
from tierfs.engine.chunkstore.protocol import Source
from tierfs.engine.chunkstore.validate import STEP_BYTES, read_source

TEMPORARY_DIRECTORY = ".tmp"

_PREFIX = "tierfs-"
_NAME = re.compile(rf"{_PREFIX}[0-9a-f]{{32}}")

# A temporary file not written to for a day is orphaned (a guess: no upload pauses that long).
STALE_AFTER_MS = 24 * 3600 * 1000

_CREATE_FLAGS = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
_NS_PER_MS = 1_000_000

# A delete may remove the emptied directory between our mkdir and our link; it cannot do so forever.
_LINK_ATTEMPTS = 10


class FileWriter:
    """Writes files below one root directory."""

    def __init__(self, tree: RootDirectory, metadata: FileMetadata, sweep: Clock | None = None) -> None:
        """With a `sweep` clock, remove temporary files orphaned by killed writers before the first write."""
        self._tree = tree
        self._metadata = metadata
        self._sweep = sweep
        self._unsynced: set[str] = set()
        """Directories with a new name that could not be synced."""

    def store(self, name: str, fill: Callable[[int], None], metadata: Mapping[str, str], *, create_only: bool) -> None:
        """Create a file, have `fill` write it, and name it `name`. Raises OSError, FileExistsError for a taken name.

        Order: bytes and metadata synced under a temporary name, then the name, then the directories synced. A failed
        sync leaves the name, so a taken name is synced before FileExistsError is raised: it may be the caller's own
        from an earlier try, also in another process.
        """
        with self._tree.open_directory(TEMPORARY_DIRECTORY, create=True) as directory:
            self._remove_stale(directory)
            temporary = _PREFIX + uuid.uuid4().hex
            sidecar = None
            try:
                with _created(temporary, directory) as fd:
                    fill(fd)
                    _make_unlike_others(fd)
                    sidecar = self._metadata.write(name, fd, metadata)
                    os.fchmod(fd, osio.SEALED_FILE)
                    os.fsync(fd)
                self._publish(directory, temporary, name, create_only=create_only)
                sidecar = None
            finally:
                if sidecar is not None:
                    self._metadata.remove(sidecar)
                with suppress(FileNotFoundError):  # renamed to its name
                    os.unlink(temporary, dir_fd=directory)

    def _publish(self, directory: int, temporary: str, name: str, *, create_only: bool) -> None:
        parent, _, text = name.rpartition("/")
        last = text.encode()
        for attempts_left in reversed(range(_LINK_ATTEMPTS)):
            try:
                with self._tree.open_directory(parent, create=True) as fd:
                    if create_only:
                        # link(2) refuses a name that is taken, rename(2) replaces it; both show all of the file or
                        # none.
                        os.link(temporary.encode(), last, src_dir_fd=directory, dst_dir_fd=fd, follow_symlinks=False)
                    else:
                        os.rename(temporary.encode(), last, src_dir_fd=directory, dst_dir_fd=fd)
                break
            except FileExistsError:
                self._sync_file(parent, last)
                self._sync_directories(parent)
                raise
            except FileNotFoundError:
                if not attempts_left:
                    raise
        self._sync_directories(parent)

    def settle(self, name: str) -> None:
        """Repeat a failed sync of the directory of `name`, before the object is reported to exist."""
        parent = name.rpartition("/")[0]
        if parent in self._unsynced:
            self._sync_directories(parent)

    def _sync_file(self, parent: str, last: bytes) -> None:
        with suppress(FileNotFoundError), self._tree.open_directory(parent) as directory:
            if not stat.S_ISREG(os.stat(last, dir_fd=directory, follow_symlinks=False).st_mode):
                return  # a link or a directory is not an object
            osio.sync(last, dir_fd=directory, flags=READ_FLAGS)

    def _sync_directories(self, parent: str) -> None:
        try:
            with suppress(FileNotFoundError):  # already deleted again
                self._tree.sync_directories(parent)
        except OSError:
            self._unsynced.add(parent)
            raise
        self._unsynced.discard(parent)

    def temporary_files(self) -> Iterator[tuple[str, int]]:
        """Yield temporary files, in use or orphaned: name, and time of the last write (ms).

        Files of other programs in a directory of that name do not count.
        """
        try:
            with map_os_errors(TEMPORARY_DIRECTORY), self._tree.open_directory(TEMPORARY_DIRECTORY) as directory:
                for name in filter(_NAME.fullmatch, os.listdir(directory)):
                    with suppress(FileNotFoundError):
                        status = os.stat(name, dir_fd=directory, follow_symlinks=False)
                        yield f"{TEMPORARY_DIRECTORY}/{name}", status.st_mtime_ns // _NS_PER_MS
        except NotFound:
            return

    def remove_temporary(self, name: str) -> None:
        """Remove one temporary file; a missing one is success."""
        with suppress(FileNotFoundError), self._tree.open_directory(TEMPORARY_DIRECTORY) as directory:
            os.unlink(os.path.basename(name), dir_fd=directory)

    def _remove_stale(self, directory: int) -> None:
        """Remove orphaned temporary files, only once; only files named by us that are no longer written to."""
        clock, self._sweep = self._sweep, None
        if clock is not None:
            for name in filter(_NAME.fullmatch, os.listdir(directory)):
                _remove_if_stale(name, directory, clock.now_ms())


def _remove_if_stale(name: str, directory: int, now_ms: int) -> None:
    with suppress(FileNotFoundError):  # its writer has just finished
        status = os.stat(name, dir_fd=directory, follow_symlinks=False)
        if status.st_mtime_ns // _NS_PER_MS < now_ms - STALE_AFTER_MS:
            os.unlink(name, dir_fd=directory)


@contextmanager
def _created(temporary: str, directory: int) -> Iterator[int]:
    fd = os.open(temporary, _CREATE_FLAGS, osio.OWNER_FILE, dir_fd=directory)
    try:
        yield fd
    finally:
        os.close(fd)


def write_source(name: str, source: Source, fd: int) -> None:
    """Write all of `source`. Raises DataLoss, naming `name`, when it holds less than it declared."""
    for offset in range(0, source.length_bytes, STEP_BYTES):
        view = memoryview(read_source(name, source, offset, min(STEP_BYTES, source.length_bytes - offset)))
        while view:
            view = view[os.write(fd, view) :]


def _make_unlike_others(fd: int) -> None:
    """Give a complete file an mtime that no other version of it has.

    The kernel's clock ticks every few milliseconds: two versions of one size could share an etag.
    """
    status = os.fstat(fd)
    mtime_ns = status.st_mtime_ns // _NS_PER_MS * _NS_PER_MS + secrets.randbelow(_NS_PER_MS)
    os.utime(fd, ns=(status.st_atime_ns, mtime_ns))
