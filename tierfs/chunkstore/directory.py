"""The cold tier as a directory: an object is a file of the same name. Any local or network filesystem.

`.tmp` and `.metadata` at the root are ours and no objects. A name cannot also be another's directory.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tierfs.chunkstore.checks import (
    STEP_BYTES,
    check_etag,
    check_metadata,
    check_name,
    check_range,
    past_end,
)
from tierfs.chunkstore.directory_list import list_files
from tierfs.chunkstore.directory_metadata import METADATA_DIRECTORY, FileMetadata
from tierfs.chunkstore.directory_put import TEMPORARY_DIRECTORY, FileWriter
from tierfs.chunkstore.directory_tree import DIRECTORY_MODE, READ_FLAGS, HeldTree, map_os_errors
from tierfs.chunkstore.protocol import Abilities, PendingUpload, Progress, RangeUrl, Source, StoredObject
from tierfs.clock import Clock, SystemClock
from tierfs.errors import InvalidRequest, NotFound
from tierfs.names import printable

HIDDEN = frozenset({METADATA_DIRECTORY, TEMPORARY_DIRECTORY})
_NS_PER_MS = 1_000_000


class DirectoryStorage:
    """ChunkStorage over one directory. Thread-safe, also against other processes and hosts."""

    def __init__(self, root: Path, *, clock: Clock | None = None) -> None:
        """Open an existing directory and remove stale temporary files. Raises NotFound, PermissionDenied."""
        self.root = root
        self._tree = HeldTree(root)
        self._metadata = FileMetadata(self._tree)
        self._writer = FileWriter(self._tree, self._metadata)
        with map_os_errors(str(root)):
            self._writer.remove_stale(clock or SystemClock())

    @classmethod
    def create(cls, root: Path, *, clock: Clock | None = None) -> DirectoryStorage:
        """Make the directory, mode 0700, durably, if it is missing; its parent must exist. Then open it."""
        with map_os_errors(str(root)):
            root.mkdir(mode=DIRECTORY_MODE, exist_ok=True)
            fd = os.open(root.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
        return cls(root, clock=clock)

    def __repr__(self) -> str:
        return f"directory {printable(str(self.root))}"

    @property
    def abilities(self) -> Abilities:
        """link(2) is create-only whatever the size; nothing is sent over a wire."""
        return Abilities()

    def put(
        self, name: str, source: Source, *, metadata: Mapping[str, str] | None = None, create_only: bool = True
    ) -> StoredObject:
        """See ChunkStorage.put."""
        _check(name)
        check_metadata(metadata or {})
        with map_os_errors(name):
            try:
                self._writer.put(name, source, metadata or {}, create_only=create_only)
            except (NotADirectoryError, IsADirectoryError) as exc:
                raise InvalidRequest(f"{printable(name)}: an object and a directory share a name") from exc
        return self.stat(name)

    def read_into(
        self,
        name: str,
        offset: int,
        buffer: memoryview,
        *,
        if_match: str | None = None,
        progress: Progress | None = None,
    ) -> None:
        """See ChunkStorage.read_into."""
        with self._open(name) as (fd, status):
            found = _described(name, status)
            check_etag(name, found.etag, if_match)
            check_range(found, offset, len(buffer))
            done = 0
            while done < len(buffer):
                with map_os_errors(name):
                    read = os.preadv(fd, [buffer[done : done + STEP_BYTES]], offset + done)
                if not read:
                    raise past_end(name, offset, len(buffer), offset + done)
                done += read
                if progress is not None:
                    progress(done)

    def range_url(self, name: str) -> RangeUrl | None:
        """None: no server has it."""
        return None

    def stat(self, name: str) -> StoredObject:
        """See ChunkStorage.stat."""
        with self._open(name) as (fd, status), map_os_errors(name):
            return _described(name, status, self._metadata.read(name, fd))

    def delete(self, name: str) -> None:
        """See ChunkStorage.delete. Directories it leaves empty go too."""
        _check(name)
        parent, _, last = name.rpartition("/")
        with map_os_errors(name):
            try:
                with self._tree.open_directory(parent) as directory:
                    status = os.stat(last, dir_fd=directory, follow_symlinks=False)
                    if not stat.S_ISREG(status.st_mode):
                        return
                    os.unlink(last, dir_fd=directory)
                    os.fsync(directory)
            except (FileNotFoundError, NotADirectoryError):
                return
            self._metadata.remove_of(name, status)
            self._tree.prune(parent)

    def list(self, prefix: str, *, after: str = "") -> Iterator[StoredObject]:
        """See ChunkStorage.list. Files whose names are not UTF-8, links and devices are no objects."""
        for name, status in list_files(self._tree, prefix, after, HIDDEN):
            yield _described(name, status)

    def uploads(self, prefix: str) -> Iterator[PendingUpload]:
        """See ChunkStorage.uploads: temporary files, which do not tell what they would become."""
        for name, started_ms in self._writer.temporary_files():
            if name.startswith(prefix):
                yield PendingUpload(name, os.path.basename(name), started_ms)

    def abort_upload(self, upload: PendingUpload) -> None:
        """See ChunkStorage.abort_upload."""
        with map_os_errors(upload.name):
            self._writer.remove_temporary(upload.upload_id)

    def close(self) -> None:
        """See ChunkStorage.close."""
        self._tree.close()

    @contextmanager
    def _open(self, name: str) -> Iterator[tuple[int, os.stat_result]]:
        """A descriptor of the regular file `name`, and what it is. Raises NotFound."""
        _check(name)
        parent, _, last = name.rpartition("/")
        with map_os_errors(name), self._tree.open_directory(parent) as directory:
            # O_NONBLOCK: whoever put a FIFO there does not make us wait.
            fd = os.open(last, READ_FLAGS | os.O_NONBLOCK, dir_fd=directory)
        try:
            with map_os_errors(name):
                status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode):
                raise NotFound(f"{printable(name)}: not a regular file")
            yield fd, status
        finally:
            os.close(fd)


def _check(name: str) -> None:
    check_name(name)
    if name.split("/", 1)[0] in HIDDEN:
        raise InvalidRequest(f"{printable(name)}: this name is reserved")


def _described(name: str, status: os.stat_result, metadata: Mapping[str, str] | None = None) -> StoredObject:
    """What the filesystem says of one file; an etag is its mtime and size (an inode does not survive a copy)."""
    etag = f"{status.st_mtime_ns:x}-{status.st_size:x}"
    return StoredObject(name, status.st_size, etag, status.st_mtime_ns // _NS_PER_MS, metadata or {})
