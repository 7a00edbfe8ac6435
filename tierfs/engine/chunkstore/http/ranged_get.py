"""A ranged GET over HTTP, without I/O: the request, and the parser of the answer.

Heads are parsed by httptools (llhttp): a parser in Python takes ten times as long.
"""

from __future__ import annotations

from functools import lru_cache
from http import HTTPStatus
from urllib.parse import urlsplit

import httptools

from tierfs.base.bytes.frozen import dataclass

HEAD_END = b"\r\n\r\n"

# The longest head of an answer, including informational answers before it.
MAX_HEAD_BYTES = 16 * 1024

_DEFAULT_PORTS = {"http": 80, "https": 443}
_HTTP_1 = b"HTTP/1."
_AGENT = "tierfs"


@dataclass(frozen=True, slots=True)
class HttpOrigin:
    """A server as URLs name it."""

    scheme: str
    """`http` or `https`."""
    host: str
    """A name or an address, that of IPv6 without brackets."""
    port: int

    @property
    def header(self) -> str:
        """The value of the Host header, as it is signed: without the default port."""
        # RFC 9110, section 7.2: the default port is left out. RFC 3986, section 3.2.2: brackets around an IPv6 address.
        name = f"[{self.host}]" if ":" in self.host else self.host
        return name if self.port == _DEFAULT_PORTS[self.scheme] else f"{name}:{self.port}"


class AnsweredOtherwise(Exception):
    """The answer is not exactly the range; a more general client may read it."""

    def __init__(self, status: int = 0) -> None:
        """`status` is HTTP's, 0 if the answer is not HTTP."""
        super().__init__(f"HTTP {status}")
        self.status = status


class RangedGet:
    """One GET: send `request`, feed `take_head` until the head is complete, then receive into `missing`."""

    __slots__ = ("_begin", "_etag", "_received", "_start", "_stays_open", "_view", "done", "request")

    def __init__(self, origin: HttpOrigin, target: str, start: int, view: memoryview, etag: str) -> None:
        """Fill `view`, which is not empty, with bytes of the object's version `etag` from `start` on."""
        self.request = _request(origin, target, start, len(view))
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
        ConnectionError when the server closed the connection.
        """
        _require(len(piece))
        self._received += piece
        received = self._received
        if not received.startswith(_HTTP_1[: len(received)]):
            raise AnsweredOtherwise
        # RFC 9110, section 15.2: any number of informational answers may come before the final one.
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
        """Count bytes received into `missing`. Raises ConnectionError when the server closed the connection."""
        _require(count)
        self.done += count

    def _begin_body(self, head: _Head, body: bytes) -> None:
        if not head.is_range(self._start, len(self._view), self._etag) or len(body) > len(self._view):
            raise AnsweredOtherwise(head.status)
        self._stays_open = head.stays_open
        self._view[: len(body)] = body
        self.done = len(body)


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
            # RFC 9110, sections 14.4 and 15.3.7.1: one range, named in Content-Range with both of its ends.
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
        # RFC 9110, section 5.3: fields of one name are one list.
        earlier = self._fields.get(name)
        self._fields[name] = value if earlier is None else earlier + b", " + value

    def on_headers_complete(self) -> None:
        """Note the end of the head; a callback of the parser."""
        self._complete = True


@lru_cache
def origin_of(text: str) -> HttpOrigin:
    """Return the server for scheme, host and port of a URL."""
    parts = urlsplit(text)
    assert parts.hostname is not None
    return HttpOrigin(parts.scheme, parts.hostname, parts.port or _DEFAULT_PORTS[parts.scheme])


def _request(origin: HttpOrigin, target: str, start: int, length_bytes: int) -> bytes:
    """Return the request for these bytes. No header can be injected: a signed target is percent-encoded."""
    return (
        # RFC 9110: both ends of a range count (14.1.2), "identity" asks for the bytes as they are stored (12.5.3), and
        # a connection stays open without being asked to (RFC 9112, section 9.3).
        f"GET {target} HTTP/1.1\r\nHost: {origin.header}\r\nUser-Agent: {_AGENT}\r\n"
        f"Accept-Encoding: identity\r\nRange: bytes={start}-{start + length_bytes - 1}\r\n\r\n"
    ).encode("ascii")


def _require(count: int) -> None:
    if not count:
        raise ConnectionError("the server closed the connection")
