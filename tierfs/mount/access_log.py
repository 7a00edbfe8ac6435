"""`.tierfs/accesslog`: one line per operation, for as long as a listener has it open.

A line: time (UTC), operation, result, duration in microseconds, offset, size, process, user, command, path. The result
is the number of bytes of a read, `ok`, or the name of an errno. Without a listener nothing is formatted or kept. The
*subject* of an operation is its path in the mount, its offset, its size and who asked for it, for people to read. Of a
read pyfuse3 does not tell who asked: it is the process that opened the file.
"""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar

import pyfuse3
import trio

from tierfs.base.system import processes
from tierfs.base.system.clock import Clock
from tierfs.base.words import names
from tierfs.base.words.errors import NotFound
from tierfs.base.words.names import printable
from tierfs.base.words.types import EntryKind, Opener, SegmentId
from tierfs.engine.metadata import directories
from tierfs.engine.metadata.records import DirectoryRecord, SegmentRecord
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.transaction import ReadTransaction
from tierfs.mount.control_files import DIRECTORY_NAME, ControlFiles
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


T = TypeVar("T")

NAME = "accesslog"
# Reads of the log itself are not logged.
PATH = f"/{DIRECTORY_NAME.decode()}/{NAME}"

# Lines kept per listener, about 1.5 MB; a listener slower than the mount misses those that arrive after them.
MAX_LINES = 10_000

# Longest wait of a read for a line. The kernel releases a killed reader only when its read is answered, and an empty
# answer would be the end of the file.
IDLE_S = 1.0

_IDLE_LINE = b"#\n"
_MS_PER_S = 1000
_US_PER_S = 1_000_000
_READ = "read"


class Listener:
    """One open handle of the access log; it keeps its own position and ignores the offset of a read."""

    def __init__(self, log: AccessLog) -> None:
        self._log = log
        self._lines: deque[bytes] = deque()
        self._missed = 0
        self._rest = b""
        self._arrived = trio.Event()

    def put(self, line: bytes) -> None:
        """Keep a line, or count it as missed when too many wait."""
        if len(self._lines) >= MAX_LINES:
            self._missed += 1
            return
        self._tell_missed()
        self._lines.append(line)
        self._arrived.set()

    async def read(self, offset: int, size_bytes: int) -> bytes:
        """Wait for lines and return them; a comment if none arrives for IDLE_S. Never empty."""
        with trio.move_on_after(IDLE_S):
            while not self._rest and not self._lines:
                if self._arrived.is_set():
                    self._arrived = trio.Event()
                await self._arrived.wait()
        return self._take(size_bytes) or _IDLE_LINE[:size_bytes]

    def close(self) -> None:
        """Remove the listener from the log."""
        self._log.listeners.remove(self)

    def _take(self, size_bytes: int) -> bytes:
        taken = bytearray(self._rest)
        while self._lines and len(taken) < size_bytes:
            taken += self._lines.popleft()
        if not self._lines:
            self._tell_missed()
        self._rest = bytes(taken[size_bytes:])
        return bytes(taken[:size_bytes])

    def _tell_missed(self) -> None:
        """Add a comment with the number of missing lines, if any."""
        if self._missed:
            self._lines.append(b"# %d operations are missing here\n" % self._missed)
            self._missed = 0


class AccessLog:
    """The listeners of one mount. On the trio loop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.listeners: list[Listener] = []
        """Check that there are any before calling `logged`."""

    def open(self) -> Listener:
        """Listen from now on; close it."""
        listener = Listener(self)
        self.listeners.append(listener)
        return listener

    async def logged(self, operation: str, subject: Subject, call: Awaitable[T]) -> T:
        """Await an operation's call and send its line to all listeners; raises what the call raises.

        A cancelled operation is not logged.
        """
        begun_ms, begun_s = self._clock.now_ms(), self._clock.monotonic_s()
        try:
            answer = await call
        except pyfuse3.FUSEError as exc:
            self._tell(operation, subject, begun_ms, begun_s, errno.errorcode.get(exc.errno, str(exc.errno)))
            raise
        result = str(len(answer)) if operation == _READ else "ok"  # type: ignore[arg-type]  # reads return buffers
        self._tell(operation, subject, begun_ms, begun_s, result)
        return answer

    def _tell(self, operation: str, subject: Subject, begun_ms: int, begun_s: float, result: str) -> None:
        duration_us = round((self._clock.monotonic_s() - begun_s) * _US_PER_S)
        time = datetime.fromtimestamp(begun_ms / _MS_PER_S, UTC).isoformat(timespec="milliseconds")
        time = time.replace("+00:00", "Z")
        columns = (time, operation, result, duration_us, subject.offset, subject.size, subject.process, subject.path)
        line = " ".join(map(str, columns)).encode() + b"\n"
        for listener in self.listeners:
            listener.put(line)
