"""Bodies: the bodies of requests in memory, decoded, with a bound for each and for all together."""

from __future__ import annotations

import asyncio
import zlib

from starlette.requests import Request

from tierfs.base.words import units
from tierfs.base.words.errors import InvalidRequest, Unavailable
from tierfs.faces.admin.answers import Refused

# RFC 9110, section 8.4.1.3: the two names are the same coding.
_GZIP = ("gzip", "x-gzip")
_ACCEPTED = {"accept-encoding": "gzip"}

# Bytes that one byte of deflate can stand for (zlib's technical notes).
_MOST_FROM_A_BYTE = 1032

# zlib's window of 32 KiB, with the frame of gzip.
_GZIP_BITS = 16 + zlib.MAX_WBITS

_CONTENT_TOO_LARGE, _UNSUPPORTED_MEDIA_TYPE = 413, 415


class Bodies:
    """Memory for the bodies of requests, shared by all of them."""

    def __init__(self, most_bytes: int, most_of_one: int) -> None:
        """`most_of_one` bounds a body as it is sent and as it is decoded."""
        self._free = max(most_bytes, most_of_one)
        self._most_of_one = most_of_one
        self._freed = asyncio.Event()

    async def read(self, request: Request, most_bytes: int | None = None) -> bytearray:
        """Return the body, decoded, once there is room; `free` it with its length. The time is the protocol's.

        Raises InvalidRequest for one without a length, that is too long, or that has an unknown coding, before any of
        it is taken; for one that is too long once it is decoded; and for one that cannot be decoded. Raises Unavailable
        where the client leaves.
        """
        most = self._most_of_one if most_bytes is None else most_bytes
        is_coded = _is_gzip(request)
        size = _size_of(request, most, needs_length=most_bytes is None)
        # All of the room at once: of two that each had a part, both could wait for the rest.
        room = min(most, size * _MOST_FROM_A_BYTE) if is_coded else size
        while self._free < room:
            self._freed.clear()
            await self._freed.wait()
        self._free -= room
        try:
            body = await (_decoded(request, size, most) if is_coded else _received(request, size))
        except BaseException:
            self.free(room)
            raise
        if len(body) < room:
            self.free(room - len(body))
        return body

    def free(self, size_bytes: int) -> None:
        """Give the room of a body back."""
        self._free += size_bytes
        self._freed.set()


def _is_gzip(request: Request) -> bool:
    """Return whether the body is coded. Raises Refused for a coding that is not known here, and for several."""
    codings = [part.strip().lower() for line in request.headers.getlist("content-encoding") for part in line.split(",")]
    codings = [coding for coding in codings if coding not in ("", "identity")]
    if not codings:
        return False
    if len(codings) > 1 or codings[0] not in _GZIP:
        raise Refused(
            _UNSUPPORTED_MEDIA_TYPE,
            f"unsupported Content-Encoding: {', '.join(codings)}",
            remedy="send the bytes unencoded, or with gzip",
            headers=_ACCEPTED,
        )
    return True


def _size_of(request: Request, most: int, *, needs_length: bool) -> int:
    length = request.headers.get("content-length")
    if "transfer-encoding" in request.headers or length is None:
        if needs_length:
            raise InvalidRequest("an append needs a Content-Length", remedy="send the length of the body")
        return 0
    size = units.decimal(length, most)
    if size is None:
        raise _too_long(most)
    return size


async def _received(request: Request, size: int) -> bytearray:
    """Return the body as it is sent."""
    body, more = bytearray(), True
    while more:
        part, more = await _part(request)
        body += part
        if len(body) > size:
            raise InvalidRequest("the body is longer than its Content-Length")
    return body


async def _decoded(request: Request, size: int, most: int) -> bytearray:
    """Return a body in gzip, decoded as it arrives."""
    body, taken, more = _Gunzipped(most), 0, True
    while more:
        part, more = await _part(request)
        taken += len(part)
        if taken > size:
            raise InvalidRequest("the body is longer than its Content-Length")
        await asyncio.to_thread(body.add, part)
    return body.whole()


async def _part(request: Request) -> tuple[bytes, bool]:
    """Return the next bytes, and whether more follow."""
    # As Request.stream, whose generator costs as much as the parsing of a small append.
    message = await request.receive()
    if message["type"] == "http.disconnect":
        raise Unavailable("the client disconnected within the body")
    return message["body"], message["more_body"]


class _Gunzipped:
    """The bytes of a file in gzip, of one or several members (RFC 1952, section 2.2)."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._bytes = bytearray()
        self._member = zlib.decompressobj(_GZIP_BITS)

    def add(self, data: bytes) -> None:
        """Decode further bytes. Raises InvalidRequest for what is not gzip, and once there are too many."""
        while data:
            if self._member.eof:
                self._member = zlib.decompressobj(_GZIP_BITS)
            try:
                self._bytes += self._member.decompress(data, self._most - len(self._bytes) + 1)
            except zlib.error as exc:
                raise _damaged(str(exc)) from exc
            if len(self._bytes) > self._most:
                raise _too_long(self._most)
            data = self._member.unused_data

    def whole(self) -> bytearray:
        """Return all bytes. Raises InvalidRequest unless the last member is there to its end."""
        if not self._member.eof:
            raise _damaged("it is truncated")
        return self._bytes


def _damaged(why: str) -> InvalidRequest:
    return InvalidRequest(f"the body is not valid gzip: {why}", remedy="send it again; none of its bytes were appended")


def _too_long(most: int) -> Refused:
    return Refused(_CONTENT_TOO_LARGE, f"the body is longer than {most} bytes", remedy="append in several requests")
