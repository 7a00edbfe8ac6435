"""`.tierfs/accesslog`: one line per operation, for as long as a listener has it open.

A line: time (UTC), operation, result, duration in microseconds, offset, size, process, user, command, path. The result
is the number of bytes of a read, `ok`, or the name of an errno. Without a listener nothing is formatted or kept.
"""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Awaitable
from datetime import UTC, datetime
from typing import TypeVar

import pyfuse3
import trio

from tierfs.base.system.clock import Clock
from tierfs.mount.control_files import DIRECTORY_NAME
from tierfs.mount.subjects import Subject

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
