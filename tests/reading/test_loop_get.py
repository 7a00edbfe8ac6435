"""GETs on the loop: exactly the bytes asked for or False, and no connection kept that is not clean."""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.conformance.storages import s3_storage
from tests.servers.scripted_http import ETAG, Do, Script, ScriptedHttp, Step, head
from tierfs.chunkstore.protocol import BufferSource, RangeUrl
from tierfs.reading.loop_get import LoopGets

START, LENGTH = 70_000, 50_000
END = START + LENGTH - 1
"""The last byte, as HTTP says it."""

BODY = random.Random(3).randbytes(LENGTH)
OTHER = random.Random(4).randbytes(LENGTH)
MOST = 3
FLOOD = 2000
TIMEOUT_S = 10

REQUEST, AWAIT_CLOSE, AWAIT_GO, TELL = Do.AWAIT_REQUEST, Do.AWAIT_CLOSE, Do.AWAIT_GO, Do.TELL
GOOD: Script = (REQUEST, head(START, LENGTH), BODY)
"""One good answer; head and body apart."""


@pytest.fixture
def gets() -> Iterator[LoopGets]:
    with closing(LoopGets(MOST)) as gets:
        yield gets
        assert gets.running == 0


async def serve(nursery: trio.Nursery, *scripts: Script) -> ScriptedHttp:
    return await ScriptedHttp(scripts).start(nursery)


async def get(gets: LoopGets, url: RangeUrl, length: int = LENGTH, etag: str = ETAG) -> bytes | None:
    """The bytes, or None when the GET did not work."""
    view = memoryview(bytearray(length))
    gets.reserve()
    return bytes(view) if await gets.get(url, START, view, etag) else None


def resting(gets: LoopGets) -> int:
    return sum(map(len, gets._resting.values()))


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


async def test_the_request_asks_for_the_range_and_nothing_else(gets: LoopGets, nursery: trio.Nursery) -> None:
    server = await serve(nursery, GOOD)
    assert await get(gets, server.url) == BODY
    ((_, request),) = server.requests
    line, *headers = request.decode().rstrip().split("\r\n")
    assert line == f"GET {server.url.target} HTTP/1.1"
    assert sorted(header.lower() for header in headers) == [
        "accept-encoding: identity",
        f"host: {server.url.origin.removeprefix('http://')}",
        f"range: bytes={START}-{END}",
        "user-agent: tierfs",
    ]


WAYS: dict[str, tuple[Step, ...]] = {
    "head and body apart": (head(START, LENGTH), BODY),
    "head and body in one packet": (head(START, LENGTH) + BODY,),
    "head with a part of the body": (head(START, LENGTH) + BODY[:1], BODY[1:]),
    "head in pieces": (head(START, LENGTH)[:3], head(START, LENGTH)[3:60], head(START, LENGTH)[60:], BODY),
    "head byte by byte": (*(bytes([byte]) for byte in head(START, LENGTH)), BODY),
    "body in pieces": (head(START, LENGTH), *(BODY[at : at + 999] for at in range(0, LENGTH, 999))),
    "an informational answer first": (b"HTTP/1.1 100 Continue\r\n\r\n", head(START, LENGTH), BODY),
    "informational answers in one packet": (b"HTTP/1.1 103 Early Hints\r\n\r\n" * 3 + head(START, LENGTH) + BODY,),
    "a space more than needed": (head(START, LENGTH, content_length=f" {LENGTH} ") + BODY,),
    "Connection: keep-alive": (head(START, LENGTH, "Connection: keep-alive") + BODY,),
    "bare etag": (head(START, LENGTH, etag=ETAG) + BODY,),
    "unknown total": (head(START, LENGTH, content_range=f"bytes {START}-{END}/*") + BODY,),
}


@pytest.mark.parametrize("way", WAYS)
async def test_a_good_answer_is_taken_and_its_connection_used_again(
    gets: LoopGets, nursery: trio.Nursery, way: str
) -> None:
    server = await serve(nursery, (REQUEST, *WAYS[way], *GOOD, AWAIT_CLOSE))
    assert await get(gets, server.url) == BODY
    assert await get(gets, server.url) == BODY
    assert server.served_by == [0, 0]
    assert (resting(gets), gets.running) == (1, 0)
    gets.close()
    await server.closed[0].wait()


