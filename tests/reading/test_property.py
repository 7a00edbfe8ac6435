"""Random readers of growing, moving and failing segments: every reply is right and whole, memory is bounded.

Seeded and not drawn by hypothesis: threads make the order of things different in each run, so that a failure
cannot be replayed and made smaller.
"""

from __future__ import annotations

import random
from contextlib import ExitStack
from dataclasses import dataclass, field
from math import inf
from pathlib import Path

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from tests.reading.fetch.chaos import ChaoticStorage, CheckedPool, Odds, serving
from tests.servers.scripted_http import ServerTls
from tests.stores import TestStore, open_test_store
from tierfs.base.options.config import ReadSettings
from tierfs.base.system.metrics import NullMetrics
from tierfs.base.words.errors import DataLoss, Unavailable
from tierfs.base.words.types import MIB, ByteRange, ReadPriority
from tierfs.engine.chunkstore.link import LEAST_STREAMS, Links
from tierfs.engine.segments.writer import SegmentWriter
from tierfs.reading.cache.cache import DiskCache
from tierfs.reading.fetch.hedge import HedgePolicy
from tierfs.reading.handle import ReadHandle
from tierfs.reading.reader import StoreReader

NAMES = ("a", "b", "c")
BYTES = random.Random(1).randbytes(6 * MIB)
STORE_ID = "0123456789abcdef" * 2
STEPS = (1, 4096, 100_000, 131_072, 300_001, MIB)
PARTS = (1, 5000, 131_072, 400_000, MIB)
READERS = 6
READS = 60
CACHE_BYTES = 5 * MIB
SEED = 1
DEADLINE_S = 60.0
"""Long enough for a busy machine; a read that takes longer waits for something that will not happen."""

PATIENCE_S = 0.002

ODDS = {
    "calm": Odds(),
    "late": Odds(held_back=0.1),
    "failing": Odds(fails=0.05, fails_halfway=0.1, held_back=0.02),
    "damaging": Odds(damages=0.1, held_back=0.02),
}


class EagerHedges(HedgePolicy):
    """Asks again at once, and always."""

    def __init__(self) -> None:
        super().__init__(Links(LEAST_STREAMS))
        self.delay_s = 0.001

    def note(self, first_byte_s: float) -> None:
        pass

    @property
    def allowed(self) -> bool:
        return True


@dataclass
class World:
    """A store with segments whose bytes are known, and what happens to them."""

    store: TestStore
    storage: ChaoticStorage
    chosen: random.Random
    lengths: dict[str, int] = field(default_factory=dict)
    writers: dict[str, SegmentWriter] = field(default_factory=dict)
    readers: int = 0

    def begin(self) -> None:
        """Segments to read: one cold, one that grows, one on both tiers."""
        for name in NAMES:
            self.lengths[name] = 0
            self.writers[name] = self.store.engine.open_writer(name)
            while self.lengths[name] < MIB:
                self.append(name)
        self.seal("a")
        for name in ("a", "c"):
            self.store.offload(name)
        self.store.evict("a")

    def append(self, name: str) -> None:
        """Some more bytes."""
        at = self.lengths[name]
        part = BYTES[at : at + self.chosen.choice(PARTS)]
        if part and name in self.writers:
            self.writers[name].append(part)
            self.lengths[name] += len(part)

    def seal(self, name: str) -> None:
        """No more bytes."""
        if name in self.writers:
            self.store.engine.close_writer(self.writers.pop(name))
            self.store.engine.seal(name)

    def happen(self) -> None:
        """One change by a writer or a keeper."""
        name = self.chosen.choice(NAMES)
        what = self.chosen.random()
        if what < 0.6:
            self.append(name)
        elif what < 0.8:
            self.store.offload(name)
        elif what < 0.97:
            self.store.evict(name)
        else:
            self.seal(name)


async def read_once(world: World, handle: ReadHandle, name: str, wanted: ByteRange) -> None:
    """One read: right, or an error if the cold tier makes any."""
    expected = BYTES[wanted.start : min(wanted.end, world.lengths[name])]
    try:
        found = bytes(await handle.read(wanted.start, wanted.length_bytes))
    except (Unavailable, DataLoss) as exc:
        if world.storage.odds.harmless or "no answer within" in str(exc):
            raise
    else:
        assert found == expected, f"{name}: {len(found)} bytes at {wanted.start}, {len(expected)} wanted"


