"""A store with one cold chunk that threads and a scripted server have, and reads of its blocks."""

from __future__ import annotations

import random
import threading
from collections import deque

import trio
import trio.lowlevel
from trio.testing import wait_all_tasks_blocked

from tests.reading.fetch.chaos import CheckedPool
from tests.servers.scripted_http import Do, Script, ScriptedHttp, head
from tests.stores import TestStore
from tierfs.chunkstore.memory import MemoryStorage
from tierfs.chunkstore.protocol import OnReceived, RangeUrl
from tierfs.metrics import Metrics
from tierfs.reading.reader import Reader
from tierfs.types import CRC_BLOCK_BYTES, MIB

BLOCK = CRC_BLOCK_BYTES
BLOCKS = 8
DATA = random.Random(5).randbytes(BLOCKS * BLOCK)
POLICY = {"chunk_bytes": str(MIB), "object_bytes": str(MIB), "read_priority": "local-first"}
REQUEST, AWAIT_CLOSE, AWAIT_GO, TELL = Do.AWAIT_REQUEST, Do.AWAIT_CLOSE, Do.AWAIT_GO, Do.TELL
PATIENCE_S = 60.0
"""A test that takes longer waits for something that will not happen."""


class RangedStorage(MemoryStorage):
    """Objects a scripted server has too; counts, holds back and damages what threads read."""

    def __init__(self) -> None:
        super().__init__()
        self.url: RangeUrl | None = None
        self.reads: list[tuple[int, int]] = []
        """Offset and length of each read of a chunk."""
        self.damages: deque[int] = deque()
        """Offsets, in their buffers, of the damage of the next reads."""
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Semaphore(0)

    def range_url(self, name: str) -> RangeUrl | None:
        return self.url

    def read_into(
        self,
        name: str,
        offset: int,
        buffer: memoryview,
        *,
        if_match: str | None = None,
        progress: OnReceived | None = None,
    ) -> None:
        if not name.startswith("segments/"):
            super().read_into(name, offset, buffer, if_match=if_match, progress=progress)
            return
        self.reads.append((offset, len(buffer)))
        self.entered.release()
        assert self.gate.wait(PATIENCE_S), "forgotten"
        super().read_into(name, offset, buffer, if_match=if_match)
        if self.damages:
            buffer[self.damages.popleft()] ^= 1
        if progress is not None:
            progress(len(buffer))

    @property
    def etag(self) -> str:
        """That of the only chunk."""
        (chunk,) = self.list("segments/")
        return chunk.etag


Bench = tuple[TestStore, Metrics]


async def read(reader: Reader, bench: Bench, first: int, count: int = 1) -> bytes:
    """Some blocks of the segment, by a handle of its own: no reader is sequential."""
    handle = reader.open(bench[0].segment("s").id)
    try:
        return bytes(await handle.read(first * BLOCK, count * BLOCK))
    finally:
        handle.close()


def blocks(first: int, count: int = 1) -> bytes:
    return DATA[first * BLOCK : (first + count) * BLOCK]


async def serve(nursery: trio.Nursery, storage: RangedStorage, *scripts: Script) -> ScriptedHttp:
    server = await ScriptedHttp(scripts).start(nursery)
    storage.url = server.url
    return server


def good(storage: RangedStorage, first: int, count: int = 1) -> tuple[bytes, bytes]:
    """Head and body of the right answer."""
    start, body = first * BLOCK, blocks(first, count)
    answer = head(start, len(body), etag=f'"{storage.etag}"')
    return answer, body


async def all_ended(reader: Reader) -> None:
    """Wait for the fetches, then drop what they fetched: all memory comes back.

    Not by checkpoints: the server sends a script's next step when everybody waits.
    """
    with trio.fail_after(PATIENCE_S):
        while reader.fetcher.busy:
            await wait_all_tasks_blocked()
    for span in list(reader.spans._order.values()):
        reader.spans.drop(span)
    pool = reader.spans.pool
    assert isinstance(pool, CheckedPool)
    assert (pool.used_bytes, pool.out) == (0, set())


def counted(metrics: Metrics, line: str) -> bool:
    return line in metrics.exposition().decode().splitlines()
