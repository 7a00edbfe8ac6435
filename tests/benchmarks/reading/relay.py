"""A TCP relay in front of the S3 server that counts what clients receive.

It counts what is delivered, which the server's own log does not tell of transfers that a client breaks off.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

_BUFFER_BYTES = 1 << 18
_HOST = "127.0.0.1"


class CountingRelay:
    """Listens on a loopback port while entered; `received_bytes` counts all answers, headers included."""

    def __init__(self, endpoint_url: str) -> None:
        parts = urlsplit(endpoint_url)
        assert parts.hostname
        assert parts.port
        self._target = (parts.hostname, parts.port)
        self._listener = socket.create_server((_HOST, 0))
        self._lock = threading.Lock()
        self._received = 0
        self.endpoint_url = f"http://{_HOST}:{self._listener.getsockname()[1]}"

    @property
    def received_bytes(self) -> int:
        """What all clients received so far."""
        with self._lock:
            return self._received

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return  # closed
            threading.Thread(target=self._relay, args=(client,), daemon=True).start()

    def _relay(self, client: socket.socket) -> None:
        """One connection, until both directions have ended."""
        with client, socket.create_connection(self._target) as server:
            for one in (client, server):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            asking = threading.Thread(target=_pump, args=(client, server, lambda _: None), daemon=True)
            asking.start()
            _pump(server, client, self._count)
            asking.join()

    def _count(self, length_bytes: int) -> None:
        with self._lock:
            self._received += length_bytes


def _pump(source: socket.socket, sink: socket.socket, count: Callable[[int], None]) -> None:
    """Move bytes until either side ends, then end both."""
    buffer = memoryview(bytearray(_BUFFER_BYTES))
    with suppress(OSError):  # a side broke off, as clients do with answers they no longer want
        while received := source.recv_into(buffer):
            count(received)  # first: what a client has is always counted
            sink.sendall(buffer[:received])
    for one in (source, sink):
        with suppress(OSError):  # the other direction ended first
            one.shutdown(socket.SHUT_RDWR)
