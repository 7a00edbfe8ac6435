"""What an operation is about, for people: a path in the mount, an offset, a size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tierfs.errors import NotFound
from tierfs.fuse.control import ControlFiles
from tierfs.fuse.inodes import Inodes
from tierfs.metadata import directories
from tierfs.metadata.store import MetadataStore
from tierfs.metadata.transaction import ReadTransaction
from tierfs.names import printable
from tierfs.types import EntryKind, SegmentId

_BY_HANDLE = frozenset({"read", "release", "readdir", "releasedir"})
_WITHOUT = frozenset({"forget", "statfs"})
_NONE = "-"


@dataclass(frozen=True, slots=True)
class Subject:
    """One operation's; `-` for what it has not."""

    path: str
    """From the root of the mount, `/` itself for the root; `inode 17` for what was deleted."""
    offset: str = _NONE
    """In the file; of a listing, the token to go on behind."""
    size: str = _NONE


class Subjects:
    """Finds them for one mount; remembers which inode a handle is of."""

    def __init__(self, metadata: MetadataStore, inodes: Inodes, control: ControlFiles) -> None:
        self._metadata = metadata
        self._inodes = inodes
        self._control = control
        self._inode_by_handle: dict[int, int] = {}

    def opened(self, handle: int, inode: int) -> None:
        """A file or directory was opened."""
        self._inode_by_handle[handle] = inode

    def closed(self, handle: int) -> None:
        """It was closed."""
        self._inode_by_handle.pop(handle, None)

    def of(self, operation: str, arguments: Sequence[Any]) -> Subject:
        """The subject of a call, before it is carried out; `arguments` are the operation's own."""
        if operation in _WITHOUT:
            return Subject(_NONE)
        inode = self._inode_by_handle.get(arguments[0], 0) if operation in _BY_HANDLE else arguments[0]
        path = self._path(inode)
        if operation == "lookup":
            path = f"{path.rstrip('/')}/{arguments[1].decode(errors='replace')}"
        numbers = arguments[1:3] if operation == "read" else arguments[1:2] if operation == "readdir" else ()
        return Subject(printable(path), *map(str, numbers))

    def _path(self, inode: int) -> str:
        if self._control.owns(inode):
            return self._control.path(inode)
        known = self._inodes.get(inode)
        found = None
        if known is not None:
            with self._metadata.read() as txn:
                found = _path_of(txn, known.kind, known.id)
        return f"inode {inode}" if found is None else f"/{found}"


def _path_of(txn: ReadTransaction, kind: EntryKind, entry_id: int) -> str | None:
    """The full name of an entry; None when it was deleted."""
    try:
        if kind is EntryKind.DIRECTORY:
            record = directories.directory(txn, entry_id)
            return directories.path_of(txn, record.parent_id, record.name) if record.parent_id else ""
        segment = directories.segment(txn, SegmentId(entry_id))
        return None if segment is None else directories.path_of(txn, segment.parent_id, segment.name)
    except NotFound:
        return None
