"""A background writer at work in fake time, over a cold tier that fails on demand."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import TypeVar

import trio

from tests.stores import TestStore
from tierfs.app.store import Store
from tierfs.base.options.config import BackgroundSettings
from tierfs.base.words.errors import Unavailable
from tierfs.base.words.types import ROOT_DIRECTORY
from tierfs.engine.chunkstore.memory import MemoryStorage
from tierfs.engine.chunkstore.protocol import Source, StoredObject
from tierfs.engine.metadata import policies
from tierfs.engine.metadata.holder_records import FailureRecord
from tierfs.engine.metadata.tables import FAILURES, GARBAGE, OUTBOX_NAME
from tierfs.upkeep.holder import kinds
from tierfs.upkeep.holder.failures import Failures
from tierfs.upkeep.holder.tasks import TaskLoop, TaskTable

T = TypeVar("T")

MINUTE_S = 60
HOUR_S = 3600
SETTLED_S = 3
"""Two ticks and a bit: what is due at once is done."""

SLOWLY = BackgroundSettings(tick_s=20, request_poll_s=20)
"""For hours of fake time: each tick takes milliseconds of ours."""


class TrioClock:
    """The wall clock of a fake world."""

    ahead_s = 0
    """Error of the wall clock."""

    def now_ms(self) -> int:
        return 1_700_000_000_000 + round((self.monotonic_s() + self.ahead_s) * 1000)

    def monotonic_s(self) -> float:
        try:
            return trio.current_time()
        except RuntimeError:
            return 0.0

    def boot_s(self) -> float:
        return self.monotonic_s()

    def boot_id(self) -> str:
        return "trio"


class FlakyStorage(MemoryStorage):
    """Fails while asked to."""

    down = False
    gone = False
    """Whether nothing is answered at all."""

    def list(self, prefix: str, *, after: str = "") -> Iterator[StoredObject]:
        if self.gone:
            raise Unavailable("the server does not answer")
        return super().list(prefix, after=after)

    def put(
        self, name: str, source: Source, *, metadata: Mapping[str, str] | None = None, create_only: bool = True
    ) -> StoredObject:
        if self.down:
            raise Unavailable("the server does not answer")
        return super().put(name, source, metadata=metadata, create_only=create_only)


class InLine:
    """No threads: everything happens in the trio loop, in an order that tests can repeat."""

    busy = False

    async def __call__(self, work: Callable[[], T], /) -> T:
        await trio.lowlevel.checkpoint()
        return work()

    async def idle(self) -> None:
        await trio.lowlevel.checkpoint()


@asynccontextmanager
async def working(store: TestStore, settings: BackgroundSettings | None = None) -> AsyncIterator[TaskTable]:
    """The background writer at work, by its table, while the block runs."""
    settings = settings or BackgroundSettings()
    loop = TaskLoop(store.metadata, Failures(store.metadata, settings), InLine())
    table = kinds.with_cold_tier(store.cold_work(), loop, settings)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(loop.run, table.tasks)
        yield table
        nursery.cancel_scope.cancel()


def set_policy(store: TestStore, **settings: str) -> None:
    with store.metadata.write() as txn:
        policies.put(txn, ROOT_DIRECTORY, {"chunk_bytes": "4", "object_bytes": "8", **settings})


def failures(store: TestStore | Store) -> list[FailureRecord]:
    with store.metadata.read() as txn:
        return [row for _, row in txn.scan(FAILURES)]


def nothing_left(store: TestStore) -> bool:
    with store.metadata.read() as txn:
        return not txn.count(GARBAGE.name) and not txn.count(OUTBOX_NAME)
