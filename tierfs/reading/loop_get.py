"""Small ranged GETs on the trio loop itself: no thread is woken for them, and none waits for the interpreter's lock.

The body of an answer goes straight into the caller's buffer. One try only: whatever is not exactly the bytes asked
for is left to the storage, which knows of errors, retries and other ways.
"""

from __future__ import annotations

import socket
from collections import defaultdict
from http import HTTPStatus
from urllib.parse import urlsplit

import httptools
import trio

from tierfs.chunkstore.protocol import RangeUrl
from tierfs.reading.http_head import HEAD_END, HttpHead

_HEAD_BYTES = 16 * 1024
"""Received at once while the head of an answer is awaited, and the longest head; what follows it is copied."""

_TIMEOUT_S = 10.0
"""After this the storage tries in its own way (a guess; the reader's deadline is longer)."""

_HTTP_PORT = 80
_HTTP_1 = b"HTTP/1."
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
        except (OSError, httptools.HttpParserError):
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
            await _send(connection, _request(host, url.target, start, len(view)))
            answer = await _receive_head(connection)
            if answer is None or not _is_wanted(answer[0], start, len(view), etag):
                return False
            done = await _receive_body(connection, answer[1], view)
            keep = done and answer[0].stays_open and not self._closed
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


def _request(host: _Host, target: str, start: int, length_bytes: int) -> bytes:
    # Nothing of it can break out of its line: a signed target is percent-encoded.
    return (
        f"GET {target} HTTP/1.1\r\nHost: {_host_header(host)}\r\nUser-Agent: {_AGENT}\r\n"
        f"Accept-Encoding: identity\r\nRange: bytes={start}-{start + length_bytes - 1}\r\n\r\n"
    ).encode("ascii")


async def _send(connection: socket.socket, data: bytes) -> None:
    while data:
        try:
            data = data[connection.send(data) :]
        except BlockingIOError:
            await trio.lowlevel.wait_writable(connection)


async def _receive_head(connection: socket.socket) -> tuple[HttpHead, bytes] | None:
    """The head of the answer, and what came behind it; None when it does not end, or there is too much before it."""
    received = b""
    begin = 0
    while len(received) < _HEAD_BYTES:
        try:
            piece = connection.recv(_HEAD_BYTES)
        except BlockingIOError:
            await trio.lowlevel.wait_readable(connection)
            continue
        if not piece:
            return None
        received += piece
        if not received.startswith(_HTTP_1[: len(received)]):
            return None
        while (end := received.find(HEAD_END, begin) + len(HEAD_END)) >= len(HEAD_END):
            head = HttpHead(received[begin:end])
            if not head.informational:
                return head, received[end:]
            begin = end
    return None


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


def _is_wanted(head: HttpHead, start: int, length_bytes: int, etag: str) -> bool:
    """Whether what follows is exactly the range, of the right version, as it is."""
    return (
        head.status == HTTPStatus.PARTIAL_CONTENT
        and head.get(b"content-range").startswith(b"bytes %d-%d/" % (start, start + length_bytes - 1))
        and head.get(b"content-length") == b"%d" % length_bytes
        and head.get(b"etag").strip(b'"') == etag.encode()
        and not head.get(b"transfer-encoding")  # it would hold although there is a length
    )
