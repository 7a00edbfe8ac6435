"""Small ranged GETs on the trio loop itself: no thread is woken for them, and none waits for the interpreter lock.

The body of an answer goes straight into the caller's buffer. One try only: any answer but exactly the requested bytes
is left to the storage, which handles errors, retries and other ways to read.
"""

from __future__ import annotations

import socket
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import trio

from tierfs.chunkstore.http.ranged_get import (
    MAX_HEAD_BYTES,
    AnsweredOtherwise,
    Host,
    IdleConnections,
    RangedGet,
    host_of,
)
from tierfs.chunkstore.protocol import RangeUrl

_TIMEOUT_S = 10.0
"""After this the storage takes over (a guess; the reader's deadline is longer)."""


@dataclass(slots=True)
class StartedGet:
    """A GET whose request is sent as far as that needs no waiting."""

    host: Host
    get: RangedGet
    connection: socket.socket | None
    """None: there was none open."""
    unsent: bytes


class LoopGets:
    """Connections to plain HTTP servers, and GETs over them. On the trio loop only."""

    def __init__(self, most: int) -> None:
        """`most` is the number of GETs at once."""
        self._most = most
        self._closed = False
        self.running = 0
        self.idle: dict[Host, IdleConnections] = defaultdict(partial(IdleConnections, most))

    @property
    def free(self) -> bool:
        """Whether one more may begin."""
        return self.running < self._most and not self._closed

    def begin(self, url: RangeUrl, start: int, view: memoryview, etag: str) -> StartedGet:
        """Send the request for the object's bytes from `start` on, if a connection is open; `finish` it in a task.

        The server works while the task is started, and whatever else the caller does.
        """
        self.running += 1
        host = host_of(url.origin)
        get = RangedGet(host, url.target, start, view, etag)
        started = StartedGet(host, get, self.idle[host].take(), get.request)
        if started.connection is not None:
            with suppress(OSError):  # full, or broken, as `finish` finds out
                started.unsent = get.request[started.connection.send(get.request) :]
        return started

    async def finish(self, started: StartedGet) -> bool:
        """Fill the view; return False after any failure. Once for each `begin`.

        The content of the view is undefined after False.
        """
        try:
            with trio.move_on_after(_TIMEOUT_S):
                await self._finish(started)
                return True
        except (OSError, AnsweredOtherwise):
            return False
        finally:
            self.running -= 1
        return False

    def close(self) -> None:
        """Close idle connections, and those in use when their GET ends; start no more."""
        self._closed = True
        for idle in self.idle.values():
            idle.close()

    async def _finish(self, started: StartedGet) -> None:
        get, connection = started.get, started.connection or await _connect(started.host)
        try:
            await _send(connection, started.unsent)
            await _receive(connection, get)
        finally:
            self.idle[started.host].put_back(connection, clean=get.clean and not self._closed)


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


async def _receive(connection: socket.socket, get: RangedGet) -> None:
    """Receive the whole answer. Raises AnsweredOtherwise for any other one."""
    head_is_whole, least = False, 1
    while not head_is_whole:
        try:
            head_is_whole = get.take_head(connection.recv(MAX_HEAD_BYTES))
        except BlockingIOError:
            await trio.lowlevel.wait_readable(connection)
    while missing := get.missing:
        try:
            get.arrived(connection.recv_into(missing))
        except BlockingIOError:
            least = _wake_up_for(connection, len(missing))
            await trio.lowlevel.wait_readable(connection)
    if least > 1:
        _wake_up_for(connection, 1)


def _wake_up_for(connection: socket.socket, least_bytes: int) -> int:
    """Have the kernel wake us only for so many bytes or the connection's end, not for each packet."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, least_bytes)
    return least_bytes
