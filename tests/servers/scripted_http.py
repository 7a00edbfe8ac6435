"""An HTTP server that answers what a test tells it to, byte for byte, and hangs up when told to.

It runs on the test's own trio loop: each piece is sent when the client has taken the one before, so that what
arrives together is the test's choice, and a mock clock jumps only while nobody has anything to say.
"""

from __future__ import annotations

import ssl
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from pathlib import Path

import trio
from trio.testing import wait_all_tasks_blocked

from tierfs.engine.chunkstore.http.tls import TlsClient
from tierfs.engine.chunkstore.protocol import RangeUrl

ETAG = "0a1b2c3d"
TARGET = "/bucket/object?signature=secret"
_RECEIVE_BYTES = 64 * 1024
_HEAD_END = b"\r\n\r\n"


class Do(Enum):
    """Steps of a script other than sending."""

    AWAIT_REQUEST = auto()
    AWAIT_CLOSE = auto()
    """Say nothing more until the client closes."""
    AWAIT_GO = auto()
    """Go on when the test sets `go`."""
    TELL = auto()
    """Set `told`."""


Stream = trio.SocketStream | trio.SSLStream[trio.SocketStream]


@dataclass(frozen=True)
class ServerTls:
    """Both sides of TLS: the server's, and one of clients that trust it."""

    serving: ssl.SSLContext
    trusting: TlsClient
    authority: Path | None = None
    """The certificate that others trust it by."""

    def wrap(self, plain: trio.SocketStream) -> Stream:
        """The server's end of a connection, encrypted."""
        return trio.SSLStream(plain, self.serving, server_side=True, https_compatible=True)


Step = bytes | Do
Script = tuple[Step, ...]
Serve = Callable[..., Awaitable["ScriptedHttp"]]
"""Starts one: takes the nursery, then the scripts."""


class ScriptedHttp:
    """Its first connection follows the first script, and so on; each is closed at its script's end."""

    def __init__(self, scripts: tuple[Script, ...], tls: ServerTls | None = None) -> None:
        self._scripts = deque(scripts)
        self._tls = tls
        self.requests: list[tuple[int, bytes]] = []
        """The number of the connection, from 0 on, and the head."""
        self.resumed: list[bool] = []
        """Of each request over TLS: whether its connection resumed an earlier one's session."""
        self.closed: dict[int, trio.Event] = {}
        """Per connection: set when the client was seen to close it."""
        self.ended: dict[int, trio.Event] = {}
        """Per connection: set when its script is at its end and the server has closed it."""
        self.go, self.told = trio.Event(), trio.Event()
        self.url = RangeUrl("", TARGET)
        self._connections = 0

    @property
    def served_by(self) -> list[int]:
        """The connection of each request."""
        return [number for number, _ in self.requests]

    async def start(self, nursery: trio.Nursery) -> ScriptedHttp:
        """Listen on a free port of the loopback address."""
        serve = partial(trio.serve_tcp, self._serve, 0, host="127.0.0.1")
        (listener,) = await nursery.start(serve)
        host, port = listener.socket.getsockname()
        scheme, trusting = ("http", None) if self._tls is None else ("https", self._tls.trusting)
        self.url = RangeUrl(f"{scheme}://{host}:{port}", TARGET, trusting)
        return self

    async def _serve(self, plain: trio.SocketStream) -> None:
        stream = plain if self._tls is None else self._tls.wrap(plain)
        number, self._connections = self._connections, self._connections + 1
        self.closed[number], self.ended[number] = trio.Event(), trio.Event()
        assert self._scripts, "a connection more than there are scripts"
        try:
            for step in self._scripts.popleft():
                await self._do(step, stream, number)
        except trio.BrokenResourceError:
            self.closed[number].set()  # the client left without hearing the rest
        await stream.aclose()
        self.ended[number].set()

    async def _do(self, step: Step, stream: Stream, number: int) -> None:
        if step is Do.AWAIT_REQUEST:
            await self._take_request(stream, number)
        elif step is Do.AWAIT_CLOSE:
            while await stream.receive_some(_RECEIVE_BYTES):
                pass
            self.closed[number].set()
        elif step is Do.AWAIT_GO:
            await self.go.wait()
        elif step is Do.TELL:
            self.told.set()
        else:
            assert isinstance(step, bytes)
            await stream.send_all(step)
            await wait_all_tasks_blocked()

    async def _take_request(self, stream: Stream, number: int) -> None:
        head = b""
        while not head.endswith(_HEAD_END):
            received = await stream.receive_some(_RECEIVE_BYTES)
            if not received:
                self.closed[number].set()
                return
            head += received
        self.requests.append((number, head))
        if isinstance(stream, trio.SSLStream):
            self.resumed.append(stream.session_reused)


def head(start: int, length: int, *more: str, status: str = "206 Partial Content", **changed: str | None) -> bytes:
    """The head of an answer; `changed` replaces headers (`_` for `-`) or, with None, leaves them out."""
    headers = {
        "content_range": f"bytes {start}-{start + length - 1}/1000000",
        "content_length": str(length),
        "etag": f'"{ETAG}"',
        **changed,
    }
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in headers.items() if value is not None]
    return "\r\n".join([f"HTTP/1.1 {status}", *lines, *more]).encode() + _HEAD_END
