"""GETs on the loop and in threads: their limits and ends. Answers are handled in conformance/test_ranged_get.py."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial

import pytest
import trio
import trio.lowlevel
from trio.testing import MockClock, wait_all_tasks_blocked
from urllib3.exceptions import ConnectTimeoutError

from tests.servers.answers import BAD, BODY, END, GOOD, LENGTH, REQUEST, START
from tests.servers.scripted_http import ETAG, Do, Script, ScriptedHttp, Serve, ServerTls, Step, head
from tierfs.base.options.config import ColdSettings
from tierfs.base.words.errors import Unavailable
from tierfs.base.words.types import CRC_BLOCK_BYTES, MIB
from tierfs.engine.chunkstore.http.in_thread import ThreadGets
from tierfs.engine.chunkstore.http.on_loop import LoopGets
from tierfs.engine.chunkstore.protocol import RangeUrl
from tierfs.engine.chunkstore.s3.location import S3Location
from tierfs.engine.chunkstore.s3.storage import S3Storage

MOST = 3
SERVERS = 8
"""So many servers' connections rest."""

TIMEOUT_S = 10
AWAIT_CLOSE, AWAIT_GO, TELL = Do.AWAIT_CLOSE, Do.AWAIT_GO, Do.TELL


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


PATIENT = ColdSettings(read_timeout_s=600.0, connect_timeout_s=600.0, connections=2)
"""A wait for what does not come is as long as it takes: the limit of the test ends it."""
HASTY = replace(PATIENT, read_timeout_s=0.2, connect_timeout_s=0.2)
"""For servers that stay silent."""
CUT = 30_000
"""Length at which a body breaks off."""


def gets_of(server: ScriptedHttp, settings: ColdSettings = PATIENT) -> ThreadGets:
    return ThreadGets(server.url.origin, settings, server.url.tls)


async def read(gets: ThreadGets, buffer: bytearray, progress: Callable[[int], None] | None = None) -> int:
    return await trio.to_thread.run_sync(gets.read_into, "/o?s", START, memoryview(buffer), ETAG, progress)


@pytest.mark.parametrize("said", [(), (head(START, LENGTH)[:50],), (head(START, LENGTH), BODY[:-1])])
async def test_a_silent_server_is_left_after_a_while(
    serve: Serve, nursery: trio.Nursery, said: tuple[bytes, ...]
) -> None:
    server = await serve(nursery, (REQUEST, *said, AWAIT_CLOSE))
    with closing(gets_of(server, HASTY)) as gets:
        with pytest.raises(TimeoutError):
            await read(gets, bytearray(LENGTH))
        await server.closed[0].wait()


@pytest.mark.parametrize("backlog", [0, 10], ids=["does not accept", "does not shake hands"])
def test_who_is_silent_from_the_start_is_left_after_a_while(server_tls: ServerTls, backlog: int) -> None:
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=backlog))
        if not backlog:
            stack.enter_context(socket.create_connection(listener.getsockname()))  # fills it
        origin = f"https://127.0.0.1:{listener.getsockname()[1]}"
        gets = stack.enter_context(closing(ThreadGets(origin, HASTY, server_tls.trusting)))
        with pytest.raises(ConnectTimeoutError):
            gets.read_into("/", 0, memoryview(bytearray(1)), ETAG, None)


