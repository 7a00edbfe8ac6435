"""Small ranged GETs on the trio loop itself: no thread is woken for them, and none waits for the interpreter lock.

The body of an answer goes straight into the caller's buffer. One try only: any answer but exactly the requested bytes
is left to the storage, which handles errors, retries and other ways to read.
"""

from __future__ import annotations

import socket
import ssl
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextlib import suppress

import trio

from tierfs.base.bytes.frozen import dataclass
from tierfs.engine.chunkstore.http.connections import IdleConnections, prepare, wake_up_for
from tierfs.engine.chunkstore.http.ranged_get import MAX_HEAD_BYTES, AnsweredOtherwise, HttpOrigin, RangedGet, origin_of
from tierfs.engine.chunkstore.http.tls import WOULD_WAIT, TlsClient, TlsSocket
from tierfs.engine.chunkstore.protocol import RangeUrl

# After this the storage takes over (a guess; the reader's deadline is longer).
_TIMEOUT_S = 10.0


# Servers whose connections are kept: a store has few, and each reload of settings makes them anew.
_MOST_SERVERS = 8


@dataclass(frozen=True, slots=True)
class _Server:
    origin: HttpOrigin
    tls: TlsClient | None


@dataclass(slots=True)
class StartedGet:
    """A GET whose request is sent as far as that needs no waiting."""

    server: _Server
    get: RangedGet
    connection: socket.socket | None
    """None: there was none open."""
    unsent: bytes


class LoopGets:
    """Connections to HTTP servers, encrypted or not, and GETs over them. On the trio loop only."""

    def __init__(self, most: int) -> None:
        """`most` is the number of GETs at once."""
        self._most = most
        self._closed = False
        self.running = 0
        self._idle: OrderedDict[_Server, IdleConnections] = OrderedDict()

    @property
    def resting(self) -> int:
        """Connections kept for the next GETs."""
        return sum(map(len, self._idle.values()))

    @property
    def free(self) -> bool:
        """Whether one more may begin."""
        return self.running < self._most and not self._closed

    def begin(self, url: RangeUrl, start: int, view: memoryview, etag: str) -> StartedGet:
        """Send the request for the object's bytes from `start` on, if a connection is open; `finish` it in a task.

        The server works while the task is started, and whatever else the caller does.
        """
        self.running += 1
        server = _Server(origin_of(url.origin), url.tls)
        get = RangedGet(server.origin, url.target, start, view, etag)
        started = StartedGet(server, get, self._idle_of(server).take(), get.request)
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
        for idle in self._idle.values():
            idle.close()

    def _idle_of(self, server: _Server) -> IdleConnections:
        idle = self._idle.get(server)
        if idle is None:
            idle = self._idle[server] = IdleConnections(self._most, server.origin, server.tls)
            if len(self._idle) > _MOST_SERVERS:
                self._idle.popitem(last=False)[1].close()
        self._idle.move_to_end(server)
        return idle

    async def _finish(self, started: StartedGet) -> None:
        get, server = started.get, started.server
        connection = started.connection or await _connect(server)
        try:
            await _send(connection, started.unsent)
            await _receive(connection, get)
        finally:
            self._idle_of(server).put_back(connection, clean=get.clean and not self._closed)


async def _connect(server: _Server) -> socket.socket:
    stream = await trio.open_tcp_stream(server.origin.host, server.origin.port)
    connection = socket.socket(fileno=stream.socket.detach())
    connection.setblocking(False)
    prepare(connection)
    return connection if server.tls is None else await _encrypt(connection, server.tls, server.origin)


async def _encrypt(connection: socket.socket, tls: TlsClient, origin: HttpOrigin) -> TlsSocket:
    """Shake hands. Raises ssl.SSLError for a server that is not to be trusted."""
    wrapped = tls.wrap(connection, origin)
    try:
        while True:
            try:
                wrapped.do_handshake()
                return wrapped
            except WOULD_WAIT as exc:
                await _wait(wrapped, exc, trio.lowlevel.wait_readable)
    except BaseException:
        wrapped.close()
        raise


async def _wait(connection: socket.socket, why: OSError, usual: Callable[[socket.socket], Awaitable[None]]) -> None:
    """Wait until the connection may go on: TLS says what for, a plain one waits as usual."""
    if isinstance(why, ssl.SSLWantReadError):
        await trio.lowlevel.wait_readable(connection)
    elif isinstance(why, ssl.SSLWantWriteError):
        await trio.lowlevel.wait_writable(connection)
    else:
        await usual(connection)


async def _send(connection: socket.socket, data: bytes) -> None:
    while data:
        try:
            data = data[connection.send(data) :]
        except WOULD_WAIT as exc:
            await _wait(connection, exc, trio.lowlevel.wait_writable)


async def _receive(connection: socket.socket, get: RangedGet) -> None:
    """Receive the whole answer. Raises AnsweredOtherwise for any other one."""
    head_is_whole, least = False, 1
    while not head_is_whole:
        try:
            head_is_whole = get.take_head(connection.recv(MAX_HEAD_BYTES))
        except WOULD_WAIT as exc:
            await _wait(connection, exc, trio.lowlevel.wait_readable)
    while missing := get.missing:
        try:
            get.arrived(connection.recv_into(missing))
        except WOULD_WAIT as exc:
            if not isinstance(connection, TlsSocket):  # records arrive whole, but not as long as what is missing
                least = wake_up_for(connection, len(missing))
            await _wait(connection, exc, trio.lowlevel.wait_readable)
    if least > 1:
        wake_up_for(connection, 1)
