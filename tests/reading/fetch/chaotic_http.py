"""An HTTP server for ranges of the objects of a ChunkStorage, which at times answers badly in every known way."""

from __future__ import annotations

import random
import re
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tierfs.chunkstore.protocol import ChunkStorage
from tierfs.errors import TierfsError


class RangeServer(ThreadingHTTPServer):
    """Serves until it is closed; `bad` is the share of answers that are not what was asked for."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, storage: ChunkStorage, chosen: random.Random, serving: ssl.SSLContext | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self._serving = serving
        self.storage = storage
        self.chosen = chosen
        self.bad = 0.0
        self.answers = 0
        self.connections = 0

    @property
    def origin(self) -> str:
        """Scheme, host and port."""
        return f"{'http' if self._serving is None else 'https'}://127.0.0.1:{self.server_port}"

    def get_request(self) -> tuple[socket.socket, object]:
        """Accept a connection; its own thread shakes hands."""
        connection, address = super().get_request()
        if self._serving is not None:
            connection = self._serving.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
        return connection, address

    def process_request(self, request: socket.socket | tuple[bytes, socket.socket], client_address: object) -> None:
        """Count a connection."""
        self.connections += 1
        super().process_request(request, client_address)

    def handle_error(self, request: object, client_address: object) -> None:
        """A reader that goes away in the middle is no error."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: RangeServer

    def do_GET(self) -> None:
        """One range of one object."""
        chosen = self.server.chosen
        self.server.answers += 1
        how = chosen.choice(_BAD) if chosen.random() < self.server.bad else "well"
        found = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers["Range"])
        assert found is not None
        start, end = int(found[1]), int(found[2]) + 1
        body = bytearray(end - start)
        try:
            held = self.server.storage.stat(self.path[1:])
            self.server.storage.read_into(held.name, start, memoryview(body))
        except TierfsError:
            how = "missing"
        if how in ("silent", "garbage"):
            self.close_connection = True
            self.wfile.write(b"garbage\r\n\r\n" if how == "garbage" else b"")
            return
        if how in ("failing", "missing"):
            self.send_response(503 if how == "failing" else 404)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        if how == "damaged":
            body[chosen.randrange(len(body))] ^= 1
        self.send_response(206)
        self.send_header("ETag", '"another"' if how == "another version" else f'"{held.etag}"')
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Range", f"bytes {start}-{end - 1}/{held.length_bytes}")
        if how == "last":
            self.send_header("Connection", "close")
            self.close_connection = True
        self.end_headers()
        self.wfile.write(body[: len(body) // 2] if how == "short" else body)
        self.close_connection = self.close_connection or how in ("short", "rests no longer")

    def log_message(self, format: str, *args: object) -> None:
        """Nobody reads it."""


_BAD = ("silent", "garbage", "failing", "damaged", "another version", "last", "short", "rests no longer")


@contextmanager
def serving(
    storage: ChunkStorage, chosen: random.Random, encrypted: ssl.SSLContext | None = None
) -> Iterator[RangeServer]:
    """A server in a thread of its own."""
    with RangeServer(storage, chosen, encrypted) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
