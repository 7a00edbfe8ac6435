"""A ranged GET over plain HTTP as bytes: the request, and the head of an answer. No I/O.

Heads are parsed by httptools, which is llhttp: in Python it takes ten times as long.
"""

from __future__ import annotations

from http import HTTPStatus
from urllib.parse import urlsplit

import httptools

HEAD_END = b"\r\n\r\n"

MAX_HEAD_BYTES = 16 * 1024
"""The longest head of an answer, with all that is said before it."""

_HTTP_PORT = 80
_HTTP_1 = b"HTTP/1."
_AGENT = "tierfs"

Host = tuple[str, int]
"""Name and port."""


class HttpHead:
    """Status and header fields of one answer."""

    def __init__(self, data: bytes) -> None:
        """`data` ends with the blank line. Raises httptools.HttpParserError for anything that is not one whole head."""
        self._fields: dict[bytes, bytes] = {}
        self._complete = False
        parser = httptools.HttpResponseParser(self)
        try:
            parser.feed_data(data)
        except httptools.HttpParserUpgrade as exc:
            raise httptools.HttpParserError("another protocol") from exc
        if not self._complete:
            raise httptools.HttpParserError("a head without an end")
        self.status: int = parser.get_status_code()
        self.stays_open: bool = parser.should_keep_alive()
        """Whether the server awaits another request on this connection."""

    @property
    def informational(self) -> bool:
        """Whether the answer itself is still to come."""
        return self.status < HTTPStatus.OK

    def is_range(self, start: int, length_bytes: int, etag: str) -> bool:
        """Whether what follows is exactly these bytes, of the right version, as they are.

        That there is no Transfer-Encoding beside the length, the parser has seen to.
        """
        return (
            self.status == HTTPStatus.PARTIAL_CONTENT
            and self._get(b"content-range").startswith(b"bytes %d-%d/" % (start, start + length_bytes - 1))
            and self._get(b"content-length") == b"%d" % length_bytes
            and self._get(b"etag").strip(b'"') == etag.encode()
        )

    def _get(self, name: bytes) -> bytes:
        """A field by its name in small letters, empty when it is missing; what is said twice is joined by a comma."""
        return self._fields.get(name, b"")

    def on_header(self, name: bytes, value: bytes) -> None:
        """For the parser."""
        name, value = name.lower(), value.strip()
        said = self._fields.get(name)
        self._fields[name] = value if said is None else said + b", " + value

    def on_headers_complete(self) -> None:
        """For the parser."""
        self._complete = True


class HeadBuffer:
    """Bytes of a connection until the head of the answer is whole."""

    def __init__(self) -> None:
        self._received = b""
        self._begin = 0

    def add(self, piece: bytes) -> tuple[HttpHead, bytes] | None:
        """The head of the answer, and what came behind it; None while it has no end.

        Informational answers are passed over. Raises httptools.HttpParserError for what is none, or too long.
        """
        self._received += piece
        received = self._received
        if not received.startswith(_HTTP_1[: len(received)]):
            raise httptools.HttpParserError("not HTTP")
        while (end := received.find(HEAD_END, self._begin) + len(HEAD_END)) >= len(HEAD_END):
            head = HttpHead(received[self._begin : end])
            if not head.informational:
                return head, received[end:]
            self._begin = end
        if len(received) >= MAX_HEAD_BYTES:
            raise httptools.HttpParserError("a head without an end")
        return None


def host_of(origin: str) -> Host:
    """Whom to connect to, for scheme, host and port of a URL."""
    parts = urlsplit(origin)
    assert parts.hostname is not None
    return parts.hostname, parts.port or _HTTP_PORT


def range_request(host: Host, target: str, start: int, length_bytes: int) -> bytes:
    """The request for these bytes; nothing of it can break out of its line: a signed target is percent-encoded."""
    return (
        f"GET {target} HTTP/1.1\r\nHost: {_host_header(host)}\r\nUser-Agent: {_AGENT}\r\n"
        f"Accept-Encoding: identity\r\nRange: bytes={start}-{start + length_bytes - 1}\r\n\r\n"
    ).encode("ascii")


def _host_header(host: Host) -> str:
    """As it was signed: without the port that need not be said."""
    name, port = host
    if ":" in name:
        name = f"[{name}]"
    return name if port == _HTTP_PORT else f"{name}:{port}"