LAST = {
    "Connection: close": (head(START, LENGTH, "Connection: close"), BODY),
    "Connection: Close among others": (head(START, LENGTH, "Connection: TE, Close"), BODY),
    "Connection: close in a second header": (head(START, LENGTH, "Connection: keep-alive", "Connection: close"), BODY),
    "HTTP/1.0": (head(START, LENGTH).replace(b"HTTP/1.1", b"HTTP/1.0"), BODY),
}


@pytest.mark.parametrize("way", LAST)
async def test_an_answer_that_is_the_connections_last_is_taken_and_the_connection_is_not_kept(
    gets: LoopGets, nursery: trio.Nursery, way: str
) -> None:
    server = await serve(nursery, (REQUEST, *LAST[way], AWAIT_CLOSE), GOOD)
    assert await get(gets, server.url) == BODY
    assert resting(gets) == 0
    await server.closed[0].wait()
    assert await get(gets, server.url) == BODY
    assert server.served_by == [0, 1]


XML = b"<Error><Code>AccessDenied</Code></Error>"


def refused(status: str) -> tuple[bytes, ...]:
    lines = f"HTTP/1.1 {status}\r\nContent-Length: {len(XML)}\r\n\r\n"
    return (lines.encode(), XML)


CHUNKED = "Transfer-Encoding: chunked"
FIRST_CHUNK, LAST_CHUNK = f"{LENGTH:x}\r\n".encode(), b"\r\n0\r\n\r\n"

