"""Small ranged GETs on the trio loop itself: no thread is woken for them, and none waits for the interpreter's lock.

The body of an answer goes straight into the caller's buffer. One try only: whatever is not exactly the bytes asked
for is left to the storage, which knows of errors, retries and other ways.
"""

from __future__ import annotations

import socket
from collections import defaultdict

import httptools
import trio

from tierfs.chunkstore.protocol import RangeUrl
from tierfs.chunkstore.ranged_http import MAX_HEAD_BYTES, HeadBuffer, Host, HttpHead, host_of, range_request
from tierfs.chunkstore.resting import close_all, take_open

_TIMEOUT_S = 10.0
"""After this the storage tries in its own way (a guess; the reader's deadline is longer)."""


class LoopGets:
    """Connections to plain HTTP servers, and GETs over them. On the trio loop only."""

    def __init__(self, most: int) -> None:
        """`most`: GETs at once."""
        self._most = most
        self._closed = False
        self.running = 0
        self._resting: dict[Host, list[socket.socket]] = defaultdict(list)

    @property
    def free(self) -> bool:
        """Whether one more may begin."""
        return self.running < self._most and not self._closed

    def reserve(self) -> None:
        """Count one more, for which `get` is called later: a task does not begin when it is started."""
        self.running += 1

    async def get(self, url: RangeUrl, start: int, view: memoryview, etag: str) -> bool:
        """Fill `view` with the object's bytes from `start` on; False when that did not work, for any reason.

        Once for each `reserve`. What is in `view` after False is undefined.
        """
        try:
            with trio.move_on_after(_TIMEOUT_S):
                return await self._get(url, start, view, etag)
        except (OSError, httptools.HttpParserError):
            return False
        finally:
            self.running -= 1
        return False

    def close(self) -> None:
        """Close resting connections, and those in use when their GET ends; begin no more."""
        self._closed = True
        for connections in self._resting.values():
            close_all(connections)
        self._resting.clear()

    async def _get(self, url: RangeUrl, start: int, view: memoryview, etag: str) -> bool:
        host = host_of(url.origin)
        connection = take_open(self._resting[host]) or await _connect(host)
        keep = False
        try:
            await _send(connection, range_request(host, url.target, start, len(view)))
            answer = await _receive_head(connection)
            if answer is None or not answer[0].is_range(start, len(view), etag):
                return False
            done = await _receive_body(connection, answer[1], view)
            keep = done and answer[0].stays_open and not self._closed
        finally:
            if keep:
                self._resting[host].append(connection)
            else:
                connection.close()
        return done


async def _connect(host: Host) -> socket.socket:
    stream = await trio.open_tcp_stream(*host)
    connection = socket.socket(fileno=stream.socket.detach())
    connection.setblocking(False)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


async def _send(connection: socket.socket, data: bytes) -> None:
    while data:
        try:
            data = data[connection.send(data) :]
        except BlockingIOError:
            await trio.lowlevel.wait_writable(connection)


async def _receive_head(connection: socket.socket) -> tuple[HttpHead, bytes] | None:
    """The head of the answer, and what came behind it; None when the server hangs up before."""
    buffer = HeadBuffer()
    while True:
        try:
            piece = connection.recv(MAX_HEAD_BYTES)
        except BlockingIOError:
            await trio.lowlevel.wait_readable(connection)
            continue
        if not piece:
            return None
        if (answer := buffer.add(piece)) is not None:
            return answer


async def _receive_body(connection: socket.socket, rest: bytes, view: memoryview) -> bool:
    """Fill `view`, with what came behind the head first; False when the server sends more or less than that."""
    if len(rest) > len(view):
        return False
    view[: len(rest)] = rest
    done = len(rest)
    least = 1
    while done < len(view):
        try:
            received = connection.recv_into(view[done:])
        except BlockingIOError:
            least = _wake_up_for(connection, len(view) - done)
            await trio.lowlevel.wait_readable(connection)
            continue
        if received == 0:
            return False
        done += received
    if least > 1:
        _wake_up_for(connection, 1)
    return True


def _wake_up_for(connection: socket.socket, least_bytes: int) -> int:
    """Have the kernel wake us once, for so many bytes or the connection's end, and not for each packet."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, least_bytes)
    return least_bytes
