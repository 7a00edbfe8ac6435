"""Random readers whose small fetches run on the loop, against a server that fails, damages and holds back answers."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import quote, unquote

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from tests.reading.fetch.chaos import ChaoticStorage, CheckedPool
from tests.reading.test_property import DEADLINE_S, ODDS, PATIENCE_S, STORE_ID, EagerHedges
from tests.servers.scripted_http import ServerTls, Stream, head
from tests.stores import TestStore, open_test_store
from tierfs.chunkstore.protocol import RangeUrl
from tierfs.config import ReadSettings
from tierfs.errors import DataLoss, NotFound, Unavailable
from tierfs.metrics import NullMetrics
from tierfs.reading.cache.cache import DiskCache
from tierfs.reading.handle import ReadHandle
from tierfs.reading.reader import Reader
from tierfs.types import MIB

_RECEIVE_BYTES = 64 * 1024
_REQUEST = re.compile(rb"GET /(\S*) HTTP/1.1\r\n.*Range: bytes=(\d+)-(\d+)\r\n", re.DOTALL)
_REFUSALS = (
    b"HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\n",
    b"garbage\r\n\r\n",
    b"",
)
DATA = random.Random(2).randbytes(6 * MIB)
POLICY = {"chunk_bytes": str(MIB), "object_bytes": str(2 * MIB), "read_priority": "local-first"}
SIZES = (1, 4096, 100_000, 131_072, 300_001)
READERS = 6
READS = 60
CACHE_BYTES = 2 * MIB
ENOUGH = 3
"""Answers that were taken whole; fewer of them prove nothing."""


class ServedStorage(ChaoticStorage):
    """Its objects have URLs, where the same odds hold."""

    def __init__(self, chosen: random.Random, encrypted: ServerTls | None) -> None:
        super().__init__(chosen)
        self.origin = ""
        self._encrypted = encrypted
        self.served = 0
        """Right answers sent."""

    def range_url(self, name: str) -> RangeUrl | None:
        return RangeUrl(self.origin, "/" + quote(name), None if self._encrypted is None else self._encrypted.trusting)

    async def start(self, nursery: trio.Nursery) -> None:
        """Serve on the loopback address."""
        (listener,) = await nursery.start(partial(trio.serve_tcp, self._serve, 0, host="127.0.0.1"))
        scheme = "http" if self._encrypted is None else "https"
        self.origin = "{}://{}:{}".format(scheme, *listener.socket.getsockname())

    async def _serve(self, plain: trio.SocketStream) -> None:
        stream = plain if self._encrypted is None else self._encrypted.wrap(plain)
        try:
            while (request := await _receive(stream)) is not None and await self._answer(stream, request):
                pass
        except trio.BrokenResourceError:
            pass  # the client left without hearing the rest

    async def _answer(self, stream: Stream, request: re.Match[bytes]) -> bool:
        """Answer one request, well or not; False when the connection is of no more use."""
        chosen, odds = self._chosen, self.odds
        await self._perhaps_pause()
        if chosen.random() < odds.fails:
            await stream.send_all(chosen.choice(_REFUSALS))
            return False
        start, end = int(request[2]), int(request[3]) + 1
        try:
            held = self._get(unquote(request[1].decode()))
        except NotFound:
            await stream.send_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
            return True
        body = bytearray(held.data[start:end])
        last = chosen.random() < odds.fails
        await stream.send_all(head(start, len(body), *["Connection: close"] * last, etag=f'"{held.found.etag}"'))
        whole = chosen.random() >= odds.fails_halfway
        damaged = chosen.random() < odds.damages
        if damaged:
            body[chosen.randrange(len(body))] ^= 1
        at = chosen.randrange(len(body))
        await stream.send_all(body[:at])
        await self._perhaps_pause()
        if whole:
            await stream.send_all(body[at:])
            self.served += not damaged
        return whole and not last

    async def _perhaps_pause(self) -> None:
        if self._chosen.random() < self.odds.held_back:
            event = trio.Event()
            self._held_back.append(event)  # type: ignore[arg-type]  # set on the loop
            await event.wait()


async def _receive(stream: Stream) -> re.Match[bytes] | None:
    """The next request; None when the client has closed."""
    received = b""
    while not received.endswith(b"\r\n\r\n"):
        part = await stream.receive_some(_RECEIVE_BYTES)
        if not part:
            return None
        received += part
    return _REQUEST.match(received)


async def read_here_and_there(world: World, seed: int) -> None:
    """One process; sometimes it opens the file again, and sometimes it does not wait for its answer."""
    chosen = random.Random(seed)
    handle = world.open()
    for _ in range(READS):
        if chosen.random() < 0.2:
            handle.close()
            handle = world.open()
        offset, size = chosen.randrange(len(DATA)), chosen.choice(SIZES)
        with trio.CancelScope() as scope:
            if chosen.random() < 0.1:
                scope.deadline = trio.current_time() + PATIENCE_S
            try:
                found = bytes(await handle.read(offset, size))
            except (Unavailable, DataLoss) as exc:
                if world.storage.odds.harmless or "no answer within" in str(exc):
                    raise
            else:
                assert found == DATA[offset : offset + size]
    handle.close()


async def release(storage: ServedStorage) -> None:
    """Release held back reads one by one, each when everything else is blocked."""
    while True:
        with trio.move_on_after(PATIENCE_S):  # hedges keep the loop from ever being idle
            await wait_all_tasks_blocked()
        storage.release_one()


@dataclass
class World:
    """A cold segment and its readers."""

    store: TestStore
    storage: ServedStorage
    reader: Reader

    def open(self) -> ReadHandle:
        return self.reader.open(self.store.segment("s").id)

    async def run(self, seed: int) -> None:
        """Then everything must be given back."""
        pool = self.reader.spans.pool = CheckedPool(self.reader.settings.budget_bytes)
        async with trio.open_nursery() as nursery:
            await self.storage.start(nursery)
            async with self.reader:
                nursery.start_soon(release, self.storage)
                async with trio.open_nursery() as readers:
                    for number in range(READERS):
                        readers.start_soon(read_here_and_there, self, seed * READERS + number)
                while self.reader.fetcher.busy:
                    await self.reader.spans.wait_room()
                for span in list(self.reader.spans._order.values()):
                    assert span.complete
                    self.reader.spans.drop(span)
                assert (pool.used_bytes, pool.out, self.reader.fetcher._gets.running) == (0, set(), 0)
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize("odds", ODDS)
@pytest.mark.parametrize("cached", [False, True], ids=["memory", "disk"])
@pytest.mark.parametrize("seed", range(2))
async def test_every_reply_is_right(
    tmp_path: Path, odds: str, cached: bool, seed: int, server_tls: ServerTls, expected_warnings: list[str]
) -> None:
    """Every second seed is over TLS."""
    expected_warnings.append("waits for a tier that does not answer")
    chosen = random.Random(f"{seed} {odds} {cached}")
    storage = ServedStorage(random.Random(chosen.random()), server_tls if seed % 2 else None)
    settings = ReadSettings(
        budget_bytes=chosen.choice([2, 4]) * MIB, urgent_streams=chosen.choice([1, 4, 16]), deadline_s=DEADLINE_S
    )
    with open_test_store(tmp_path / "store", policy=POLICY, cold=storage) as store:
        store.append("s", DATA, seal=True)
        store.offload("s")
        store.evict("s")
        storage.odds = ODDS[odds]
        cache_bytes = CACHE_BYTES if cached else 0
        cache = DiskCache.open(tmp_path / "cache", STORE_ID, cache_bytes, NullMetrics(), free_floor_bytes=0)
        reader = Reader(store.metadata, store.files, lambda _: storage, settings, NullMetrics(), cache)
        if chosen.random() < 0.5:
            reader.fetcher._hedges = EagerHedges()
        await World(store, storage, reader).run(seed)
    assert storage.served > ENOUGH
