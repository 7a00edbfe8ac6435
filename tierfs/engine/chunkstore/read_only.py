"""Read-only access to adopted storages: nothing there is ever written, deleted or tagged (invariant 5)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from tierfs.base.words.errors import NotFound, PermissionDenied, Unavailable, WrongColdTier
from tierfs.base.words.names import printable
from tierfs.engine.chunkstore.directory.listing import list_files
from tierfs.engine.chunkstore.directory.read import FileReader
from tierfs.engine.chunkstore.directory.tree import RootDirectory
from tierfs.engine.chunkstore.protocol import (
    ChunkStorage,
    ComposedObject,
    ObjectPiece,
    OnReceived,
    PendingUpload,
    Source,
    StoredObject,
)
from tierfs.engine.chunkstore.validate import check_name
from tierfs.engine.chunkstore.wrappers import Wrapped

_Result = TypeVar("_Result")

_NS_PER_MS = 1_000_000


class _ReadOnly:
    """A ChunkStorage that refuses every change without sending a request."""

    def put(
        self, name: str, source: Source, *, metadata: Mapping[str, str] | None = None, create_only: bool = True
    ) -> StoredObject:
        """Raise PermissionDenied."""
        raise _refusal(self, name)

    def compose(
        self,
        name: str,
        pieces: Sequence[ObjectPiece],
        *,
        metadata: Mapping[str, str] | None = None,
        create_only: bool = True,
    ) -> ComposedObject:
        """Raise PermissionDenied."""
        raise _refusal(self, name)

    def copy_from(self, origin: ChunkStorage, stored: StoredObject) -> int | None:
        """Raise PermissionDenied."""
        raise _refusal(self, stored.name)

    def delete(self, name: str) -> None:
        """Raise PermissionDenied."""
        raise _refusal(self, name)

    def delete_many(self, names: Sequence[str]) -> bool:
        """Raise PermissionDenied."""
        raise _refusal(self, names[0])


class ReadOnlyStorage(_ReadOnly, Wrapped):
    """`inner` with every change refused."""

    def uploads(self, prefix: str) -> Iterator[PendingUpload]:
        """List none: unfinished uploads there belong to their owner."""
        return iter(())

    def abort_upload(self, upload: PendingUpload) -> None:
        """Raise PermissionDenied."""
        raise _refusal(self, upload.name)

    def _call(self, verb: str, name: str, function: Callable[[], _Result]) -> _Result:
        """Name the foreign place when it does not answer: a user would look at the store's own tier first."""
        try:
            return function()
        except Unavailable as exc:
            kind = WrongColdTier if isinstance(exc, WrongColdTier) else Unavailable
            raise kind(f"{self!r}, which tierfs only reads, is not available: {exc}", remedy=exc.remedy) from exc


class ReadOnlyDirectory(_ReadOnly):
    """A directory of plain files written by others. No sidecars, no temporary files, no attributes.

    An etag is a file's size, mtime and inode: it differs after a change or replacement.
    """

    def __init__(self, root: Path) -> None:
        """Open the directory. Raises Unavailable when it is missing: its filesystem may not be mounted now."""
        self.root = root
        try:
            self._tree = RootDirectory(root)
        except NotFound as exc:
            raise Unavailable(f"{self}: it is missing now", remedy="mount it, or restore it") from exc
        self._reader = FileReader(self._tree, _described)

    def __repr__(self) -> str:
        return f"directory {printable(str(self.root))}"

    def read_into(
        self,
        name: str,
        offset: int,
        buffer: memoryview,
        *,
        if_match: str | None = None,
        progress: OnReceived | None = None,
    ) -> None:
        check_name(name)
        self._tree.reading(lambda: self._reader.read_into(name, offset, buffer, if_match, progress))

    def stat(self, name: str) -> StoredObject:
        check_name(name)
        return self._tree.following(lambda: self._stat(name))

    def _stat(self, name: str) -> StoredObject:
        with self._reader.open(name) as (_, status):
            return _described(name, status)

    def list(self, prefix: str, *, after: str = "") -> Iterator[StoredObject]:
        """See ChunkStorage.list. Files whose names are not UTF-8, links and devices are no objects.

        Lists, and uses from then on, the filesystem mounted there now.
        """
        self._tree.follow()
        for name, status in list_files(self._tree, prefix, after, frozenset()):
            yield _described(name, status)

    def close(self) -> None:
        self._tree.close()


def _refusal(storage: object, name: str) -> PermissionDenied:
    return PermissionDenied(f"{printable(name)}: objects of others are only read, and {storage!r} is not ours")


def _described(name: str, status: os.stat_result) -> StoredObject:
    etag = f"{status.st_mtime_ns:x}-{status.st_size:x}-{status.st_ino:x}"
    return StoredObject(name, status.st_size, etag, status.st_mtime_ns // _NS_PER_MS)
