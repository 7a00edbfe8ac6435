"""A store that `tierfs admin` serves, and clients of its socket."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from starlette.types import ASGIApp

from tests.commands import tierfs
from tests.mount.waiting import eventually
from tierfs.app.setup.create import init_store
from tierfs.base.options.config import AdminSettings
from tierfs.base.system.store_paths import StorePaths
from tierfs.engine.chunkstore.place import Place
from tierfs.faces.admin import client, listen
from tierfs.faces.admin.guard import Admission
from tierfs.upkeep.holder import lock

TIMEOUT_S = 30


def dialled(path: Path) -> socket.socket:
    """A connection to a Unix socket, however long its path is."""
    sock = socket.socket(socket.AF_UNIX)
    sock.settimeout(TIMEOUT_S)
    try:
        client._connect(sock, path)
    except OSError:
        sock.close()
        raise
    return sock


class UnixConnection(http.client.HTTPConnection):
    """A connection of http.client to a Unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("tierfs", timeout=TIMEOUT_S)
        self._path = path

    def connect(self) -> None:
        self.sock = dialled(self._path)


@dataclass
class Got:
    """An answer."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Served:
    """A store with its server, for as long as the test."""

    path: Path
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def socket(self) -> Path:
        return StorePaths(self.path).admin_socket

    @property
    def pid(self) -> int:
        server = lock.current(StorePaths(self.path).admin)
        assert server is not None
        return server.pid

    def connection(self) -> UnixConnection:
        return UnixConnection(self.socket)

    def ask(self, method: str, target: str, body: bytes | None = None, **headers: str) -> Got:
        """One request on a connection of its own; `_` in the name of a header is `-`."""
        with closing(self.connection()) as connection:
            return ask(connection, method, target, body, **headers)

    def stop(self, number: int = signal.SIGTERM) -> None:
        server = lock.current(StorePaths(self.path).admin)
        if server is not None:
            os.kill(server.pid, number)
            assert eventually(lambda: lock.current(StorePaths(self.path).admin) is None)


def ask(
    connection: http.client.HTTPConnection, method: str, target: str, body: bytes | None = None, **headers: str
) -> Got:
    """One request of a connection that is kept."""
    connection.request(method, target, body, {name.replace("_", "-"): value for name, value in headers.items()})
    with connection.getresponse() as answer:
        return Got(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())


@contextmanager
def listening(path: Path, app: ASGIApp, settings: AdminSettings) -> Iterator[None]:
    """An application behind the server's own sockets and protocol, in a thread of this process."""
    serves, ended = Event(), asyncio.Event()

    async def run() -> None:
        async with listen._Serving(app, settings) as server:
            await server.listen(sock, Admission())
            loops.append(asyncio.get_running_loop())
            serves.set()
            await ended.wait()

    loops: list[asyncio.AbstractEventLoop] = []
    with listen._unix_socket(path) as sock, ThreadPoolExecutor(1) as pool:
        done = pool.submit(asyncio.run, run())
        assert serves.wait(TIMEOUT_S)
        try:
            yield
        finally:
            loops[0].call_soon_threadsafe(ended.set)
            done.result(TIMEOUT_S)


@contextmanager
def serving(path: Path, others: str = "", **settings: object) -> Iterator[Served]:
    """Serve a store with some settings of `admin`, and others as they are written in store.toml."""
    lines = [f"{key} = {json.dumps(value)}" for key, value in settings.items()]
    (path / "store.toml").write_text("\n".join(["[admin]", *lines, others, ""]))
    tierfs("admin", store=path)
    served = Served(path)
    try:
        yield served
    finally:
        served.stop()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "cold").mkdir()
    init_store(tmp_path / "store", Place.in_directory(tmp_path / "cold"))
    return tmp_path / "store"


@pytest.fixture
def served(path: Path) -> Iterator[Served]:
    with serving(path, writer_idle_s="200ms") as served:
        yield served


@pytest.fixture
def port() -> Iterator[int]:
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        number = free.getsockname()[1]
    return number


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    words = "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost"
    files = ["-keyout", tmp_path / "key.pem", "-out", tmp_path / "cert.pem"]
    subprocess.run(["openssl", *words.split(), *files], check=True, capture_output=True)
    return tmp_path / "cert.pem"
