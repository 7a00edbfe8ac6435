"""A first cold read: rehearsed before a mount is announced, and few calls deep on its way to the socket."""

from __future__ import annotations

import random
import socket
import ssl
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import FrameType
from urllib.parse import unquote

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.doubles.scripted_storage import ALWAYS, ScriptedStorage
from tests.reading.fetch.chaos import RangeServer, serving
from tests.reading.readers import check, make_cold, reader_of
from tests.servers.scripted_http import ServerTls
from tests.stores import TestStore, open_test_store
from tierfs.base.options.config import ColdSettings, ReadSettings
from tierfs.base.system.metrics import NullMetrics
from tierfs.base.words.errors import TierfsError, Unavailable
from tierfs.base.words.types import CRC_BLOCK_BYTES, LocationId
from tierfs.engine.chunkstore.memory import MemoryStorage
from tierfs.engine.chunkstore.place import Place
from tierfs.engine.chunkstore.protocol import ChunkStorage, StoredObject
from tierfs.engine.chunkstore.s3.location import S3Location
from tierfs.engine.chunkstore.s3.storage import S3Storage
from tierfs.engine.metadata.records import LocationRecord
from tierfs.reading.fetch.queue import FetchQueue
from tierfs.reading.handle import ReadHandle
from tierfs.reading.reader import StoreReader
from tierfs.reading.rehearsal import rehearse

_BUCKET = "bucket"


class Bucket(MemoryStorage):
    """Objects that a server looks for by the paths of signed URLs, too."""

    def stat(self, name: str) -> StoredObject:
        return super().stat(unquote(name.partition("?")[0]).removeprefix(f"{_BUCKET}/"))


@contextmanager
def over_http(store: TestStore, encrypted: ssl.SSLContext | None = None) -> Iterator[tuple[RangeServer, ChunkStorage]]:
    """The server, and the storage that reads the objects of a store, whose cold tier is a Bucket, from there."""
    with serving(store.cold, random.Random(1), encrypted) as server:
        location = S3Location(_BUCKET, endpoint_url=server.origin, region="us-east-1")
        record = LocationRecord(id=LocationId(1), url=f"s3://{_BUCKET}", writable=True)
        settings = ColdSettings()
        with closing(Place(record, Path(), settings).wrapped(S3Storage(location, settings), NullMetrics())) as cold:
            yield server, cold


async def test_a_few_bytes_of_a_cold_segment_are_read_and_nothing_stays_open(
    store: TestStore, storage: ScriptedStorage
) -> None:
    store.append("local", b"x" * 10)
    async with reader_of(store) as reader:
        await rehearse(reader)
        assert storage.reads == [], "nothing is cold"
    make_cold(store, "s")
    storage.reads.clear()
    async with reader_of(store) as reader:
        await rehearse(reader)
        assert [read.length_bytes for read in storage.reads] == [CRC_BLOCK_BYTES]
        assert len(reader.open_handles) == 0


@pytest.mark.parametrize("error", [Unavailable("down"), TierfsError("broken")])
async def test_what_goes_wrong_is_no_reason_not_to_mount(
    store: TestStore, storage: ScriptedStorage, error: TierfsError, expected_warnings: list[str]
) -> None:
    expected_warnings.append("is blocked")
    make_cold(store, "s")
    storage.fail("read", error, on=ALWAYS)
    async with reader_of(store) as reader:
        await rehearse(reader)
        assert len(reader.open_handles) == 0


async def test_a_cold_tier_that_does_not_answer_holds_up_nobody(
    store: TestStore, storage: ScriptedStorage, autojump_clock: MockClock
) -> None:
    make_cold(store, "s")
    held = storage.hold_next(8, "read")
    async with reader_of(store) as reader:
        began = trio.current_time()
        await rehearse(reader)
        assert trio.current_time() - began < 2
        for one in held:
            one.go_on()


