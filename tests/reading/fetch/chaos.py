"""Cold tiers that fail, damage, hold back and answer badly at random, and a pool that notices misuse of its memory."""

from __future__ import annotations

import random
import re
import socket
import ssl
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tierfs.base.words.errors import TierfsError, Unavailable
from tierfs.base.words.types import CRC_BLOCK_BYTES
from tierfs.engine.chunkstore.http.tls import TlsClient
from tierfs.engine.chunkstore.memory import MemoryStorage
from tierfs.engine.chunkstore.protocol import ChunkStorage, RangeUrl
from tierfs.reading.fetch.buffers import BufferPool, PooledBuffer

_POISON = 0xA5
_RELEASE_S = 10.0
"""A read that is held back for so long was forgotten by the test."""


@dataclass(frozen=True, slots=True)
class Odds:
    """Probabilities of the failures of a read of the cold tier; 0 to 1 each."""

    fails: float = 0.0
    fails_halfway: float = 0.0
    damages: float = 0.0
    held_back: float = 0.0

    @property
    def harmless(self) -> bool:
        """Whether every read gets its bytes."""
        return self.fails == self.fails_halfway == self.damages == 0


class ChaoticStorage(MemoryStorage):
    """Bytes arrive block by block, so that readers see parts of what is fetched."""

    def __init__(self, chosen: random.Random) -> None:
        super().__init__()
        self._chosen = chosen
        self._held_back: deque[threading.Event] = deque()
        self.odds = Odds()
        self.reads = 0
        self.origin: str | None = None
        self.tls: TlsClient | None = None
        """Of the server that has the objects too, if one has."""

    def read_into(self, name: str, offset: int, buffer: memoryview, **more: Any) -> None:
        if (progress := more.pop("progress", None)) is None:
            super().read_into(name, offset, buffer, **more)
            return
        self.reads += 1
        chosen, odds = self._chosen, self.odds
        self._perhaps_wait()
        if chosen.random() < odds.fails:
            raise Unavailable("down for a moment")
        fails_at = chosen.randrange(len(buffer)) if chosen.random() < odds.fails_halfway else None
        damaged_at = chosen.randrange(len(buffer)) if chosen.random() < odds.damages else None
        for start in range(0, len(buffer), CRC_BLOCK_BYTES):
            part = buffer[start : start + CRC_BLOCK_BYTES]
            super().read_into(name, offset + start, part, **more)
            if damaged_at is not None and start <= damaged_at < start + len(part):
                part[damaged_at - start] ^= 1
            if fails_at is not None and fails_at < start + len(part):
                raise Unavailable("broke off")
            progress(start + len(part))
            self._perhaps_wait()

    def range_url(self, name: str) -> RangeUrl | None:
        served = self.origin is not None and name.startswith("segments/")
        return RangeUrl(self.origin or "", f"/{name}", self.tls) if served else None

    def release_one(self) -> None:
        """Let the read go on that was held back first, if any is."""
        if self._held_back:
            self._held_back.popleft().set()

    def _perhaps_wait(self) -> None:
        if self._chosen.random() < self.odds.held_back:
            event = threading.Event()
            self._held_back.append(event)
            assert event.wait(_RELEASE_S), "held back for ever"


class CheckedPool(BufferPool):
    """Fails when the budget is exceeded, a buffer comes back twice, or one is written to while it is idle."""

    def __init__(self, budget_bytes: int) -> None:
        super().__init__(budget_bytes)
        self.out: set[int] = set()

    def take(self, length_bytes: int) -> PooledBuffer | None:
        buffer = super().take(length_bytes)
        assert self.used_bytes <= self.budget_bytes
        assert self.used_bytes + self._idle_bytes <= self.budget_bytes
        if buffer is not None:
            assert id(buffer) not in self.out
            self.out.add(id(buffer))
            assert buffer.view in (_poison(buffer.class_bytes), bytes(buffer.class_bytes)), "written to while idle"
        return buffer

    def give_back(self, buffer: PooledBuffer) -> None:
        assert id(buffer) in self.out, "given back twice"
        self.out.remove(id(buffer))
        buffer.view[:] = _poison(buffer.class_bytes)
        super().give_back(buffer)


_poisons: dict[int, bytes] = {}


def _poison(length_bytes: int) -> bytes:
    if length_bytes not in _poisons:
        _poisons[length_bytes] = bytes([_POISON]) * length_bytes
    return _poisons[length_bytes]


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
