"""Small ranged GETs on the trio loop itself: no thread is woken for them, and none waits for the interpreter's lock.

h11 reads the head of an answer; its body goes straight into the caller's buffer. One try only: whatever is not
exactly the bytes asked for is left to the storage, which knows of errors, retries and other ways.
"""

from __future__ import annotations

import socket
from collections import defaultdict
from urllib.parse import urlsplit

import h11
import trio

from tierfs.chunkstore.protocol import RangeUrl

_HEAD_BYTES = 16 * 1024
"""Received at once while the head of an answer is awaited; what follows it is copied."""

_TIMEOUT_S = 10.0
"""After this the storage tries in its own way (a guess; the reader's deadline is longer)."""

_HTTP_PORT = 80
_PARTIAL_CONTENT = 206
_AGENT = "tierfs"
_Host = tuple[str, int]


class LoopGets:
    """Connections to plain HTTP servers, and GETs over them. On the trio loop only."""

    def __init__(self, most: int) -> None:
        """`most`: GETs at once."""
        self._most = most
        self._closed = False
        self.running = 0
        self._resting: dict[_Host, list[socket.socket]] = defaultdict(list)

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
        except (OSError, h11.RemoteProtocolError):
            return False
        finally:
            self.running -= 1
        return False

    def close(self) -> None:
        """Close resting connections, and those in use when their GET ends; begin no more."""
        self._closed = True
        for connections in self._resting.values():
            for connection in connections:
                connection.close()
        self._resting.clear()

    async def _get(self, url: RangeUrl, start: int, view: memoryview, etag: str) -> bool:
        parts = urlsplit(url.origin)
        assert parts.hostname is not None
        host = (parts.hostname, parts.port or _HTTP_PORT)
        connection = self._rested(host) or await _connect(host)
        keep = False
        try:
            http = h11.Connection(our_role=h11.CLIENT)
            await _send(connection, _request(http, _host_header(host), url.target, start, len(view)))
            response, rest = await _receive_head(connection, http)
            done = _is_wanted(response, start, len(view), etag) and await _receive_body(connection, rest, view)
            keep = done and _stays_open(response) and not self._closed
        finally:
            if keep:
                self._resting[host].append(connection)
            else:
                connection.close()
        return done

    def _rested(self, host: _Host) -> socket.socket | None:
        """A connection that is still open; the one used last, for it is the least likely to be closed."""
        resting = self._resting[host]
        while resting:
            connection = resting.pop()
            try:
                connection.recv(1, socket.MSG_PEEK)
            except BlockingIOError:
                return connection
            except OSError:
                pass  # broken
            connection.close()  # closed by the server, or it said something nobody asked for
        return None


async def _connect(host: _Host) -> socket.socket:
    stream = await trio.open_tcp_stream(*host)
    connection = socket.socket(fileno=stream.socket.detach())
    connection.setblocking(False)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def _host_header(host: _Host) -> str:
    """As it was signed: without the port that need not be said."""
    name, port = host
    if ":" in name:
        name = f"[{name}]"
    return name if port == _HTTP_PORT else f"{name}:{port}"


def _request(http: h11.Connection, host_header: str, target: str, start: int, length_bytes: int) -> bytes:
    headers = [
        ("Host", host_header),
        ("User-Agent", _AGENT),
        ("Accept-Encoding", "identity"),
        ("Range", f"bytes={start}-{start + length_bytes - 1}"),
    ]
    head = http.send(h11.Request(method="GET", target=target, headers=headers))
    assert head is not None
    return head


async def _send(connection: socket.socket, data: bytes) -> None:
    while data:
        try:
            data = data[connection.send(data) :]
        except BlockingIOError:
            await trio.lowlevel.wait_writable(connection)


async def _receive_head(connection: socket.socket, http: h11.Connection) -> tuple[h11.Response, bytes]:
    """The head of the answer, and what came behind it."""
    while True:
        event = http.next_event()
        if isinstance(event, h11.Response):
            return event, http.trailing_data[0]
        if event is not h11.NEED_DATA:
            await trio.lowlevel.checkpoint()  # an informational answer: there may be no end of them
            continue
        try:
            http.receive_data(connection.recv(_HEAD_BYTES))
        except BlockingIOError:
            await trio.lowlevel.wait_readable(connection)


async def _receive_body(connection: socket.socket, rest: bytes, view: memoryview) -> bool:
    """Fill `view`, with what came behind the head first; False when the server sends more or less than that."""
    if len(rest) > len(view):
        return False
    view[: len(rest)] = rest
    done = len(rest)
    while done < len(view):
        try:
            received = connection.recv_into(view[done:])
        except BlockingIOError:
            await trio.lowlevel.wait_readable(connection)
            continue
        if received == 0:
            return False
        done += received
    return True


def _is_wanted(response: h11.Response, start: int, length_bytes: int, etag: str) -> bool:
    """Whether what follows is exactly the range, of the right version, as it is."""
    headers = dict(response.headers)
    wanted_range = b"bytes %d-%d/" % (start, start + length_bytes - 1)
    return (
        response.status_code == _PARTIAL_CONTENT
        and headers.get(b"content-range", b"").startswith(wanted_range)
        and headers.get(b"content-length") == b"%d" % length_bytes
        and headers.get(b"etag", b"").strip(b'"') == etag.encode()
        and b"transfer-encoding" not in headers  # it would hold although there is a length
    )


def _stays_open(response: h11.Response) -> bool:
    """Whether the server awaits another request on this connection."""
    said = b",".join(value for name, value in response.headers if name == b"connection").lower()
    return response.http_version == b"1.1" and b"close" not in (word.strip() for word in said.split(b","))