async def test_who_reads_the_same_bytes_meanwhile_gets_them(store: TestStore, storage: ScriptedStorage) -> None:
    """Trio draws lots who goes on first: of thirty readers some come after a rehearsal that takes their bytes away."""
    make_cold(store, "s")
    held = storage.hold_next(8, "read")
    start = store.layout("s").cold[-1].range.start

    async def read() -> None:
        handle = reader.open(store.segment("s").id)
        await check(handle, start, 10)
        handle.close()

    async with reader_of(store, deadline_s=60.0) as reader, trio.open_nursery() as nursery:
        nursery.start_soon(rehearse, reader)
        for _ in range(30):
            nursery.start_soon(read)
        await wait_all_tasks_blocked()
        for one in held:
            one.go_on()


@pytest.mark.parametrize("encrypted", [False, True], ids=["http", "https"])
async def test_the_next_first_read_finds_all_ready_for_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server_tls: ServerTls, encrypted: bool
) -> None:
    """One GET rehearses; then a segment never read before takes one more, on that connection and without a thread."""
    monkeypatch.setattr(FetchQueue, "put", None)
    monkeypatch.setenv("AWS_CA_BUNDLE", str(server_tls.authority))
    with open_test_store(tmp_path / "store", policy={"read_priority": "local-first"}, cold=Bucket()) as store:
        for name in ("a", "b"):
            make_cold(store, name)
        with over_http(store, server_tls.serving if encrypted else None) as (server, cold):
            async with StoreReader(
                store.metadata, store.files, lambda _: cold, ReadSettings(), NullMetrics()
            ) as reader:
                await rehearse(reader)
                assert server.answers == 1
                for name in ("a", "b"):
                    handle = reader.open(store.segment(name).id)
                    await check(handle, 100, 1000)
                    handle.close()
        assert (server.answers, server.connections) == (3, 1)


MOST_FRAMES = 16


class Stacks:
    """The stacks that led to what was watched, innermost call first."""

    def __init__(self) -> None:
        self.to_socket: list[list[str]] = []
        self.to_queue: list[list[str]] = []

    def take(self, outermost: str) -> list[str]:
        """The names of the calls from `outermost` to the caller of the watched function."""
        names: list[str] = []
        frame: FrameType | None = sys._getframe(2)
        while frame is not None:
            names.append(frame.f_code.co_qualname)
            if names[-1] == outermost:
                return names
            frame = frame.f_back
        raise AssertionError(f"{outermost} did not call: {names}")


@pytest.fixture
def stacks(monkeypatch: pytest.MonkeyPatch) -> Stacks:
    """Watches what is sent, and what is queued for threads."""
    stacks = Stacks()
    connect, put = socket.create_connection, FetchQueue.put

    class Watched(socket.socket):
        def sendall(self, *args: object) -> None:
            stacks.to_socket.append(stacks.take("FetchQueue._work"))
            super().sendall(*args)  # type: ignore[arg-type]

    def watched(*args: object) -> socket.socket:
        return Watched(fileno=connect(*args).detach())  # type: ignore[arg-type]

    def watched_put(*args: object) -> None:
        stacks.to_queue.append(stacks.take(ReadHandle.read.__qualname__))
        put(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(socket, "create_connection", watched)
    monkeypatch.setattr(FetchQueue, "put", watched_put)
    return stacks


async def test_a_first_cold_read_is_at_most_sixteen_calls_deep(tmp_path: Path, stacks: Stacks) -> None:
    with (
        open_test_store(tmp_path / "store", policy={"read_priority": "local-first"}, cold=Bucket()) as store,
        over_http(store) as (server, cold),
    ):
        make_cold(store)
        async with StoreReader(store.metadata, store.files, lambda _: cold, ReadSettings(), NullMetrics()) as reader:
            handle = reader.open(store.segment("s").id)
            await check(handle, 0, 1000)
            handle.close()
        assert server.answers == len(stacks.to_socket) >= 1
    for stack in (*stacks.to_socket, *stacks.to_queue):
        assert len(stack) <= MOST_FRAMES, "\n".join(stack)
