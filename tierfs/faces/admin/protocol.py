"""BoundedProtocol: uvicorn's connection, with a limit for everything that a stranger can make it hold or wait for.

The size of a request's head, the requests that wait, and the times of heads, bodies and answers are bounded here,
before an application sees anything. uvicorn with httptools has none of these limits.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import Callable
from typing import Any, cast

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tierfs.base.options.config import AdminSettings
from tierfs.base.words.types import MIB

# Line and headers of a request, as Node.js and nginx have them by default.
HEAD_BYTES = 16 * 1024

# What each header counts besides its bytes, as in HTTP/2 (RFC 9113, section 6.5.2): its objects take more than these.
_HEADER_BYTES = 32

_TOO_LARGE = "431 Request Header Fields Too Large"
_TOO_LARGE_WHY = f"the head of the request is longer than {HEAD_BYTES} bytes"

_VERSIONS = ("1.1", "1.0")

# Requests of one connection that wait for the answer to an earlier one. Few clients send any; each takes some KiB.
MOST_WAITING = 16

# Between two requests of one connection (as nginx).
_KEEP_ALIVE_S = 75

# Bytes that are rather copied than sent apart: each sending wakes a client up.
_SMALL_BYTES = 4096

# Bytes that a client may still send before it looks for its answer: most appends are shorter.
_LINGER_BYTES = MIB // 4

# struct ucred of unix(7): process, user, group.
_CREDENTIALS = struct.Struct("3i")


class _Transport:
    """A transport that the protocol closes, and that sends the head of an answer together with a small body."""

    def __init__(
        self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop, close: Callable[[], None]
    ) -> None:
        self.transport = transport
        self._loop = loop
        self._held = b""
        self.close = close

    def write(self, data: bytes) -> None:
        """Send bytes; a few of them wait for those that may follow at once."""
        is_small = len(data) < _SMALL_BYTES
        if is_small and not self._held:
            self._held = data
            self._loop.call_soon(self.flush)
            return
        if is_small:
            data, self._held = self._held + data, b""
        self.flush()
        self.transport.write(data)

    def flush(self) -> None:
        """Send what waits."""
        if self._held:
            self.transport.write(self._held)
            self._held = b""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.transport, name)


class BoundedProtocol(HttpToolsProtocol):
    """One connection. A subclass of one listener has its settings."""

    settings: AdminSettings
    peers_uid: int | None = None
    """Of a Unix socket: the user whose processes may connect, besides root."""

    _timer: asyncio.TimerHandle | None = None
    _deadline_s: float | None = None
    """Time of the loop."""
    _head_bytes = 0
    _headers_bytes = 0
    _in_head = True
    _in_message = False
    _refused = False
    """Whether nothing that arrives is looked at any more."""
    _ends = False
    """Whether the client sends no more."""
    _unread_bytes = 0
    _body_left = 0
    """Bytes of a body that the parser leaves to us: its request offers to switch to another protocol."""
    _answer_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take the connection, or close it at once."""
        self.lost = asyncio.Event()
        if not self._is_peer(transport):
            self._refused = True
            transport.abort()
            return
        self._wire = _Transport(transport, self.loop, self._close)
        super().connection_made(cast(asyncio.Transport, self._wire))
        self._expect(self.settings.head_s)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget it."""
        self.lost.set()
        if self.transport is not None:
            super().connection_lost(exc)
        self._refused = True
        for timer in (self._timer, self._answer_timer):
            if timer is not None:
                timer.cancel()
        self._let_go()

    def _let_go(self) -> None:
        """Break the circles of references: what a stranger sent would stay until the garbage collector comes by."""
        # It counts containers, and 256 KiB of short headers are 4 MiB in a few: 180 connections held 260 MiB.
        self.cycle, self.scope, self.headers = cast(Any, None), cast(Any, {}), []
        if self.transport is not None:
            self._wire.close = self._wire.transport.close

    def data_received(self, data: bytes) -> None:
        """Parse what arrived, while it may be a request."""
        if self._refused:
            self._unread_bytes += len(data)
            if self._unread_bytes > _LINGER_BYTES:
                self._abort()
            return
        if self._in_head:
            self._head_bytes += len(data)
        while data and not self._refused:
            data = self._take_body(data) if self._body_left else self._parse(data)
        if self._in_head and self._head_bytes > HEAD_BYTES:
            self._refuse(_TOO_LARGE, _TOO_LARGE_WHY)

    def _parse(self, data: bytes) -> bytes:
        """Parse requests; return what follows the head of one that offers to switch to another protocol."""
        # No offer is accepted (RFC 9110, section 7.8). curl --http2 and Java's HttpClient offer h2c with each request.
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as exc:
            return data[exc.args[0] :]
        except httptools.HttpParserError:
            self._refuse("400 Bad Request", "this is not an HTTP request")
        return b""

    def _take_body(self, data: bytes) -> bytes:
        """Take a part of a body that the parser left to us; return what follows it."""
        part = data[: self._body_left]
        self.on_body(part)
        self._body_left -= len(part)
        if not self._body_left:
            self.on_message_complete()
        return data[len(part) :]

    def eof_received(self) -> bool:  # type: ignore[override]
        """Return whether a client that sends no more still waits for an answer, as `nc -N` does."""
        # One that is gone looks the same until it is written to. TLS ends both directions at once.
        self._ends = True
        return not (self._refused or self._in_message or self._is_answered) and self._wire.can_write_eof()

    def on_message_begin(self) -> None:
        """Begin a request: its head has so long to arrive."""
        super().on_message_begin()
        self._in_head = self._in_message = True
        self._headers_bytes = 0
        if not self._refused:
            self._expect(self.settings.head_s)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header, unless the head that arrived at once is too large."""
        self._headers_bytes += len(name) + len(value) + _HEADER_BYTES
        if self._may_go_on():
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Begin to answer."""
        self._in_head, self._head_bytes = False, 0
        self._require_framed()
        if not self._may_go_on():
            return
        if len(self.pipeline) >= MOST_WAITING:
            self._abort()
            return
        self._expect(self.settings.body_s)
        self.scope["state"]["target"] = self.url
        super().on_headers_complete()

    def _require_framed(self) -> None:
        """Refuse a request of another version, and one whose body nobody can find the end of."""
        length, codings, offers = 0, [], self.parser.should_upgrade()
        for name, value in self.headers:
            if name == b"transfer-encoding":
                codings.append(value.strip().lower())
            elif name == b"content-length" and offers:
                length = int(value)  # the parser has seen that it is one number
        if self.parser.get_http_version() not in _VERSIONS:
            self._refuse("505 HTTP Version Not Supported", "this server supports only HTTP/1.0 and HTTP/1.1")
        elif codings and (codings != [b"chunked"] or offers):
            self._refuse("501 Not Implemented", "Transfer-Encoding: only chunked is supported, and not with Upgrade")
        else:
            self._body_left = length

    def on_body(self, body: bytes) -> None:
        """Take a part of the body; the next one has so long to arrive."""
        if not self._refused:
            self._expect(self.settings.body_s)
            super().on_body(body)

    def on_message_complete(self) -> None:
        """Let the answer take its time."""
        if self._body_left:  # the parser ends a request that offers another protocol with its head
            return
        self._in_head, self._in_message = True, False
        if not self._refused:
            self._expect(_KEEP_ALIVE_S if self._is_answered else None)
            super().on_message_complete()

    def on_response_complete(self) -> None:
        """Go on with the next request, or wait for it."""
        if self._refused:
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
        elif self._ends:
            self.transport.close()
        elif not self._in_message:
            self._expect(_KEEP_ALIVE_S)  # uvicorn has a timer for it, which each request cancels, and each empty line

    def pause_writing(self) -> None:
        """Hold an answer that is not taken, as long as some of it is now and then."""
        super().pause_writing()
        self._look_at_answer(None)

    def resume_writing(self) -> None:
        """Go on with it."""
        super().resume_writing()
        if self._answer_timer is not None:
            self._answer_timer.cancel()

    def _look_at_answer(self, before: int | None) -> None:
        left = self.transport.get_write_buffer_size()
        if left == before:
            self._abort()
        else:
            self._answer_timer = self.loop.call_later(self.settings.body_s, self._look_at_answer, left)

    def _may_go_on(self) -> bool:
        if not self._refused and len(self.url) + self._headers_bytes > HEAD_BYTES:
            self._refuse(_TOO_LARGE, _TOO_LARGE_WHY)
        return not self._refused

    @property
    def _is_answered(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _refuse(self, status: str, why: str) -> None:
        """End the connection with an answer, or without one where it would seem to be the answer to another request."""
        if self._refused:
            return
        if not self._is_answered:
            self._abort()
            return
        self._refused = True
        body = json.dumps({"error": "InvalidRequest", "message": why, "remedy": None})
        head = f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\nconnection: close\r\n"
        self.transport.write(f"{head}content-length: {len(body)}\r\n\r\n{body}".encode())
        self.transport.close()

    def _close(self) -> None:
        """End the connection, once a client that is in the middle of a request has the answer.

        Closed at once it would be reset by what the client still sends, and the answer lost (RFC 9112, section 9.6).
        """
        self._refused = True
        self.flow.resume_reading()
        self._wire.flush()
        if not self._in_message:
            self._wire.transport.close()
        elif self._wire.can_write_eof():
            self._wire.write_eof()
        self._expect(self.settings.body_s)

    def _expect(self, within_s: float | None) -> None:
        """Close the connection unless this is called again in time; None: whenever it is."""
        # Each request changes the deadline four times: a timer for each would cost as much as parsing it.
        self._deadline_s = None if within_s is None else self.loop.time() + within_s
        if self._deadline_s is not None and (self._timer is None or self._timer.when() > self._deadline_s):
            self._wait_until(self._deadline_s)

    def _wait_until(self, at_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.loop.call_at(at_s, self._look)

    def _look(self) -> None:
        """Close the connection if it is late."""
        self._timer = None
        if self._deadline_s is None:
            return
        if self._deadline_s > self.loop.time():
            self._wait_until(self._deadline_s)
        elif self.flow.read_paused or self.flow.write_paused:
            self._expect(self.settings.body_s)  # it is we who do not take the body yet, or an answer, with its own time
        else:
            self._abort()

    def _abort(self) -> None:
        self._refused = True
        self.transport.abort()

    def _is_peer(self, transport: Any) -> bool:
        """Return whether the process at the other end may ask, by the kernel's word (SO_PEERCRED)."""
        if self.peers_uid is None:
            return True
        sock = transport.get_extra_info("socket")
        credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        _, uid, _ = _CREDENTIALS.unpack(credentials)
        return uid in (self.peers_uid, 0)
