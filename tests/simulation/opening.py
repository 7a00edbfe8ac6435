"""Opens a new store in a world of its own: its disk, bucket, clock and chance are simulated, and its limits drawn."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

from tests.doubles.at_once import AtOnce
from tests.doubles.classed_storage import ClassedStorage
from tests.simulation.disk import SimDisk
from tests.simulation.knobs import Knobs, turned
from tests.simulation.places import Places
from tests.simulation.points import Points
from tests.simulation.storage import SimStorage
from tests.simulation.world import FOREIGN, Errors, World, WorldClock
from tests.stores import open_test_store
from tierfs.base.bytes import parallel
from tierfs.base.system import osio
from tierfs.engine.chunkstore import located
from tierfs.engine.chunkstore.protocol import BufferSource
from tierfs.engine.chunkstore.resilient import ResilientStorage
from tierfs.engine.metadata import environment, policies, tables
from tierfs.engine.metadata import store as metadata_store
from tierfs.tiering import compressed_source
from tierfs.tiering.compressed_source import FrameRoom

_BEGIN_MS = 2_500_000_000_000
"""Later than the times of the real files, so that all of them are old."""

_RECORDS = 1024
"""Remembered of each table."""


@contextmanager
def opened(path: Path, knobs: Knobs, seed: int) -> Iterator[World]:
    """A new store in `path`, in a world with these limits."""
    points, clock = Points(), WorldClock(_BEGIN_MS)
    with ExitStack() as stack:
        errors = Errors()
        stack.enter_context(errors.kept())
        stack.callback(_close_metadata, path.parent)
        stack.enter_context(turned(knobs))
        stack.enter_context(_seeded(seed))
        stack.enter_context(_decoded_once())
        stack.enter_context(patch.object(osio, "PageCache", _cache(tells=knobs.page_cache)))
        room = FrameRoom(knobs.constants["_FRAME_ROOM"])
        stack.enter_context(patch.object(compressed_source, "ROOM", room))
        if not knobs.threads:
            stack.enter_context(patch.object(parallel, "ThreadPoolExecutor", AtOnce))
        # Looks that are due by time are due by the world's.
        for module in (located, metadata_store):
            stack.enter_context(patch.object(module, "time", SimpleNamespace(monotonic=lambda: clock.true_s)))
        bucket = ClassedStorage(clock)
        for name, data in FOREIGN.items():
            bucket.put(name, BufferSource(data))
        storage = SimStorage(bucket, points)
        retried = connected(storage, knobs, clock)
        stack.enter_context(patch.object(policies, "has_classes", lambda _: True))
        disk = SimDisk(path, points)
        path.mkdir()
        stack.enter_context(disk.attached())
        store = stack.enter_context(
            open_test_store(path, policy=knobs.policy, cold=retried, settings=knobs.settings, clock=clock)
        )
        disk.sync(path)  # as `init` does, behind everything it made
        places = Places(bucket, lambda: world.storage.inner)
        stack.enter_context(places.connected())
        world = World(path, knobs, store, disk, storage, places, clock, points, errors)
        stack.callback(world.close, store)
        yield world


def connected(storage: SimStorage, knobs: Knobs, clock: WorldClock) -> ResilientStorage:
    """Connect to a place, as a process does."""
    return ResilientStorage(storage, attempts=knobs.attempts, sleep=_at_once, clock=clock)


def _close_metadata(path: Path) -> None:
    """Close what deaths left open, as the end of a process does: a map of 1 TiB each."""
    for place in [place for place in environment.environments if place.is_relative_to(path)]:
        environment.close_environment(place)


def _at_once(_: float) -> None:
    """Do not wait: no time passes unless the world says so."""


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Let chance be that of the seed, in the product too."""
    chance, state = random.Random(seed), random.getstate()
    random.seed(seed)
    with patch.object(os, "urandom", chance.randbytes), patch.object(random, "_urandom", chance.randbytes):
        yield  # `uuid` asks the one, `secrets` the other
    random.setstate(state)


@contextmanager
def _decoded_once() -> Iterator[None]:
    """Decode equal bytes of metadata once: every step looks at most of the records, which never change."""
    codecs = [table.codec for table in vars(tables).values() if isinstance(table, tables.Table)]
    with ExitStack() as stack:
        for codec in codecs:
            stack.enter_context(patch.object(codec, "decode", lru_cache(_RECORDS)(codec.decode)))
        yield


def _cache(*, tells: bool) -> type[osio.PageCache]:
    """Return a page cache that holds everything, or one of a file system that does not tell."""

    class DrawnPageCache(osio.PageCache):
        def __init__(self) -> None:
            super().__init__()
            self.tells = tells

        def read(self, fd: int, view: memoryview, offset: int) -> int:
            return os.preadv(fd, [view], offset) if tells else 0

    return DrawnPageCache