BAD: dict[str, tuple[Step, ...]] = {
    "the whole object": (head(START, LENGTH, status="200 OK", content_range=None), OTHER),
    "200 with a range": (head(START, LENGTH, status="200 OK"), BODY),
    "a redirect": (head(0, 0, "Location: http://127.0.0.1:1/", status="307 Temporary Redirect"),),
    **{
        status: refused(status)
        for status in (
            "403 Forbidden",
            "404 Not Found",
            "412 Precondition Failed",
            "416 Range Not Satisfiable",
            "500 Internal Server Error",
            "503 Slow Down",
        )
    },
    "another range": (head(START, LENGTH, content_range=f"bytes {START + 1}-{START + LENGTH}/1000000"), OTHER),
    "a range that only begins alike": (
        head(START, LENGTH, content_range=f"bytes {START}-{END}0/*"),
        OTHER,
    ),
    "a shorter range": (head(START, LENGTH - 1), BODY[1:]),
    "a longer range": (head(START, LENGTH + 1), BODY + b"x"),
    "no range": (head(START, LENGTH, content_range=None), OTHER),
    "several ranges": (head(START, LENGTH, content_range=None, content_type="multipart/byteranges; boundary=x"), OTHER),
    "no length": (head(START, LENGTH, content_length=None), BODY),
    "a smaller length": (head(START, LENGTH, content_length=str(LENGTH - 1)), BODY[1:]),
    "a larger length": (head(START, LENGTH, content_length=str(LENGTH + 1)), BODY + b"x"),
    "a length that is no number": (head(START, LENGTH, content_length="many"), BODY),
    "two lengths": (head(START, LENGTH, f"Content-Length: {LENGTH + 1}"), BODY),
    "chunked": (
        head(START, LENGTH, CHUNKED, content_length=None),
        FIRST_CHUNK,
        BODY,
        LAST_CHUNK,
    ),
    "chunked with a length": (head(START, LENGTH, CHUNKED), FIRST_CHUNK + BODY, LAST_CHUNK),
    "an unknown encoding": (head(START, LENGTH, "Transfer-Encoding: gzip"), BODY),
    "another etag": (head(START, LENGTH, etag='"ffff"'), OTHER),
    "a weak etag": (head(START, LENGTH, etag=f'W/"{ETAG}"'), OTHER),
    "no etag": (head(START, LENGTH, etag=None), OTHER),
    "garbage": (b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03" * 10,),
    "garbage without an end": (b"HTTP/1.1 206 Partial Content\r\nX: " + b"y" * 200_000,),
    "a switch of protocols": (b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\n",),
    "informational answers without an end": (b"HTTP/1.1 100 Continue\r\n\r\n" * FLOOD,),
    "closed before the head": (),
    "closed in the head": (head(START, LENGTH)[:40],),
    "closed at the end of the head": (head(START, LENGTH),),
    "closed in the body": (head(START, LENGTH), BODY[:-1]),
    "closed after an informational answer": (b"HTTP/1.1 100 Continue\r\n\r\n",),
}


@pytest.mark.parametrize("way", BAD)
async def test_a_bad_answer_is_false_and_its_connection_is_closed(
    gets: LoopGets, nursery: trio.Nursery, way: str
) -> None:
    end = () if way.startswith("closed") else (AWAIT_CLOSE,)
    server = await serve(nursery, (REQUEST, *BAD[way], *end), GOOD)
    assert await get(gets, server.url) is None
    assert (resting(gets), gets.running) == (0, 0)
    if end:
        await server.closed[0].wait()
    assert await get(gets, server.url) == BODY
    assert server.served_by == [0, 1]


async def test_a_connection_closed_while_it_rests_is_replaced(gets: LoopGets, nursery: trio.Nursery) -> None:
    server = await serve(nursery, (*GOOD, AWAIT_GO), GOOD)
    assert await get(gets, server.url) == BODY
    assert resting(gets) == 1
    server.go.set()
    await server.ended[0].wait()
    assert await get(gets, server.url) == BODY
    assert server.served_by == [0, 1]


async def test_a_connection_that_speaks_while_it_rests_is_replaced(gets: LoopGets, nursery: trio.Nursery) -> None:
    """Else its leftovers would be the next answer: here one that looks right."""
    server = await serve(nursery, (*GOOD, AWAIT_GO, head(START, LENGTH), OTHER, TELL, AWAIT_CLOSE), GOOD)
    assert await get(gets, server.url) == BODY
    server.go.set()
    await server.told.wait()
    assert await get(gets, server.url) == BODY
    await server.closed[0].wait()
    assert server.served_by == [0, 1]


@pytest.mark.parametrize("length", [100, LENGTH])
async def test_bytes_behind_the_answer_are_not_taken_for_the_next_one(
    gets: LoopGets, nursery: trio.Nursery, length: int
) -> None:
    """They came with it; a short answer comes with its head, a long one does not."""
    wrong = head(START, length) + OTHER[:length]
    good = head(START, length) + BODY[:length]
    server = await serve(nursery, (REQUEST, good + wrong, AWAIT_CLOSE), (REQUEST, good))
    assert await get(gets, server.url, length) in (BODY[:length], None)
    assert await get(gets, server.url, length) == BODY[:length]
    await server.closed[0].wait()
    assert server.served_by == [0, 1]


async def test_a_connection_that_is_closed_under_the_request_is_false(gets: LoopGets, nursery: trio.Nursery) -> None:
    server = await serve(nursery, (*GOOD, REQUEST), GOOD)
    assert await get(gets, server.url) == BODY
    assert await get(gets, server.url) is None
    assert await get(gets, server.url) == BODY
    assert server.served_by == [0, 0, 1]


@pytest.mark.parametrize("said", [(), (head(START, LENGTH)[:50],), (head(START, LENGTH), BODY[:-1])])
async def test_a_server_that_falls_silent_is_left_after_a_while(
    gets: LoopGets, nursery: trio.Nursery, autojump_clock: MockClock, said: tuple[bytes, ...]
) -> None:
    server = await serve(nursery, (REQUEST, *said, AWAIT_CLOSE))
    started = trio.current_time()
    assert await get(gets, server.url) is None
    assert trio.current_time() - started == pytest.approx(TIMEOUT_S)
    assert (resting(gets), gets.running) == (0, 0)
    await server.closed[0].wait()


async def test_cancellation_closes_the_connection(gets: LoopGets, nursery: trio.Nursery) -> None:
    server = await serve(nursery, (REQUEST, head(START, LENGTH), BODY[:-1], AWAIT_CLOSE))
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as inner:
            inner.start_soon(get, gets, server.url)
            await wait_all_tasks_blocked()
            assert gets.running == 1
            scope.cancel()
    assert (resting(gets), gets.running) == (0, 0)
    await server.closed[0].wait()


async def test_gets_at_once_are_bounded(gets: LoopGets, nursery: trio.Nursery) -> None:
    server = await serve(nursery, *[(AWAIT_GO, *GOOD)] * MOST)
    results: list[bytes | None] = []

    async def one() -> None:
        results.append(await get(gets, server.url))

    async with trio.open_nursery() as inner:
        for number in range(MOST):
            assert gets.free, number
            inner.start_soon(one)
            await wait_all_tasks_blocked()
        assert not gets.free
        server.go.set()
    assert results == [BODY] * MOST
    assert gets.free
    assert resting(gets) == MOST


async def test_a_reserved_get_counts_before_it_begins(gets: LoopGets, nursery: trio.Nursery) -> None:
    server = await serve(nursery, GOOD)
    for _ in range(MOST):
        assert gets.free
        gets.reserve()
    assert not gets.free
    view = memoryview(bytearray(LENGTH))
    assert await gets.get(server.url, START, view, ETAG)
    assert gets.free
    gets.running = 0  # of the others there is none


async def test_closing_closes_what_rests_and_what_a_get_still_uses(gets: LoopGets, nursery: trio.Nursery) -> None:
    server = await serve(nursery, (REQUEST, AWAIT_GO, *GOOD[1:], AWAIT_CLOSE), (*GOOD, AWAIT_CLOSE))
    results: list[bytes | None] = []

    async def one() -> None:
        results.append(await get(gets, server.url))

    async with trio.open_nursery() as inner:
        inner.start_soon(one)
        await wait_all_tasks_blocked()
        await one()
        assert (resting(gets), gets.running) == (1, 1)
        gets.close()
        await server.closed[1].wait()
        assert not gets.free
        server.go.set()
    assert results == [BODY, BODY]
    assert resting(gets) == 0
    await server.closed[0].wait()


async def test_descriptors_are_given_back(gets: LoopGets) -> None:
    before = descriptors()
    scripts = [GOOD, *((REQUEST, *way) for way in BAD.values()), *[(*GOOD, AWAIT_CLOSE)] * MOST]
    async with trio.open_nursery() as inner:
        server = await serve(inner, *scripts)
        for _ in scripts[:-MOST]:
            await get(gets, server.url)
        for _ in range(MOST):
            inner.start_soon(get, gets, server.url)
        await wait_all_tasks_blocked()
        inner.cancel_scope.cancel()
    gets.close()
    assert descriptors() == before


@pytest.mark.parametrize(
    ("origin", "host"),
    [
        ("http://127.0.0.1:{port}", "127.0.0.1:{port}"),
        ("http://127.0.0.1:80", "127.0.0.1"),
        ("http://127.0.0.1", "127.0.0.1"),
        ("http://[::1]:80", "[::1]"),
        ("http://[::1]:7480", "[::1]:7480"),
    ],
)
async def test_the_host_is_named_as_it_was_signed(
    gets: LoopGets, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch, origin: str, host: str
) -> None:
    """Every way leads to the test's server: port 80 may be another's."""
    server = await serve(nursery, GOOD)
    address, _, port = server.url.origin.removeprefix("http://").partition(":")
    connect = trio.open_tcp_stream
    monkeypatch.setattr(trio, "open_tcp_stream", lambda *_: connect(address, int(port)))
    assert await get(gets, RangeUrl(origin.format(port=port), server.url.target)) == BODY
    ((_, request),) = server.requests
    assert f"\r\nHost: {host.format(port=port)}\r\n" in request.decode()


async def test_nobody_listens(gets: LoopGets) -> None:
    with socket.socket() as bound:  # bound, so that nobody else gets the port, but not listening
        bound.bind(("127.0.0.1", 0))
        assert await get(gets, RangeUrl(f"http://127.0.0.1:{bound.getsockname()[1]}", "/")) is None
    assert (resting(gets), gets.running) == (0, 0)


@pytest.mark.parametrize("server", ["moto", pytest.param("rgw", marks=pytest.mark.s3)])
async def test_s3_servers_answer_what_is_awaited(gets: LoopGets, request: pytest.FixtureRequest, server: str) -> None:
    with closing(s3_storage(request.getfixturevalue(f"{server}_bucket"))) as storage:
        etag = storage.put("a b/ü+", BufferSource(bytes(START) + BODY + b"more")).etag
        storage.read_into("a b/ü+", 0, memoryview(bytearray(1)))
        url = storage.range_url("a b/ü+")
        assert url is not None
        for _ in range(3):
            assert await get(gets, url, etag=etag) == BODY
        assert await get(gets, url, LENGTH + 5, etag=etag) is None  # beyond the end
        assert await get(gets, url, etag="other") is None
        assert await get(gets, url, etag=etag) == BODY
        assert resting(gets) == (server == "rgw")  # moto closes its connections
        assert await get(gets, replace(url, target=url.target[:-4] + "0000"), etag=etag) == (
            BODY if server == "moto" else None  # moto accepts every signature
        )
