"""One connection and its requests: each answer belongs to its request, and nobody is waited for without end."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from starlette.types import Receive, Scope, Send

from tests.faces.admin.conftest import dialled, listening
from tests.mount.waiting import eventually
from tierfs.base.options.config import AdminSettings
from tierfs.base.words.types import MIB
from tierfs.faces.admin import listen, protocol
from tierfs.faces.admin.protocol import MOST_WAITING

GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
LAST = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
LIMIT_S = 0.4
SETTINGS = AdminSettings(head_s=LIMIT_S, body_s=LIMIT_S)
OK = b"HTTP/1.1 200"


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a GET at once, a POST once its body is there."""
    more = scope["method"] == "POST"
    while more:
        more = (await receive()).get("more_body", False)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"4")]})
    await send({"type": "http.response.body", "body": b"body"})


async def hasty_app(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer without a look at the body."""
    await app({**scope, "method": "GET"}, receive, send)


async def slow_app(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer later than a head may take."""
    await asyncio.sleep(2 * LIMIT_S)
    await app(scope, receive, send)


async def large_app(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer with as many MiB as the path says."""
    parts = int(scope["path"][1:])
    length = str(parts * MIB).encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", length)]})
    for left in reversed(range(parts)):
        await send({"type": "http.response.body", "body": bytes(MIB), "more_body": left > 0})


async def refusing_app(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer without a look at the body, and close."""
    headers = [(b"content-length", b"0"), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": 401, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Path]:
    with listening(tmp_path / "s", app, SETTINGS):
        yield tmp_path / "s"


def answers(path: Path, sent: bytes) -> bytes:
    """What comes until the server closes."""
    with closing(dialled(path)) as sock:
        sock.sendall(sent)
        return rest(sock)


def rest(sock: socket.socket) -> bytes:
    """What comes until the server closes."""
    data = bytearray()
    with suppress(ConnectionError):
        while part := sock.recv(65536):
            data += part
    return bytes(data)


@pytest.mark.parametrize("garbage", [b"\0\r\n\r\n", b"GET /" + b"x" * 20_000])
def test_what_is_no_request_is_not_the_answer_to_an_earlier_one(served: Path, garbage: bytes) -> None:
    """An append was perhaps made: to its client, 400 would say that it was not."""
    assert b"HTTP/1.1 4" not in answers(served, GET + garbage)
    assert answers(served, garbage).startswith(b"HTTP/1.1 4")
    with closing(dialled(served)) as sock:
        sock.sendall(GET)
        assert sock.recv(65536).startswith(OK)
        sock.sendall(garbage)
        assert sock.recv(65536).startswith(b"HTTP/1.1 4")


def test_a_body_that_is_none_ends_its_request(served: Path) -> None:
    head = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert answers(served, head + b"1\r\nx\r\nnot a chunk") == b""


POST = b"POST / HTTP/1.1\r\nHost: x\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"
CHUNKS = b"1\r\nx\r\n0\r\n\r\n"

FRAMES = [
    (POST + CHUNKED + b"\r\n" + CHUNKS, 200),
    (POST + b"transfer-encoding:  CHUNKED \r\n\r\n" + CHUNKS, 200),
    (POST + CHUNKED + b"\r\n1;name=value\r\nx\r\n0\r\n\r\n", 200),
    (POST + CHUNKED + b"\r\n1\nx\n0\n\n", 0),
    (POST + CHUNKED + b"\r\n0x1\r\nx\r\n0\r\n\r\n", 0),
    (POST + CHUNKED + b"\r\n-1\r\nx\r\n0\r\n\r\n", 0),
    (POST + b"Transfer-Encoding: gzip\r\n\r\nx", 501),
    (POST + b"Transfer-Encoding: identity\r\n\r\nx", 501),
    (POST + b"Transfer-Encoding: xchunked\r\n\r\n" + CHUNKS, 501),
    (POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n" + CHUNKS, 501),
    (POST + b"Transfer-Encoding: gzip\r\n" + CHUNKED + b"\r\n" + CHUNKS, 501),
    (POST + b"Transfer-Encoding: chunked, gzip\r\n\r\n" + CHUNKS, 400),
    (POST + CHUNKED + CHUNKED + b"\r\n" + CHUNKS, 400),
    (POST + b"Transfer-Encoding:\r\n\r\n", 400),
    (POST + CHUNKED + b"Content-Length: 1\r\n\r\n" + CHUNKS, 400),
    (POST + b"Content-Length: 1\r\n" + CHUNKED + b"\r\n" + CHUNKS, 400),
    (POST + b"Content-Length: 1\r\nContent-Length: 1\r\n\r\nx", 400),
    *((POST + b"Content-Length: " + size + b"\r\n\r\nx", 400) for size in (b"+1", b"-1", b"0x1", b"1, 1", b"", b"1 1")),
    (POST + b"Content-Length : 1\r\n\r\nx", 400),
    (POST + b"a: b\r\n c\r\nContent-Length: 1\r\n\r\nx", 400),
    (POST + b" a: b\r\nContent-Length: 1\r\n\r\nx", 400),
    (POST + b"a: b\rc\r\n\r\n", 400),
    (POST + b"a: b\0c\r\n\r\n", 400),
    (POST.replace(b"\r", b"") + b"Content-Length: 1\n\nx", 400),
    (GET.replace(b"1.1", b"2.0"), 505),
    (b"GET /\r\n\r\n", 505),
    (GET.replace(b"1.1", b"1.2"), 400),
    (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
]


@pytest.mark.parametrize(("sent", "status"), FRAMES)
def test_each_frame_of_a_request_is_answered_once(served: Path, sent: bytes, status: int) -> None:
    """One answer, which says what is wrong, and nothing that follows is taken for another request.

    None (0) where the end of a body that began is lost: a later answer would seem to be its own.
    """
    with closing(dialled(served)) as sock:
        sock.sendall(sent + (b"" if status == 200 else GET))
        sock.shutdown(socket.SHUT_WR)
        told = rest(sock)
    assert told.startswith(b"HTTP/1.1 %d " % status if status else b"")
    assert told.count(b"HTTP/1.1 ") == bool(status)
    if status not in (0, 200):
        head, _, body = told.partition(b"\r\n\r\n")
        assert b"connection: close" in head
        assert json.loads(body)["error"] == "InvalidRequest"


async def echoing_app(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer with the method, the path and the body."""
    body, more = bytearray(), True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    told = b"<%s %s %s>" % (scope["method"].encode(), scope["path"].encode(), body)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(told))]})
    await send({"type": "http.response.body", "body": told})


OFFER = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n"
SMUGGLED = b"GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.mark.parametrize("body", [b"", b"x", SMUGGLED, os.urandom(300_000)], ids=["none", "one", "request", "long"])
@pytest.mark.parametrize("step", [1, 200, 1_000_000])
def test_an_offer_of_another_protocol_is_ignored(tmp_path: Path, body: bytes, step: int) -> None:
    """Java's HttpClient offers h2c with each request over plain HTTP, and so does curl --http2."""
    post = POST + OFFER + b"Content-Length: %d\r\n\r\n" % len(body) + body
    sent = post + GET + post + LAST
    ends = [*range(step, min(len(sent), 600 * step), step), len(sent)]
    with listening(tmp_path / "s", echoing_app, SETTINGS), closing(dialled(tmp_path / "s")) as sock:
        for start, end in zip([0, *ends], ends, strict=False):
            sock.sendall(sent[start:end])
        told = rest(sock)
    assert b"<GET /smuggled" not in told
    assert told.count(b"<POST / " + body + b">") == 2
    assert told.count(b"<GET / >") == 2


def test_an_offer_of_another_protocol_needs_a_length(served: Path) -> None:
    told = answers(served, POST + OFFER + CHUNKED + b"\r\n" + CHUNKS + SMUGGLED)
    assert told.startswith(b"HTTP/1.1 501 ")
    assert told.count(b"HTTP/1.1 ") == 1


@pytest.mark.parametrize("waiting", [1, MOST_WAITING, MOST_WAITING + 1, 5000])
def test_requests_that_wait_for_the_first_one_are_few(served: Path, waiting: int) -> None:
    told = answers(served, GET * (1 + waiting) + b"HEAD")  # the half one ends the connection
    assert told.count(OK) == (1 + waiting if waiting <= MOST_WAITING else 0)


@pytest.mark.parametrize("sent", [b"", b"\r\n"])
def test_a_kept_connection_waits_for_its_next_request_for_so_long(
    monkeypatch: pytest.MonkeyPatch, served: Path, sent: bytes
) -> None:
    """Empty lines are no sign of life."""
    monkeypatch.setattr(protocol, "_KEEP_ALIVE_S", LIMIT_S)
    with closing(dialled(served)) as sock:
        for _ in range(2):
            sock.sendall(GET)
            assert sock.recv(65536).startswith(OK)
        sock.sendall(sent)
        assert sock.recv(65536) == b"", "it was closed in time"


def test_a_body_that_comes_after_its_answer_ends_in_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(protocol, "_KEEP_ALIVE_S", LIMIT_S)
    with listening(tmp_path / "s", hasty_app, SETTINGS), closing(dialled(tmp_path / "s")) as sock:
        sock.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n")
        assert sock.recv(65536).startswith(OK)
        sock.sendall(b"x")
        assert sock.recv(65536) == b"", "it was closed in time"


@pytest.mark.parametrize(
    ("sent", "answered"), [(GET, 1), (3 * GET, 3), (GET + b"GET / HT", 0), (b"", 0), (b"POST / HTTP/1.1\r\n", 0)]
)
def test_a_client_that_sends_no_more_has_its_answers(tmp_path: Path, sent: bytes, answered: int) -> None:
    with listening(tmp_path / "s", slow_app, SETTINGS), closing(dialled(tmp_path / "s")) as sock:
        sock.sendall(sent)
        sock.shutdown(socket.SHUT_WR)
        assert rest(sock).count(OK) == answered


def test_an_empty_line_behind_a_request_does_not_end_it(tmp_path: Path) -> None:
    """Some old clients send one behind a body (RFC 9112, section 2.2)."""
    with listening(tmp_path / "s", slow_app, SETTINGS), closing(dialled(tmp_path / "s")) as sock:
        sock.sendall(LAST)
        assert not eventually(lambda: False, within_s=LIMIT_S / 4), "it is read by now"
        sock.sendall(b"\r\n")
        assert sock.recv(65536).startswith(OK)


def test_an_answer_waits_for_a_slow_reader_and_not_for_one_that_stopped(tmp_path: Path) -> None:
    """The last part too, which the server has written as far as it is concerned."""
    ask = LAST.replace(b"/ ", b"/1 ", 1)
    with listening(tmp_path / "s", large_app, SETTINGS):
        with closing(dialled(tmp_path / "s")) as sock:
            sock.sendall(ask)
            size = 0
            while size < MIB:
                size += len(sock.recv(MIB // 16))
                assert not eventually(lambda: False, within_s=LIMIT_S / 4), "all of it takes longer than the limit"
            assert size > MIB, "with its head"
        with closing(dialled(tmp_path / "s")) as sock:
            sock.sendall(ask)
            assert not eventually(lambda: False, within_s=4 * LIMIT_S)
            assert len(rest(sock)) < MIB


def test_a_client_that_still_sends_gets_its_answer(tmp_path: Path) -> None:
    head = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100000000\r\n\r\n"
    with listening(tmp_path / "s", refusing_app, SETTINGS):
        for sent in (head, head + b"x"):
            with closing(dialled(tmp_path / "s")) as sock:
                sock.sendall(sent)
                assert sock.recv(65536).startswith(b"HTTP/1.1 401")
                sock.sendall(bytes(protocol._LINGER_BYTES))
                assert sock.recv(65536) == b""
        for more in (b"x", bytes(MIB)):  # but not for ever
            with closing(dialled(tmp_path / "s")) as sock:
                sock.sendall(head)
                assert eventually(lambda: is_reset(sock, more), within_s=2 * LIMIT_S)  # noqa: B023


def is_reset(sock: socket.socket, more: bytes) -> bool:
    """Whether the other end takes no more."""
    try:
        sock.sendall(more)
    except ConnectionError:
        return True
    return False


def test_a_connection_without_a_request_is_closed_at_once(tmp_path: Path) -> None:
    settings = replace(SETTINGS, body_s=60.0)
    with listening(tmp_path / "s", app, settings):
        assert answers(tmp_path / "s", LAST).startswith(OK)


def test_a_small_answer_is_sent_at_once(served: Path) -> None:
    """In two parts it would wake its client up twice, for a third more of the client's time."""
    with closing(dialled(served)) as sock:
        for _ in range(50):
            sock.sendall(GET)
            assert sock.recv(65536).endswith(b"\r\n\r\nbody")


def test_strangers_do_not_turn_the_log_over(served: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.clear()
    assert answers(served, b"garbage\r\n\r\n").startswith(b"HTTP/1.1 400")
    assert caplog.records == []


def test_new_connections_over_tcp_are_so_many_in_a_second(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Those of one second may come at once."""
    monkeypatch.setattr(listen, "_NEW_PER_S", 20)
    with listening(tmp_path / "s", app, SETTINGS):
        began_s = time.monotonic()
        for number in range(40):
            assert answers(tmp_path / "s", LAST).startswith(OK)
            if number == 10:
                assert time.monotonic() - began_s < 0.5
        assert 0.9 < time.monotonic() - began_s < 5