async def read_at_random(world: World, reader: StoreReader, reads: int) -> None:
    """One process with one file open, which it reads in turn on and on, here and there, or from another place."""
    chosen = random.Random(world.chosen.random())
    handle: ReadHandle | None = None
    name, offset, step = NAMES[0], 0, STEPS[0]
    for _ in range(reads):
        if handle is None or chosen.random() < 0.05:
            if handle is not None:
                handle.close()
            name, offset, step = chosen.choice(NAMES), 0, chosen.choice(STEPS)
            priority = chosen.choice([ReadPriority.LOCAL_FIRST, ReadPriority.OFFLOADED_FIRST])
            handle = reader.open(world.store.segment(name).id, priority=priority)
        if chosen.random() < 0.15:
            offset, step = chosen.randrange(world.lengths[name]), chosen.choice(STEPS)
        with trio.move_on_after(PATIENCE_S if chosen.random() < 0.05 else inf):
            await read_once(world, handle, name, ByteRange(offset, offset + step))
        offset = (offset + step) % max(1, world.lengths[name])
        if chosen.random() < 0.3:
            await trio.lowlevel.checkpoint()
    if handle is not None:
        handle.close()
    world.readers -= 1


async def change_things(world: World) -> None:
    """Writers and keepers at work, as long as anybody reads; what is held back goes on when nothing else does."""
    while world.readers:
        with trio.move_on_after(PATIENCE_S):  # hedges keep the loop from ever being idle
            await wait_all_tasks_blocked()
        world.storage.release_one()
        if world.chosen.random() < 0.05:
            world.happen()


async def run(world: World, reader: StoreReader, reads: int) -> None:
    """Readers and writers beside each other; then everything must be given back."""
    pool = reader.spans.pool = CheckedPool(reader.settings.budget_bytes)
    async with reader, trio.open_nursery() as nursery:
        world.readers = READERS
        for _ in range(READERS):
            nursery.start_soon(read_at_random, world, reader, reads)
        await change_things(world)
        world.readers = 1
        nursery.start_soon(change_things, world)
        while reader.fetcher.busy:
            await reader.spans.wait_room()
        world.readers = 0
        kept = list(reader.spans._order.values())
        assert all(span.complete and not span.waiters for span in kept)
        assert len(pool.out) == len(kept)
        assert pool.used_bytes == sum(span.leader.buffer.class_bytes for span in kept if span.leader is not None)


@pytest.mark.parametrize("odds", ODDS)
@pytest.mark.parametrize(
    ("cached", "served"),
    [(False, ""), (True, ""), (False, "http"), (True, "https")],
    ids=["memory", "disk", "memory-http", "disk-https"],
)
async def test_every_reply_is_right(
    tmp_path: Path, odds: str, cached: bool, served: str, server_tls: ServerTls, expected_warnings: list[str]
) -> None:
    expected_warnings += ["is read from the", "is blocked"]
    await one_run(tmp_path, ODDS[odds], cached=cached, served=served, tls=server_tls, seed=SEED)


async def one_run(path: Path, odds: Odds, *, cached: bool, served: str, tls: ServerTls, seed: int) -> None:
    """Two readers, one after the other, the second with the disk cache of the first; `served`: over what also."""
    chosen = random.Random(f"{seed} {odds} {cached} {served}")
    storage = ChaoticStorage(random.Random(chosen.random()))
    policy = {
        "chunk_bytes": str(chosen.choice([200_000, 524_288, 2 * MIB])),
        "object_bytes": str(chosen.choice([700_000, 4 * MIB])),
    }
    with open_test_store(path / "store", policy=policy, cold=storage) as store, ExitStack() as stack:
        if served:
            encrypted = tls.serving if served == "https" else None
            server = stack.enter_context(serving(storage, random.Random(chosen.random()), encrypted))
            storage.tls = tls.trusting if encrypted else None
            server.bad, storage.origin = chosen.choice([0.0, 0.3]), server.origin
        world = World(store, storage, chosen)
        world.begin()
        storage.odds = odds
        for _ in range(2):
            reader = new_reader(world, path / "cache" if cached else None)
            await run(world, reader, reads=READS)


def new_reader(world: World, cache_directory: Path | None) -> StoreReader:
    """A reader with little memory."""
    chosen = world.chosen
    settings = ReadSettings(
        budget_bytes=chosen.choice([4, 8]) * MIB,
        streams=chosen.choice([1, 4]),
        urgent_streams=chosen.choice([1, 16]),
        deadline_s=DEADLINE_S,
    )
    cache = None
    if cache_directory is not None:
        cache = DiskCache.open(cache_directory, STORE_ID, CACHE_BYTES, NullMetrics(), free_floor_bytes=0)
    store = world.store
    reader = StoreReader(store.metadata, store.files, lambda _: world.storage, settings, NullMetrics(), cache)
    if chosen.random() < 0.5:
        reader.fetcher._hedges = EagerHedges()
    return reader
