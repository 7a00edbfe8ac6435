"""The cold tier as a directory: an object is a file of the same name. Any local or network filesystem.

`.tmp` and `.metadata` at the root are ours and not objects. A name cannot also be another object's directory.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from tierfs.base.system import osio
from tierfs.base.system.clock import Clock
from tierfs.base.words.errors import InvalidRequest
from tierfs.base.words.names import printable
from tierfs.engine.chunkstore.directory.kernel_copy import copy_range
from tierfs.engine.chunkstore.directory.listing import list_files
from tierfs.engine.chunkstore.directory.metadata import METADATA_DIRECTORY, FileMetadata
from tierfs.engine.chunkstore.directory.read import FileReader
from tierfs.engine.chunkstore.directory.tree import RootDirectory, map_os_errors
from tierfs.engine.chunkstore.directory.write import TEMPORARY_DIRECTORY, FileWriter, write_source
from tierfs.engine.chunkstore.protocol import (
    ComposedObject,
    ObjectPiece,
    OnReceived,
    PendingUpload,
    Source,
    StoredObject,
    Supports,
)
from tierfs.engine.chunkstore.validate import (
    check_etag,
    check_metadata,
    check_name,
    check_pieces,
    check_range,
    past_end,
)

HIDDEN = frozenset({METADATA_DIRECTORY, TEMPORARY_DIRECTORY})
_NS_PER_MS = 1_000_000


class DirectoryStorage:
    """ChunkStorage and Uploads over one directory. Thread-safe, also against other processes and hosts."""

    supports = Supports(copies=True)

    def __init__(self, root: Path, *, sweep: Clock | None = None) -> None:
        """Open an existing directory. Nothing in it changes before the first write.

        With a `sweep` clock, the first write removes temporary files orphaned by killed writers.
        Raises NotFound, PermissionDenied.
        """
        self.root = root
        self._tree = RootDirectory(root)
        self._metadata = FileMetadata(self._tree)
        self._writer = FileWriter(self._tree, self._metadata, sweep)
        self._reader = FileReader(self._tree, _described)

    @classmethod
    def create(cls, root: Path) -> DirectoryStorage:
        """Create the directory, mode 0700, durably, if it is missing, and open it. The parent must exist."""
        with map_os_errors(str(root)):
            root.mkdir(mode=osio.OWNER_DIRECTORY, exist_ok=True)
            osio.sync_directory(root.parent)
        return cls(root)

    def __repr__(self) -> str:
        return f"directory {printable(str(self.root))}"

    def put(
        self, name: str, source: Source, *, metadata: Mapping[str, str] | None = None, create_only: bool = True
    ) -> StoredObject:
        return self._store(name, partial(write_source, name, source), metadata or {}, create_only=create_only)

    def compose(
        self,
        name: str,
        pieces: Sequence[ObjectPiece],
        *,
        metadata: Mapping[str, str] | None = None,
        create_only: bool = True,
    ) -> ComposedObject:
        """See ChunkStorage.compose. The kernel copies."""
        check_pieces(name, pieces)

        def fill(fd: int) -> None:
            for piece in pieces:
                self._copy(piece, fd)

        return ComposedObject.of(self._store(name, fill, metadata or {}, create_only=create_only))

    def _store(
        self, name: str, fill: Callable[[int], None], metadata: Mapping[str, str], *, create_only: bool
    ) -> StoredObject:
        _check(name)
        check_metadata(metadata)
        with map_os_errors(name):
            try:
                self._writer.store(name, fill, metadata, create_only=create_only)
            except (NotADirectoryError, IsADirectoryError) as exc:
                raise InvalidRequest(f"{printable(name)}: an object and a directory share a name") from exc
        return self.stat(name)

    def _copy(self, piece: ObjectPiece, target: int) -> None:
        """Append a piece to an open file; after an error its content is undefined."""
        with self._reader.open(piece.name) as (fd, status):
            stored = _described(piece.name, status)
            check_etag(piece.name, stored.etag, piece.etag, stored.length_bytes)
            check_range(stored, piece.offset, piece.length_bytes)
            with map_os_errors(piece.name):
                copied = copy_range(fd, piece.offset, piece.length_bytes, target)
            if copied < piece.length_bytes:
                raise past_end(piece.name, piece.offset, piece.length_bytes, piece.offset + copied)
            now = _described(piece.name, os.fstat(fd))
            check_etag(piece.name, now.etag, piece.etag, now.length_bytes)

    def read_into(
        self,
        name: str,
        offset: int,
        buffer: memoryview,
        *,
        if_match: str | None = None,
        progress: OnReceived | None = None,
    ) -> None:
        _check(name)
        self._tree.reading(lambda: self._reader.read_into(name, offset, buffer, if_match, progress))

    def stat(self, name: str) -> StoredObject:
        _check(name)
        with map_os_errors(name):
            self._writer.settle(name)
            with self._reader.open(name) as (fd, status):
                return _described(name, status, self._metadata.read(name, fd))

    def delete(self, name: str) -> None:
        """See ChunkStorage.delete. Also removes directories that become empty."""
        _check(name)
        parent, _, text = name.rpartition("/")
        last = text.encode()
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
        """See ChunkStorage.list. Files whose names are not UTF-8, links and devices are not objects.

        Lists, and uses from then on, the filesystem mounted there now.
        """
        self._tree.follow()
        for name, status in list_files(self._tree, prefix, after, HIDDEN):
            yield _described(name, status)

    def uploads(self, prefix: str) -> Iterator[PendingUpload]:
        """See Uploads.uploads: temporary files, whose final names are unknown."""
        for name, started_ms in self._writer.temporary_files():
            if name.startswith(prefix):
                yield PendingUpload(name, os.path.basename(name), started_ms)

    def abort_upload(self, upload: PendingUpload) -> None:
        with map_os_errors(upload.name):
            self._writer.remove_temporary(upload.upload_id)

    def close(self) -> None:
        self._tree.close()


def _check(name: str) -> None:
    check_name(name)
    if name.split("/", 1)[0] in HIDDEN:
        raise InvalidRequest(f"{printable(name)}: this name is reserved")


def _described(name: str, status: os.stat_result, metadata: Mapping[str, str] | None = None) -> StoredObject:
    """Return the description of a file; the etag is its mtime and size (an inode does not survive a copy)."""
    etag = f"{status.st_mtime_ns:x}-{status.st_size:x}"
    return StoredObject(name, status.st_size, etag, status.st_mtime_ns // _NS_PER_MS, metadata or {})
