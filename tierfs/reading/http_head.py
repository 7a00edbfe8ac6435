"""The head of an HTTP answer, parsed by httptools, which is llhttp: in Python it takes ten times as long."""

from __future__ import annotations

from http import HTTPStatus

import httptools

HEAD_END = b"\r\n\r\n"


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

    def get(self, name: bytes) -> bytes:
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
