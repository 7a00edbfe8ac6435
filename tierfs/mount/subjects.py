"""The *subject* of an operation: its path in the mount, its offset, its size and who asked for it, for people to read.

Of a read pyfuse3 does not tell who asked: it is the process that opened the file.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.system import processes
from tierfs.base.words import names
from tierfs.base.words.errors import NotFound
from tierfs.base.words.names import printable
from tierfs.base.words.types import EntryKind, Opener, SegmentId
from tierfs.engine.metadata import directories
from tierfs.engine.metadata.records import DirectoryRecord, SegmentRecord
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.transaction import ReadTransaction
from tierfs.mount.control_files import ControlFiles
from tierfs.mount.inodes import Inodes

_BY_HANDLE = frozenset({"read", "release", "readdir", "releasedir"})
_FORGET, _STATFS = "forget", "statfs"
_NONE = "-"
_NOBODY = "- - -"


@dataclass(frozen=True, slots=True)
class Subject:
    """The subject of one operation; `-` for a part it lacks."""

    path: str
    """From the root of the mount, `/` itself for the root; `inode 17` for a deleted entry."""
    offset: str = _NONE
    """Offset in the file; for a listing, the token to continue after."""
    size: str = _NONE
    process: str = _NOBODY
    """Process id, user id and command, separated by blanks."""


class Subjects:
    """Finds the subjects for one mount; remembers the inode of each handle, and who opened it."""

    def __init__(self, metadata: MetadataStore, inodes: Inodes, control: ControlFiles) -> None:
        self._metadata = metadata
        self._inodes = inodes
        self._control = control
        self._by_handle: dict[int, tuple[int, Opener]] = {}

    def opened(self, handle: int, inode: int, opener: Opener) -> None:
        """Note that a file or directory was opened."""
        self._by_handle[handle] = inode, opener

    def closed(self, handle: int) -> None:
        """Note that it was closed."""
        self._by_handle.pop(handle, None)

    def of(self, operation: str, arguments: Sequence[Any]) -> Subject:
        """Return the subject of a call, before it is carried out; `arguments` are the operation's own."""
        if operation == _FORGET:
            return Subject(_NONE, process=_NOBODY)
        if operation in _BY_HANDLE:
            inode, process = self._by_handle.get(arguments[0], (0, Opener(0, 0)))
        else:
            inode, process = arguments[0], Opener(arguments[-1].pid, arguments[-1].uid)
        who = f"{process.pid} {process.uid} {processes.command_of(process.pid).replace(' ', '_') or _NONE}"
        if operation == _STATFS:
            return Subject(_NONE, process=who)
        path = self._path(inode)
        if operation == "lookup":
            path = f"{path.rstrip('/')}/{arguments[1].decode(errors='replace')}"
        numbers = arguments[1:3] if operation == "read" else arguments[1:2] if operation == "readdir" else ()
        offset, size = (*map(str, numbers), _NONE, _NONE)[:2]
        return Subject(printable(path), offset, size, who)

    def _path(self, inode: int) -> str:
        if self._control.owns(inode):
            return self._control.path(inode)
        entry = self._inodes.get(inode)
        path = None
        if entry is not None:
            with self._metadata.read() as txn:
                path = _path_of(txn, entry.kind, entry.id)
        return f"inode {inode}" if path is None else f"/{path}"


def _path_of(txn: ReadTransaction, kind: EntryKind, entry_id: int) -> str | None:
    """Return the full name of an entry; None when it was removed."""
    try:
        if kind is EntryKind.DIRECTORY:
            record: DirectoryRecord | SegmentRecord | None = directories.directory(txn, entry_id)
        else:
            record = directories.segment(txn, SegmentId(entry_id))
        if record is None or not record.parent_id:
            return None if record is None else ""
        path = directories.path_of(txn, record.parent_id, record.name)
        return None if names.is_removed(path) else path
    except NotFound:
        return None
