"""GETs over HTTP and HTTPS in threads: time limits, progress, and the general client where they end."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial

import pytest
import trio
import trio.lowlevel
from urllib3.exceptions import ConnectTimeoutError

from tests.servers.answers import BAD, BODY, END, GOOD, LENGTH, REQUEST, START
from tests.servers.scripted_http import ETAG, Do, ScriptedHttp, Serve, ServerTls, head
from tierfs.chunkstore.http.in_thread import ThreadGets
from tierfs.chunkstore.s3.location import S3Location
from tierfs.chunkstore.s3.storage import S3Storage
from tierfs.config import ColdSettings
from tierfs.errors import Unavailable
from tierfs.types import CRC_BLOCK_BYTES, MIB

PATIENT = ColdSettings(read_timeout_s=600.0, connect_timeout_s=600.0, connections=2)
"""A wait for what does not come is as long as it takes: the limit of the test ends it."""
HASTY = replace(PATIENT, read_timeout_s=0.2, connect_timeout_s=0.2)
"""For servers that stay silent."""
AWAIT_CLOSE, AWAIT_GO, TELL = Do.AWAIT_CLOSE, Do.AWAIT_GO, Do.TELL
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


def test_who_does_not_accept_is_left_after_a_while() -> None:
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        waiting = stack.enter_context(socket.create_connection(listener.getsockname()))  # fills the backlog
        gets = stack.enter_context(closing(ThreadGets(f"http://127.0.0.1:{waiting.getpeername()[1]}", HASTY)))
        with pytest.raises(ConnectTimeoutError):
            gets.read_into("/", 0, memoryview(bytearray(1)), ETAG, None)


def test_who_does_not_shake_hands_is_left_after_a_while(server_tls: ServerTls) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        origin = f"https://127.0.0.1:{silent.getsockname()[1]}"
        with closing(ThreadGets(origin, HASTY, server_tls.trusting)) as gets, pytest.raises(ConnectTimeoutError):
            gets.read_into("/", 0, memoryview(bytearray(1)), ETAG, None)


async def test_what_came_before_the_connection_broke_counts(serve: Serve, nursery: trio.Nursery) -> None:
    server = await serve(nursery, (REQUEST, head(START, LENGTH), BODY[:CUT]))
    buffer = bytearray(LENGTH)
    with closing(gets_of(server)) as gets:
        assert await read(gets, buffer) == CUT
    assert buffer[:CUT] == BODY[:CUT]


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


async def test_a_connection_that_breaks_in_the_middle_is_left_at_once(serve: Serve, nursery: trio.Nursery) -> None:
    """Though fewer bytes are left than wake us there."""
    length, cut = 4 * MIB, 2 * MIB + 9
    server = await serve(nursery, (REQUEST, head(START, length), bytes(cut)))
    with closing(gets_of(server)) as gets:
        assert await read(gets, bytearray(length)) == cut


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
    server: ScriptedHttp,
    times: int = 1,
    progress: Callable[[int], None] | None = None,
    settings: ColdSettings = PATIENT,
) -> list[bytes]:
    """The range of the server's object, read through S3Storage."""
    with closing(storage_at(server, settings)) as storage:
        return [await fetch_from(storage, progress) for _ in range(times)]


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
    assert await fetch(server, progress=seen.append) == [BODY]
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


@pytest.mark.parametrize("status", ["500 Internal Server Error", "503 Slow Down"])
async def test_a_server_that_fails_is_not_asked_twice(serve: Serve, nursery: trio.Nursery, status: str) -> None:
    server = await serve(nursery, (REQUEST, *BAD[status], AWAIT_CLOSE))
    with pytest.raises(Unavailable, match=status[:3]):
        await fetch(server)
    assert len(server.requests) == 1


async def test_silence_is_not_waited_for_twice(serve: Serve, nursery: trio.Nursery) -> None:
    server = await serve(nursery, (REQUEST, AWAIT_CLOSE))
    with pytest.raises(Unavailable, match="did not answer in time"):
        await fetch(server, settings=HASTY)
    assert len(server.requests) == 1
