"""GETs of ranges over HTTP and HTTPS, on the loop and in threads: exactly the bytes asked for or nothing, and no
connection kept that is not clean."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Protocol

import pytest
import trio

from tests.conformance.storages import s3_storage
from tests.servers.answers import BAD, BODY, END, GOOD, LAST, LENGTH, OTHER, REQUEST, START, WAYS
from tests.servers.scripted_http import ETAG, Do, Serve, head
from tierfs.base.options.config import ColdSettings
from tierfs.engine.chunkstore.http.in_thread import ThreadGets
from tierfs.engine.chunkstore.http.on_loop import LoopGets
from tierfs.engine.chunkstore.http.ranged_get import AnsweredOtherwise
from tierfs.engine.chunkstore.protocol import BufferSource, RangeUrl

AWAIT_CLOSE, AWAIT_GO, TELL = Do.AWAIT_CLOSE, Do.AWAIT_GO, Do.TELL


BROUGHT = (
    "403 Forbidden",
    "chunked",
    "a larger length",
    "garbage without an end",
    "closed before the head",
    "closed in the body",
)
"""Bad answers that a driver meets in ways of its own; all of them are in chunkstore/test_ranged_get.py."""


class Gets(Protocol):
    """One implementation."""

    async def get(self, url: RangeUrl, length: int = LENGTH, etag: str = ETAG) -> bytes | None:
        """The bytes, or None when the GET did not bring all of them."""
        ...

    @property
    def resting(self) -> int:
        """Connections kept."""
        ...

    @property
    def running(self) -> int:
        """GETs that count against a limit."""
        ...

    def close(self) -> None: ...


class OnLoop:
    """GETs of small reads."""

    def __init__(self) -> None:
        self._gets = LoopGets(len(BAD))

    async def get(self, url: RangeUrl, length: int = LENGTH, etag: str = ETAG) -> bytes | None:
        view = memoryview(bytearray(length))
        return bytes(view) if await self._gets.finish(self._gets.begin(url, START, view, etag)) else None

    @property
    def resting(self) -> int:
        return self._gets.resting

    @property
    def running(self) -> int:
        return self._gets.running

    def close(self) -> None:
        self._gets.close()


class InThreads:
    """GETs of long reads; a client for each server."""

    running = 0

    def __init__(self) -> None:
        self._gets: dict[str, ThreadGets] = {}

    async def get(self, url: RangeUrl, length: int = LENGTH, etag: str = ETAG) -> bytes | None:
        gets = self._gets.setdefault(url.origin, ThreadGets(url.origin, ColdSettings(), url.tls))
        view = memoryview(bytearray(length))
        try:
            done = await trio.to_thread.run_sync(gets.read_into, url.target, START, view, etag, None)
        except AnsweredOtherwise:
            return None
        return bytes(view) if done == length else None

    @property
    def resting(self) -> int:
        return sum(len(gets.idle) for gets in self._gets.values())

    def close(self) -> None:
        for gets in self._gets.values():
            gets.close()


@pytest.fixture(params=[OnLoop, InThreads])
def gets(request: pytest.FixtureRequest) -> Iterator[Gets]:
    with closing(request.param()) as gets:
        yield gets
        assert gets.running == 0


async def test_the_request_asks_for_the_range_and_nothing_else(gets: Gets, serve: Serve, nursery: trio.Nursery) -> None:
    server = await serve(nursery, GOOD)
    assert await gets.get(server.url) == BODY
    ((_, request),) = server.requests
    line, *headers = request.decode().rstrip().split("\r\n")
    assert line == f"GET {server.url.target} HTTP/1.1"
    assert sorted(header.lower() for header in headers) == [
        "accept-encoding: identity",
        f"host: {server.url.origin.partition('://')[2]}",
        f"range: bytes={START}-{END}",
        "user-agent: tierfs",
    ]


@pytest.mark.parametrize("way", ["head and body in one packet", "head in pieces", "body in pieces"])
async def test_a_good_answer_is_taken_and_its_connection_used_again(
    gets: Gets, serve: Serve, nursery: trio.Nursery, way: str
) -> None:
    server = await serve(nursery, (REQUEST, *WAYS[way], *GOOD, AWAIT_CLOSE))
    assert await gets.get(server.url) == BODY
    assert await gets.get(server.url) == BODY
    assert server.served_by == [0, 0]
    assert gets.resting == 1
    gets.close()
    await server.closed[0].wait()


@pytest.mark.parametrize("way", ["Connection: close", "HTTP/1.0"])
async def test_an_answer_that_is_the_connections_last_is_taken_and_the_connection_is_not_kept(
    gets: Gets, serve: Serve, nursery: trio.Nursery, way: str
) -> None:
    server = await serve(nursery, (REQUEST, *LAST[way], AWAIT_CLOSE), GOOD)
    assert await gets.get(server.url) == BODY
    assert gets.resting == 0
    await server.closed[0].wait()
    assert await gets.get(server.url) == BODY
    assert server.served_by == [0, 1]


@pytest.mark.parametrize("way", BROUGHT)
async def test_a_bad_answer_brings_nothing_and_its_connection_is_closed(
    gets: Gets, serve: Serve, nursery: trio.Nursery, way: str
) -> None:
    end = () if way.startswith("closed") else (AWAIT_CLOSE,)
    server = await serve(nursery, (REQUEST, *BAD[way], *end), GOOD)
    assert await gets.get(server.url) is None
    assert gets.resting == 0
    if end:
        await server.closed[0].wait()
    assert await gets.get(server.url) == BODY
    assert server.served_by == [0, 1]


async def test_a_connection_closed_while_it_rests_is_replaced(gets: Gets, serve: Serve, nursery: trio.Nursery) -> None:
    server = await serve(nursery, (*GOOD, AWAIT_GO), GOOD)
    assert await gets.get(server.url) == BODY
    assert gets.resting == 1
    server.go.set()
    await server.ended[0].wait()
    assert await gets.get(server.url) == BODY
    assert server.served_by == [0, 1]


async def test_a_connection_that_speaks_while_it_rests_is_replaced(
    gets: Gets, serve: Serve, nursery: trio.Nursery
) -> None:
    """Else its leftovers would be the next answer: here one that looks right."""
    server = await serve(nursery, (*GOOD, AWAIT_GO, head(START, LENGTH), OTHER, TELL, AWAIT_CLOSE), GOOD)
    assert await gets.get(server.url) == BODY
    server.go.set()
    await server.told.wait()
    assert await gets.get(server.url) == BODY
    await server.closed[0].wait()
    assert server.served_by == [0, 1]


@pytest.mark.parametrize("length", [100, LENGTH])
async def test_bytes_behind_the_answer_are_not_taken_for_the_next_one(
    gets: Gets, serve: Serve, nursery: trio.Nursery, length: int
) -> None:
    """They came with it; a short answer comes with its head, a long one does not."""
    wrong = head(START, length) + OTHER[:length]
    good = head(START, length) + BODY[:length]
    server = await serve(nursery, (REQUEST, good + wrong, AWAIT_CLOSE), (REQUEST, good))
    assert await gets.get(server.url, length) in (BODY[:length], None)
    assert await gets.get(server.url, length) == BODY[:length]
    await server.closed[0].wait()
    assert server.served_by == [0, 1]


async def test_a_connection_that_is_closed_under_the_request_brings_nothing(
    gets: Gets, serve: Serve, nursery: trio.Nursery
) -> None:
    server = await serve(nursery, (*GOOD, REQUEST), GOOD)
    assert await gets.get(server.url) == BODY
    assert await gets.get(server.url) is None
    assert await gets.get(server.url) == BODY
    assert server.served_by == [0, 0, 1]


async def test_closing_closes_what_a_get_still_uses_at_its_end(gets: Gets, serve: Serve, nursery: trio.Nursery) -> None:
    server = await serve(nursery, (REQUEST, TELL, AWAIT_GO, *GOOD[1:], AWAIT_CLOSE))
    results: list[bytes | None] = []

    async def one() -> None:
        results.append(await gets.get(server.url))

    async with trio.open_nursery() as inner:
        inner.start_soon(one)
        await server.told.wait()
        gets.close()
        server.go.set()
    assert results == [BODY]
    assert gets.resting == 0
    await server.closed[0].wait()


async def test_descriptors_are_given_back(gets: Gets, serve: Serve) -> None:
    before = descriptors()
    with socket.socket() as bound:  # bound, so that nobody else gets the port, but not listening
        bound.bind(("127.0.0.1", 0))
        assert await gets.get(RangeUrl(f"http://127.0.0.1:{bound.getsockname()[1]}", "/")) is None
    scripts = [GOOD, *((REQUEST, *way) for way in BAD.values()), (*GOOD, AWAIT_CLOSE)]
    async with trio.open_nursery() as inner:
        server = await serve(inner, *scripts)
        for _ in scripts:
            await gets.get(server.url)
        inner.cancel_scope.cancel()
    gets.close()
    assert descriptors() == before


@pytest.mark.parametrize(
    ("named", "host"),
    [
        ("127.0.0.1:{port}", "127.0.0.1:{port}"),
        ("127.0.0.1:{default}", "127.0.0.1"),
        ("127.0.0.1", "127.0.0.1"),
        ("[::1]:{default}", "[::1]"),
        ("[::1]:{other}", "[::1]:{other}"),
    ],
)
async def test_the_host_is_named_as_it_was_signed(
    gets: Gets, serve: Serve, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch, named: str, host: str
) -> None:
    """Every way leads to the test's server: the default port may be another's."""
    server = await serve(nursery, GOOD)
    scheme, _, place = server.url.origin.partition("://")
    address, _, port = place.partition(":")
    default, other = (80, 443) if scheme == "http" else (443, 80)
    on_loop, in_thread = trio.open_tcp_stream, socket.create_connection
    monkeypatch.setattr(trio, "open_tcp_stream", lambda *_: on_loop(address, int(port)))
    monkeypatch.setattr(socket, "create_connection", lambda _, timeout_s: in_thread((address, int(port)), timeout_s))
    origin = f"{scheme}://{named.format(port=port, default=default, other=other)}"
    assert await gets.get(replace(server.url, origin=origin)) == BODY
    ((_, request),) = server.requests
    assert f"\r\nHost: {host.format(port=port, other=other)}\r\n" in request.decode()


@pytest.mark.parametrize("server", ["rgw", "rgw_tls"])
async def test_s3_servers_answer_what_is_awaited(gets: Gets, request: pytest.FixtureRequest, server: str) -> None:
    with closing(s3_storage(request.getfixturevalue(f"{server}_bucket"))) as storage:
        etag = storage.put("a b/ü+", BufferSource(bytes(START) + BODY + b"more")).etag
        storage.read_into("a b/ü+", 0, memoryview(bytearray(1)))
        url = storage.range_url("a b/ü+")
        assert url is not None
        for _ in range(3):
            assert await gets.get(url, etag=etag) == BODY
        assert await gets.get(url, LENGTH + 5, etag=etag) is None  # beyond the end
        assert await gets.get(url, etag="other") is None
        assert await gets.get(url, etag=etag) == BODY
        assert gets.resting == 1
        assert await gets.get(replace(url, target=url.target[:-4] + "0000"), etag=etag) is None


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))
