"""A way to a server that can be cut: refused as by a host whose server restarts, or silent as a dead network."""

from __future__ import annotations

import re
import selectors
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

_PIECE_BYTES = 64 * 1024
_REQUEST = re.compile(rb"((?:GET|HEAD|PUT|POST|DELETE) \S+) HTTP/1\.1\r\n")
_RESET = b"\1\0\0\0\0\0\0\0"
"""struct linger: on, for no time: closing sends RST."""


class Gate:
    """Forwards TCP connections of one port, the same for as long as it exists."""

    def __init__(self, url: str) -> None:
        """`url`: of the server behind it. The gate is open."""
        parts = urlsplit(url)
        assert parts.hostname is not None
        assert parts.port is not None
        self._server = (parts.hostname, parts.port)
        self._port = 0
        self._listener: socket.socket | None = None
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._lock = threading.Lock()
        self._flows = threading.Event()
        self.forwarded_bytes = 0
        """To clients, so far."""
        self.requests: list[str] = []
        """Method and path of all HTTP requests so far, without TLS."""
        self.close_after_bytes: int | None = None
        """Close the gate by itself once so much was forwarded."""
        self._held_up: re.Pattern[bytes] | None = None
        self.held_up: list[str] = []
        """Requests that were kept back."""
        self.open()

    @property
    def url(self) -> str:
        """The URL for clients."""
        return f"http://127.0.0.1:{self._port}"

    def open(self) -> None:
        """Forward everything, what was silenced or held up too."""
        self._flows.set()
        self._held_up = None
        if self._listener is None:
            self._listener = socket.create_server(("127.0.0.1", self._port))
            self._port = self._listener.getsockname()[1]
            threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def close(self) -> None:
        """Break what is connected and refuse what comes."""
        listener, self._listener = self._listener, None
        if listener is not None:
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)  # wakes accept()
            listener.close()
        with self._lock:
            pairs, self._pairs = self._pairs, []
        for pair in pairs:
            for connection in pair:
                with suppress(OSError):
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                    connection.shutdown(socket.SHUT_RDWR)

    def silence(self) -> None:
        """Take connections and bytes and forward none."""
        self._held_up = None
        self._flows.clear()

    def hold_up(self, requests: str) -> None:
        """Keep each HTTP request back whose first line matches, until the gate opens, and forward all others."""
        self._held_up = re.compile(requests.encode())
        self._flows.clear()

    def _waits(self, piece: bytes, *, of_client: bool) -> None:
        """Wait until a piece may be forwarded."""
        held_up = self._held_up
        if held_up is None:
            self._flows.wait()
        elif of_client and (match := _REQUEST.match(piece)) is not None and held_up.search(match[1]):
            self.held_up.append(match[1].decode())
            self._flows.wait()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client = listener.accept()[0]
                server = socket.create_connection(self._server)
            except OSError:
                return
            with self._lock:
                self._pairs.append((client, server))
            threading.Thread(target=self._forward, args=(client, server), daemon=True).start()

    def _forward(self, client: socket.socket, server: socket.socket) -> None:
        """Both ways, until either side ends."""
        with client, server, selectors.DefaultSelector() as ready, suppress(OSError):
            ready.register(client, selectors.EVENT_READ, server)
            ready.register(server, selectors.EVENT_READ, client)
            while True:
                for key, _ in ready.select():
                    assert isinstance(key.fileobj, socket.socket)
                    piece = key.fileobj.recv(_PIECE_BYTES)
                    if not piece:
                        return
                    if key.fileobj is client:
                        self.requests += (match[1].decode() for match in _REQUEST.finditer(piece))
                    self._waits(piece, of_client=key.fileobj is client)
                    key.data.sendall(piece)
                    if key.data is client:
                        self._count(len(piece))

    def _count(self, sent: int) -> None:
        self.forwarded_bytes += sent
        if self.close_after_bytes is not None and self.forwarded_bytes >= self.close_after_bytes:
            self.close_after_bytes = None
            self.close()


@contextmanager
def gate_to(url: str) -> Iterator[Gate]:
    """A gate before the server at `url`, closed behind the block."""
    gate = Gate(url)
    try:
        yield gate
    finally:
        gate.open()
        gate.close()
