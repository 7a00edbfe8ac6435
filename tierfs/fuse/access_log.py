"""`.tierfs/accesslog`: one line per operation, for as long as somebody has it open.

A line: time (UTC), operation, result, duration in microseconds, offset, size, path. The result is the number
of bytes of a read, `ok`, or the name of an errno. Nothing is formatted or kept while nobody listens.

What an operation is about, for people: a path in the mount, an offset, a size.
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

from tierfs.clock import Clock
from tierfs.errors import NotFound
from tierfs.fuse.control_files import DIRECTORY_NAME, ControlFiles
from tierfs.fuse.tree import Inodes
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


T = TypeVar("T")

NAME = "accesslog"
PATH = f"/{DIRECTORY_NAME.decode()}/{NAME}"
"""Who listens is not told of listening."""

MAX_LINES = 10_000
"""Kept per listener, about 1.5 MB; a listener that is slower than the mount misses what comes then."""

IDLE_S = 1.0
"""How long a read waits for a line. The kernel lets a killed reader go only when its read is answered, and the
answer may not be empty, which would be the end of the file."""

_IDLE_LINE = b"#\n"
_MS_PER_S = 1000
_US_PER_S = 1_000_000
_READ = "read"


class Listener:
    """One open handle of the access log; its position is its own, whatever offset is asked for."""

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
        """What has come, once there is something; a comment when nothing comes for a while. Never empty."""
        with trio.move_on_after(IDLE_S):
            while not self._rest and not self._lines:
                if self._arrived.is_set():
                    self._arrived = trio.Event()
                await self._arrived.wait()
        return self._take(size_bytes) or _IDLE_LINE[:size_bytes]

    def close(self) -> None:
        """Nobody listens here any more."""
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
        """Where lines are missing, say how many."""
        if self._missed:
            self._lines.append(b"# %d operations are missing here\n" % self._missed)
            self._missed = 0


class AccessLog:
    """The listeners of one mount. On the trio loop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.listeners: list[Listener] = []
        """Ask whether there are any before calling `logged`."""

    def open(self) -> Listener:
        """Listen from now on; close it."""
        listener = Listener(self)
        self.listeners.append(listener)
        return listener

    async def logged(self, operation: str, subject: Subject, call: Awaitable[T]) -> T:
        """Await an operation's call and tell all listeners how it went; raises what it raises.

        One that was cancelled is not told of.
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
        text = f"{time} {operation} {result} {duration_us} {subject.offset} {subject.size} {subject.path}\n"
        line = text.encode()
        for listener in self.listeners:
            listener.put(line)
