"""The lines that keep strangers out, in this process: a server of its own is beyond the reach of a mutation."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import struct
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any
from weakref import WeakSet

import pytest
from starlette.types import Receive, Scope, Send

from tests.faces.admin.conftest import dialled, listening
from tests.mount.waiting import eventually
from tierfs.app import store as app
from tierfs.app import verbs
from tierfs.app.connection import CONNECTIONS, StorePlace
from tierfs.app.setup.create import init_store
from tierfs.base.options.config import AdminSettings
from tierfs.base.words.errors import PermissionDenied, Unavailable
from tierfs.base.words.types import ByteRange
from tierfs.faces.admin import appends, client, listen
from tierfs.faces.admin.protocol import HEAD_BYTES, BoundedProtocol

SETTINGS = AdminSettings(connections=3, head_s=5.0)


class Peer:
    """A transport whose other end has a user, as the kernel tells it."""

    def __init__(self, uid: int) -> None:
        self._uid = uid

    def get_extra_info(self, name: str) -> Peer:
        assert name == "socket"
        return self

    def getsockopt(self, level: int, option: int, size: int) -> bytes:
        assert (level, option, size) == (socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        return struct.pack("3i", 1, self._uid, self._uid)


def test_the_socket_serves_its_owner_and_root() -> None:
    protocol = BoundedProtocol.__new__(BoundedProtocol)
    for peers_uid, uid, may in ((1000, 1000, True), (1000, 0, True), (1000, 1001, False), (0, 1000, False)):
        protocol.peers_uid = peers_uid
        assert protocol._is_peer(Peer(uid)) is may
    protocol.peers_uid = None
    assert protocol._is_peer(None), "over TCP the token tells"


def test_the_socket_is_never_open_to_others(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    (deep / "admin.sock").touch()  # left by a process that was killed
    before = os.umask(0)
    try:
        with listen._unix_socket(deep / "admin.sock"):
            assert (deep / "admin.sock").stat().st_mode & 0o777 == 0o600
        assert os.umask(0) == 0, "the process keeps its own"
    finally:
        os.umask(before)
    assert list(deep.iterdir()) == []


def test_a_token_is_made_once_and_read_only_while_it_is_secret(tmp_path: Path) -> None:
    file = tmp_path / "admin.token"
    token = listen._token(file)
    assert (len(token) > 40, file.stat().st_mode & 0o777, listen._token(file)) == (True, 0o600, token)
    for mode in (0o640, 0o604):
        file.chmod(mode)
        with pytest.raises(PermissionDenied):
            listen._token(file)


async def hello(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b""})


def talk(path: Path, *sent: bytes) -> list[bytes]:
    """What a server of `hello` answers to each of these, all connected at once."""

    with listening(path, hello, SETTINGS), ExitStack() as stack:
        socks = [stack.enter_context(closing(dialled(path))) for _ in sent]
        answers = []
        for data, sock in zip(sent, socks, strict=True):
            try:
                sock.sendall(data)
                answers.append(sock.recv(12))
            except ConnectionError:
                answers.append(b"")
        return answers


def test_a_head_beyond_the_limit_is_refused(tmp_path: Path) -> None:
    get = b"GET / HTTP/1.1\r\nHost: x\r\na: %s\r\n\r\n"
    assert talk(tmp_path / "s", get % b"b") == [b"HTTP/1.1 200"]
    assert talk(tmp_path / "s", get % (b"x" * HEAD_BYTES)) == [b"HTTP/1.1 431"]
    assert talk(tmp_path / "s", get[:-6] % () + b"x" * 20 * HEAD_BYTES) in ([b"HTTP/1.1 431"], [b""])


@pytest.mark.parametrize(
    "sent", [b"", b"GET / HTTP/1.1\r\n", b"GET / HTTP/1.1\r\n\r\n", b"POST / HTTP/1.1\r\ncontent-length: 9\r\n\r\nhalf"]
)
def test_what_was_sent_goes_without_the_garbage_collector(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, sent: bytes
) -> None:
    held: WeakSet[BoundedProtocol] = WeakSet()
    made = BoundedProtocol.connection_made

    def hold(protocol: BoundedProtocol, wire: asyncio.Transport) -> None:
        held.add(protocol)
        made(protocol, wire)

    monkeypatch.setattr(BoundedProtocol, "connection_made", hold)
    gc.collect()
    gc.disable()
    try:
        with listening(tmp_path / "s", hello, SETTINGS):
            with closing(dialled(tmp_path / "s")) as sock:
                sock.sendall(sent)
                assert eventually(lambda: len(held) == 1, within_s=10)
            assert eventually(lambda: not held, within_s=10)
    finally:
        gc.enable()


def test_connections_beyond_the_limit_are_closed(tmp_path: Path) -> None:
    answers = talk(tmp_path / "s", *[b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"] * 6)
    assert answers == [b"HTTP/1.1 200"] * 3 + [b""] * 3


def test_a_body_that_was_sent_is_in_doubt(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """And one that was not sent is not."""
    answers: list[Any] = [(100, {}), ConnectionResetError("cut")]

    def answer(sock: socket.socket) -> Any:
        told = answers.pop(0)
        if isinstance(told, Exception):
            raise told
        return told

    monkeypatch.setattr(client, "_answer", answer)
    with listen._unix_socket(tmp_path / "s") as sock:
        sock.listen()
        with pytest.raises(Unavailable, match="may or may not have"):
            client.append(tmp_path / "s", "s", b"x", None, seal=False, answer_s=60)
        answers.append(ConnectionResetError("cut"))
        assert client.append(tmp_path / "s", "s", b"x", None, seal=False, answer_s=60) is None


def test_clients_that_come_back_share_a_group(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    monkeypatch.setattr(appends, "_RETURN_S", 0.2)
    sizes: list[int] = []

    async def run(store: app.Store) -> None:
        made = appends.Appends(store, 60.0)
        make = made._append
        monkeypatch.setattr(made, "_append", lambda group: sizes.append(len(group)) or make(group))
        async with asyncio.TaskGroup() as together:
            for _ in range(3):
                together.create_task(made.append("s", b"x", seal=False))
        async with asyncio.TaskGroup() as back:
            for _ in range(2):
                back.create_task(made.append("s", b"x", seal=False))
                for _ in range(10):
                    await asyncio.sleep(0)
        await made.append("s", b"x", seal=False)
        await made.close()

    with app.open_store(path) as store:
        asyncio.run(run(store))
    assert sizes == [3, 2, 1], "two came back, and the third one was not waited for without end"


def test_an_append_by_a_name_does_not_go_where_a_kept_writer_has_moved(path: Path) -> None:
    async def run(store: app.Store) -> list[ByteRange]:
        made = appends.Appends(store, 60.0)
        done = []
        for names in ((), ("s", "t"), ("other", "d/other")):
            if names:
                verbs.move(store, *names)
            done += [(await made.append(name, b"xy", seal=False))[0] for name in ("s", "other")]
        await made.close()
        return done

    with app.open_store(path) as store:
        done = asyncio.run(run(store))
    assert [each.start for each in done] == [0, 0, 0, 2, 2, 0]


def test_who_is_told_that_it_serves_may_end_it_at_once(tmp_path: Path) -> None:
    init_store(tmp_path / "store", None)
    too_early: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: too_early.append(number))
    try:
        connection = CONNECTIONS.get(StorePlace(str(tmp_path / "store")))
        asyncio.run(asyncio.wait_for(listen.serve(connection, lambda: signal.raise_signal(signal.SIGTERM)), 60))
    finally:
        signal.signal(signal.SIGTERM, before)
    assert not too_early
    assert not (tmp_path / "store/admin.sock").exists()
