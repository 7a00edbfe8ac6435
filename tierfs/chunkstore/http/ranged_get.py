"""A ranged GET over plain HTTP, without I/O: the request, the parser of the answer, and a pool of idle connections.

Heads are parsed by httptools (llhttp): a parser in Python takes ten times as long.
"""

from __future__ import annotations

import socket
import threading
import weakref
from http import HTTPStatus
from urllib.parse import urlsplit

import httptools

HEAD_END = b"\r\n\r\n"

MAX_HEAD_BYTES = 16 * 1024
"""The longest head of an answer, including informational answers before it."""

_HTTP_PORT = 80
_HTTP_1 = b"HTTP/1."
_AGENT = "tierfs"

Host = tuple[str, int]
"""Name and port."""


class AnsweredOtherwise(Exception):
    """The answer is not exactly the range; a more general client may read it."""

    def __init__(self, status: int = 0) -> None:
        """`status` is HTTP's, 0 if the answer is not HTTP."""
        super().__init__(f"HTTP {status}")
        self.status = status


class RangedGet:
    """One GET: send `request`, feed `take_head` until the head is complete, then receive into `missing`."""

    __slots__ = ("_begin", "_etag", "_received", "_start", "_stays_open", "_view", "done", "request")

    def __init__(self, host: Host, target: str, start: int, view: memoryview, etag: str) -> None:
        """Fill `view`, which is not empty, with bytes of the object's version `etag` from `start` on."""
        self.request = _request(host, target, start, len(view))
        self.done = 0
        """Bytes of the body in `view`."""
        self._start = start
        self._view = view
        self._etag = etag
        self._received = b""
        self._begin = 0
        self._stays_open = False

    @property
    def missing(self) -> memoryview:
        """Room for the next bytes of the body; empty once all have arrived."""
        return self._view[self.done :]

    @property
    def clean(self) -> bool:
        """Whether the connection is reusable: nothing of this answer remains in it."""
        return self._stays_open and self.done == len(self._view)

    def take_head(self, piece: bytes) -> bool:
        """Take bytes of the answer; return whether its head is complete. Bytes of the body among them go into the view.

        Informational answers are skipped. Raises AnsweredOtherwise for any other range or version,
        ConnectionError when the server hung up.
        """
        _require(len(piece))
        self._received += piece
        received = self._received
        if not received.startswith(_HTTP_1[: len(received)]):
            raise AnsweredOtherwise
        while (end := received.find(HEAD_END, self._begin) + len(HEAD_END)) >= len(HEAD_END):
            head = _Head(received[self._begin : end])
            if head.status >= HTTPStatus.OK:
                self._begin_body(head, received[end:])
                return True
            self._begin = end
        if len(received) >= MAX_HEAD_BYTES:
            raise AnsweredOtherwise
        return False

    def arrived(self, count: int) -> None:
        """Count bytes received into `missing`. Raises ConnectionError when the server hung up."""
        _require(count)
        self.done += count

    def _begin_body(self, head: _Head, body: bytes) -> None:
        if not head.is_range(self._start, len(self._view), self._etag) or len(body) > len(self._view):
            raise AnsweredOtherwise(head.status)
        self._stays_open = head.stays_open
        self._view[: len(body)] = body
        self.done = len(body)


class IdleConnections:
    """Open connections to one server between two requests. Thread-safe."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._closed = False
        self._idle: list[socket.socket] = []
        # A pool that is dropped without close() leaks no connection, as with urllib3's.
        weakref.finalize(self, _close_all, self._idle)

    def __len__(self) -> int:
        return len(self._idle)

    def take(self) -> socket.socket | None:
        """Take the open connection used last, the least likely to be closed by the server; None without any.

        Connections found closed are dropped.
        """
        with self._lock:
            while self._idle:
                connection = self._idle.pop()
                if _is_quiet(connection):
                    return connection
                connection.close()
        return None

    def put_back(self, connection: socket.socket, *, clean: bool) -> None:
        """Keep a clean connection if there is room, else close it."""
        with self._lock:
            if clean and not self._closed and len(self._idle) < self._most:
                self._idle.append(connection)
                return
        connection.close()

    def close(self) -> None:
        """Close all connections; those in use are closed when put back."""
        with self._lock:
            self._closed = True
            _close_all(self._idle)


class _Head:
    """Status and header fields of one answer."""

    def __init__(self, data: bytes) -> None:
        """`data` ends with the blank line. Raises AnsweredOtherwise unless it is one complete head."""
        self._fields: dict[bytes, bytes] = {}
        self._complete = False
        parser = httptools.HttpResponseParser(self)
        try:
            parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as exc:
            raise AnsweredOtherwise from exc
        if not self._complete:
            raise AnsweredOtherwise
        self.status: int = parser.get_status_code()
        self.stays_open: bool = parser.should_keep_alive()
        """Whether the server awaits another request on this connection."""

    def is_range(self, start: int, length_bytes: int, etag: str) -> bool:
        """Return whether the body is exactly these bytes, of the right version, unencoded.

        The parser rejects a Transfer-Encoding beside the length.
        """
        return (
            self.status == HTTPStatus.PARTIAL_CONTENT
            and self._get(b"content-range").startswith(b"bytes %d-%d/" % (start, start + length_bytes - 1))
            and self._get(b"content-length") == b"%d" % length_bytes
            and self._get(b"etag").strip(b'"') == etag.encode()
        )

    def _get(self, name: bytes) -> bytes:
        """Return a field by its lower-case name, empty if missing; repeated ones are joined by a comma."""
        return self._fields.get(name, b"")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Store a header field; a callback of the parser."""
        name, value = name.lower(), value.strip()
        earlier = self._fields.get(name)
        self._fields[name] = value if earlier is None else earlier + b", " + value

    def on_headers_complete(self) -> None:
        """Note the end of the head; a callback of the parser."""
        self._complete = True


def host_of(origin: str) -> Host:
    """Return the host to connect to for the origin of a URL."""
    parts = urlsplit(origin)
    assert parts.hostname is not None
    return parts.hostname, parts.port or _HTTP_PORT


def _request(host: Host, target: str, start: int, length_bytes: int) -> bytes:
    """Return the request for these bytes. No header can be injected: a signed target is percent-encoded."""
    return (
        f"GET {target} HTTP/1.1\r\nHost: {_host_header(host)}\r\nUser-Agent: {_AGENT}\r\n"
        f"Accept-Encoding: identity\r\nRange: bytes={start}-{start + length_bytes - 1}\r\n\r\n"
    ).encode("ascii")


def _host_header(host: Host) -> str:
    """Return the host as signed: without the default port."""
    name, port = host
    if ":" in name:
        name = f"[{name}]"
    return name if port == _HTTP_PORT else f"{name}:{port}"


def _require(count: int) -> None:
    if not count:
        raise ConnectionError("the server hung up")


def _is_quiet(connection: socket.socket) -> bool:
    """Return whether the server neither closed the connection nor sent unrequested bytes."""
    try:
        connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _close_all(connections: list[socket.socket]) -> None:
    while connections:
        connections.pop().close()