@pytest.mark.parametrize(("length", "cut"), [(LENGTH, CUT), (4 * MIB, 2 * MIB + 9)])
async def test_what_came_before_the_connection_broke_counts_at_once(
    serve: Serve, nursery: trio.Nursery, length: int, cut: int
) -> None:
    """Though fewer bytes are left than wake us in the middle."""
    body = (BODY * (length // LENGTH + 1))[:length]
    server = await serve(nursery, (REQUEST, head(START, length), body[:cut]))
    buffer = bytearray(length)
    with closing(gets_of(server)) as gets:
        assert await read(gets, buffer) == cut
    assert buffer[:cut] == body[:cut]


async def test_progress_is_told_after_a_block_and_then_after_each_mib(serve: Serve, nursery: trio.Nursery) -> None:
    body = bytes(2 * MIB + 5)
    server = await serve(nursery, (REQUEST, head(START, len(body)), body))
    seen: list[int] = []
    with closing(gets_of(server)) as gets:
        assert await read(gets, bytearray(len(body)), seen.append) == len(body)
    assert seen == [CRC_BLOCK_BYTES, MIB, 2 * MIB, 2 * MIB + 5]


async def test_what_came_before_a_pause_is_told_though_it_is_too_little_to_wake_for(
    serve: Serve, nursery: trio.Nursery
) -> None:
    length = 4 * MIB
    server = await serve(nursery, (REQUEST, head(START, length), bytes(2 * MIB - 1), b"\0" * 9, AWAIT_CLOSE))
    seen: list[int] = []
    # The pause that is meant is the last one; one before it, of a busy machine, is shorter than this.
    with closing(gets_of(server, replace(HASTY, read_timeout_s=3.0))) as gets, pytest.raises(TimeoutError):
        await read(gets, bytearray(length), seen.append)
    assert seen == [CRC_BLOCK_BYTES, MIB, 2 * MIB]


async def test_a_short_answer_is_read_after_a_long_one(serve: Serve, nursery: trio.Nursery) -> None:
    """Neither its own end nor the next answer has the bytes that wake us in its middle."""
    long = 3 * MIB + 7
    script = (REQUEST, head(START, long), bytes(long), REQUEST, head(START, 1), b"x", AWAIT_CLOSE)
    server = await serve(nursery, script)
    buffer = bytearray(1)
    with closing(gets_of(server)) as gets:
        assert await read(gets, bytearray(long)) == long
        assert await read(gets, buffer) == 1
    assert (buffer, len(server.requests)) == (b"x", 2)


async def test_who_has_had_enough_says_so_in_progress(serve: Serve, nursery: trio.Nursery) -> None:
    server = await serve(nursery, (*GOOD, AWAIT_CLOSE))

    def enough(_: int) -> None:
        raise EOFError

    with closing(gets_of(server)) as gets:
        with pytest.raises(EOFError):
            await read(gets, bytearray(LENGTH), enough)
        await server.closed[0].wait()


async def test_no_more_connections_rest_than_are_wanted(serve: Serve, nursery: trio.Nursery) -> None:
    script = (REQUEST, TELL, AWAIT_GO, *GOOD[1:], AWAIT_CLOSE)
    server = await serve(nursery, *[script] * (PATIENT.connections + 1))
    with closing(gets_of(server)) as gets:
        async with trio.open_nursery() as inner:
            for number in range(PATIENT.connections + 1):
                inner.start_soon(read, gets, bytearray(LENGTH))
                while len(server.requests) <= number:
                    await server.told.wait()
                    await trio.lowlevel.checkpoint()
            server.go.set()
        assert len(gets.idle) == PATIENT.connections


async def test_forgotten_connections_are_closed(serve: Serve, nursery: trio.Nursery) -> None:
    server = await serve(nursery, (*GOOD, AWAIT_CLOSE))
    gets = gets_of(server)
    assert await read(gets, bytearray(LENGTH)) == LENGTH
    del gets
    await server.closed[0].wait()


async def fetch(
    server: ScriptedHttp, progress: Callable[[int], None] | None = None, settings: ColdSettings = PATIENT
) -> bytes:
    """The range of the server's object, read through S3Storage."""
    with closing(storage_at(server, settings)) as storage:
        return await fetch_from(storage, progress)


def storage_at(server: ScriptedHttp, settings: ColdSettings = PATIENT) -> S3Storage:
    return S3Storage(S3Location("bucket", endpoint_url=server.url.origin, region="us-east-1"), settings)


async def fetch_from(storage: S3Storage, progress: Callable[[int], None] | None = None) -> bytes:
    buffer = bytearray(LENGTH)
    ask = partial(storage.read_into, if_match=ETAG, progress=progress)
    await trio.to_thread.run_sync(ask, "o", START, memoryview(buffer))
    return bytes(buffer)


async def test_the_general_client_fetches_what_is_missing(serve: Serve, nursery: trio.Nursery) -> None:
    rest = head(START + CUT, LENGTH - CUT)
    server = await serve(nursery, (REQUEST, head(START, LENGTH), BODY[:CUT]), (REQUEST, rest, BODY[CUT:]))
    seen: list[int] = []
    assert await fetch(server, seen.append) == BODY
    assert f"bytes={START + CUT}-{END}" in server.requests[1][1].decode()
    assert (seen[-1], set(seen) <= {CUT, LENGTH}) == (LENGTH, True)


async def test_a_server_that_answers_otherwise_is_soon_asked_by_the_general_client_only(
    serve: Serve, nursery: trio.Nursery
) -> None:
    chunked = (REQUEST, *BAD["chunked"])
    server = await serve(nursery, *[chunked] * 7)
    with closing(storage_at(server)) as storage:
        for last in (False, False, True, True):
            assert await fetch_from(storage) == BODY
            assert (storage.range_url("o") is None) == last  # nor does the loop ask it any more
    agents = ["urllib3" in request.decode() for _, request in server.requests]
    assert agents == [False, True, False, True, False, True, True]


@pytest.mark.parametrize(
    ("said", "message", "settings"),
    [
        (BAD["500 Internal Server Error"], "500", PATIENT),
        (BAD["503 Slow Down"], "503", PATIENT),
        ((), "in time", HASTY),
    ],
    ids=["500", "503", "silence"],
)
async def test_a_server_that_fails_or_is_silent_is_not_asked_twice(
    serve: Serve, nursery: trio.Nursery, said: tuple[Step, ...], message: str, settings: ColdSettings
) -> None:
    server = await serve(nursery, (REQUEST, *said, AWAIT_CLOSE))
    with pytest.raises(Unavailable, match=message):
        await fetch(server, settings=settings)
    assert len(server.requests) == 1
