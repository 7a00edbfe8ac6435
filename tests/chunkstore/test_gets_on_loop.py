"""GETs on the loop: their limits and ends. Their handling of answers is in conformance/test_ranged_get.py."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.servers.answers import BAD, BODY, GOOD, LENGTH, START
from tests.servers.scripted_http import ETAG, Do, Script, ScriptedHttp, head
from tierfs.chunkstore.http.on_loop import LoopGets
from tierfs.chunkstore.protocol import RangeUrl

MOST = 3
SERVERS = 8
"""So many servers' connections rest."""

TIMEOUT_S = 10

REQUEST, AWAIT_CLOSE, AWAIT_GO, TELL = Do.AWAIT_REQUEST, Do.AWAIT_CLOSE, Do.AWAIT_GO, Do.TELL


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
    return bytes(view) if await gets.finish(gets.begin(url, START, view, etag)) else None


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("said", [(), (head(START, LENGTH)[:50],), (head(START, LENGTH), BODY[:-1])])
async def test_a_server_that_falls_silent_is_left_after_a_while(
    gets: LoopGets, nursery: trio.Nursery, autojump_clock: MockClock, said: tuple[bytes, ...]
) -> None:
    server = await serve(nursery, (REQUEST, *said, AWAIT_CLOSE))
    started = trio.current_time()
    assert await get(gets, server.url) is None
    assert trio.current_time() - started == pytest.approx(TIMEOUT_S)
    assert (gets.resting, gets.running) == (0, 0)
    await server.closed[0].wait()


async def test_cancellation_closes_the_connection(gets: LoopGets, nursery: trio.Nursery) -> None:
    server = await serve(nursery, (REQUEST, head(START, LENGTH), BODY[:-1], AWAIT_CLOSE))
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as inner:
            inner.start_soon(get, gets, server.url)
            await wait_all_tasks_blocked()
            assert gets.running == 1
            scope.cancel()
    assert (gets.resting, gets.running) == (0, 0)
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
    assert gets.resting == MOST


async def test_a_request_leaves_at_once_over_an_open_connection(gets: LoopGets, nursery: trio.Nursery) -> None:
    """It arrives though its task has not begun, and the GET counts from then on."""
    server = await serve(nursery, (*GOOD, REQUEST, TELL, *GOOD[1:]))
    assert await get(gets, server.url) == BODY
    view = memoryview(bytearray(LENGTH))
    started = gets.begin(server.url, START, view, ETAG)
    assert (gets.running, started.unsent) == (1, b"")
    await server.told.wait()
    assert server.served_by == [0, 0]
    assert await gets.finish(started)
    assert (bytes(view), gets.running) == (BODY, 0)


async def test_connections_of_the_server_used_longest_ago_are_dropped(gets: LoopGets, nursery: trio.Nursery) -> None:
    """Each reload of the settings connects anew, for as long as a mount lives."""
    servers = [await serve(nursery, (*GOOD, AWAIT_CLOSE)) for _ in range(SERVERS + 1)]
    for number, server in enumerate(servers, 1):
        assert await get(gets, server.url) == BODY
        assert gets.resting == min(number, SERVERS)
    await servers[0].closed[0].wait()
    assert not any(server.closed[0].is_set() for server in servers[1:])


async def test_closing_closes_what_rests_and_what_a_get_still_uses(gets: LoopGets, nursery: trio.Nursery) -> None:
    server = await serve(nursery, (REQUEST, AWAIT_GO, *GOOD[1:], AWAIT_CLOSE), (*GOOD, AWAIT_CLOSE))
    results: list[bytes | None] = []

    async def one() -> None:
        results.append(await get(gets, server.url))

    async with trio.open_nursery() as inner:
        inner.start_soon(one)
        await wait_all_tasks_blocked()
        await one()
        assert (gets.resting, gets.running) == (1, 1)
        gets.close()
        await server.closed[1].wait()
        assert not gets.free
        server.go.set()
    assert results == [BODY, BODY]
    assert gets.resting == 0
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
