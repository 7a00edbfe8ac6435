"""Ranged GETs over plain HTTP, in threads: a tenth of the CPU that a general client takes for each.

The body goes straight into the caller's buffer. One try only: what is not exactly the bytes asked for is left to
the general client, which knows of errors and other ways.
"""

from __future__ import annotations

import socket
import struct
import threading
import weakref

import httptools
from urllib3.exceptions import ConnectTimeoutError

from tierfs.chunkstore.checks import step_end
from tierfs.chunkstore.protocol import Progress
from tierfs.chunkstore.ranged_http import MAX_HEAD_BYTES, HeadBuffer, HttpHead, host_of, range_request
from tierfs.chunkstore.resting import close_all, take_open
from tierfs.chunkstore.s3_client import SOCKET_OPTIONS
from tierfs.config import ColdSettings

_TIMEVAL = struct.Struct("ll")
_MICROSECONDS = 1_000_000


class AnsweredOtherwise(Exception):
    """The answer was not exactly the range, or nothing this client reads."""

    def __init__(self, status: int = 0) -> None:
        """`status`: HTTP's, 0 for what is no HTTP."""
        super().__init__(f"HTTP {status}")
        self.status = status


class PlainGets:
    """Connections to one HTTP server, and GETs over them. Thread-safe."""

    def __init__(self, origin: str, settings: ColdSettings) -> None:
        """`origin`: scheme, host and port. Nothing is sent yet."""
        self._host = host_of(origin)
        self._settings = settings
        self._lock = threading.Lock()
        self._closed = False
        self._resting: list[socket.socket] = []
        # Who forgets to close it keeps no connection, as with urllib3's pools.
        weakref.finalize(self, close_all, self._resting)

    def read_into(self, target: str, start: int, buffer: memoryview, etag: str, progress: Progress | None) -> int:
        """Fill `buffer` with the object's bytes from `start` on; returns how many came: all, or the first ones.

        Raises AnsweredOtherwise, TimeoutError and ConnectTimeoutError for a silent server, and what `progress` raises,
        which is no OSError.
        """
        connection = self._rested() or self._connect()
        if connection is None:
            return 0
        get = _Get(connection, buffer, progress)
        try:
            get.run(range_request(self._host, target, start, len(buffer)), start, etag)
        except BlockingIOError as exc:  # what the kernel's time limit looks like
            raise TimeoutError(f"no byte for {self._settings.read_timeout_s:g} s") from exc
        except OSError:
            pass  # broken: the general client tries anew, or meets the same and says it
        except httptools.HttpParserError as exc:
            raise AnsweredOtherwise from exc
        finally:
            self._put_back(connection, clean=get.clean)
        return get.done

    def close(self) -> None:
        """Close resting connections, and those in use when their GET ends."""
        with self._lock:
            self._closed = True
            close_all(self._resting)

    def _rested(self) -> socket.socket | None:
        with self._lock:
            return take_open(self._resting)

    def _connect(self) -> socket.socket | None:
        try:
            connection = socket.create_connection(self._host, self._settings.connect_timeout_s)
        except TimeoutError as exc:
            raise ConnectTimeoutError(f"not connected in {self._settings.connect_timeout_s:g} s") from exc
        except OSError:
            return None
        for option in SOCKET_OPTIONS:
            connection.setsockopt(*option)
        # The kernel's own time limit: with Python's, each call would poll first, and ask for the interpreter twice.
        connection.settimeout(None)
        seconds, fraction = divmod(self._settings.read_timeout_s, 1)
        limit = _TIMEVAL.pack(int(seconds), int(fraction * _MICROSECONDS))
        for option_name in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            connection.setsockopt(socket.SOL_SOCKET, option_name, limit)
        return connection

    def _put_back(self, connection: socket.socket, *, clean: bool) -> None:
        with self._lock:
            if clean and not self._closed and len(self._resting) < self._settings.connections:
                self._resting.append(connection)
                return
        connection.close()


class _Get:
    """One GET over a connection."""

    def __init__(self, connection: socket.socket, buffer: memoryview, progress: Progress | None) -> None:
        self._connection = connection
        self._buffer = buffer
        self._progress = progress
        self.done = 0
        """Bytes that came."""
        self.clean = False
        """Whether the connection may be used again: nothing of this answer is left in it."""

    def run(self, request: bytes, start: int, etag: str) -> None:
        """Returns early when the server hangs up. Raises AnsweredOtherwise and httptools.HttpParserError."""
        self._connection.sendall(request)
        answer = self._receive_head()
        if answer is None:
            return
        head, rest = answer
        if not head.is_range(start, len(self._buffer), etag) or len(rest) > len(self._buffer):
            raise AnsweredOtherwise(head.status)
        self._buffer[: len(rest)] = rest
        self.done = len(rest)
        if self._receive_body():
            self.clean = head.stays_open

    def _receive_head(self) -> tuple[HttpHead, bytes] | None:
        buffer = HeadBuffer()
        while piece := self._connection.recv(MAX_HEAD_BYTES):
            if (answer := buffer.add(piece)) is not None:
                return answer
        return None

    def _receive_body(self) -> bool:
        """Receive it step by step; False when the server hangs up before its end."""
        length_bytes = len(self._buffer)
        while self.done < length_bytes:
            step = self._buffer[self.done : step_end(self.done)]
            received = self._connection.recv_into(step, 0, socket.MSG_WAITALL)
            if not received:
                return False
            self.done += received
            if self._progress is not None and self.done < length_bytes:
                self._progress(self.done)
        if self._progress is not None:
            self._progress(length_bytes)
        return True
