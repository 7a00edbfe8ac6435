"""A second store at the path of one that was removed, while readers and writers of the first have it open."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass

from tests.simulation.checks.comparing import equal, read, require
from tests.simulation.faces.files import Files
from tests.simulation.invariants import invariant
from tests.simulation.places import reader_of
from tests.simulation.world import World, Wrong, shown
from tests.stores import TestStore, open_test_store
from tierfs.base.words.errors import Fenced, TierfsError
from tierfs.base.words.types import SegmentId
from tierfs.engine.chunkstore.memory import MemoryStorage
from tierfs.engine.segments.writer import SegmentWriter
from tierfs.reading.handle import ReadHandle
from tierfs.reading.read_loop import ReadLoop
from tierfs.reading.reader import StoreReader

_MOST = 3
"""Segments that are open."""

_LOOK_S = 1.0
"""From then on a process knows."""


@dataclass
class _First:
    """What has the first store open."""

    store: TestStore
    bytes: dict[str, bytes]
    writers: dict[str, SegmentWriter]
    loop: ReadLoop
    handles: dict[str, ReadHandle]
    ids: dict[str, SegmentId]
    files: Files

    @classmethod
    def opened(cls, world: World, names: list[str], stack: ExitStack) -> _First:
        store, model = world.store, world.model.live

        def make_reader() -> StoreReader:
            return reader_of(world.places, store.metadata, store.files, store.path)

        loop = stack.enter_context(closing(ReadLoop(make_reader)))
        files = stack.enter_context(closing(Files(store.metadata, make_reader)))
        ids = {name: store.segment(name).id for name in names}
        writers = {name: store.engine.open_writer(name) for name in names if not model[name].sealed}
        handles = {name: loop.open(ids[name], None) for name in names}
        found = cls(store, {name: read(store, name) for name in names}, writers, loop, handles, ids, files)
        for name in names:
            require(found.by_handle(name) == found.bytes[name], f"{name} has other bytes")
        return found

    def by_handle(self, name: str) -> bytes:
        """Read by what was opened before."""
        start = self.handles[name].segment.start_offset
        view = memoryview(bytearray(len(self.bytes[name])))
        return bytes(view[: self.loop.read_into(self.handles[name], start, view)])

    def opened_later(self, name: str) -> bytes:
        """Read by what is opened now, in what is open."""
        handle = self.loop.open(self.ids[name], None)
        view = memoryview(bytearray(len(self.bytes[name])))
        return bytes(view[: self.loop.read_into(handle, handle.segment.start_offset, view)])

    def by_files(self, name: str) -> bytes:
        """Read by fsspec's file system."""
        data = self.files.cat_file(name)
        assert isinstance(data, bytes)
        return data

    def by_command(self, name: str) -> bytes:
        """Read as `cat` does."""
        return read(self.store, name)

    def readings(self) -> Iterator[Callable[[str], bytes]]:
        """Yield all ways of reading."""
        yield from (self.by_handle, self.opened_later, self.by_files, self.by_command)


@invariant(3, 7)
def a_second_store_at_its_path(world: World, chance: random.Random) -> None:
    """What has the first one open refuses, a second later at last; nothing of one is in the other."""
    names = world.model.of_bytes[:_MOST]
    if not names:
        return
    contents = {name: chance.randbytes(chance.randint(1, 200)) for name in (*names, "second")}
    with ExitStack() as stack:
        first = _First.opened(world, names, stack)
        storage = _make_second(world, contents, stays_open=chance.random() < 0.5, stack=stack)
        if chance.random() < 0.5:
            _require_no_others_bytes(first, names)
        world.clock.advance(_LOOK_S)
        _require_refused(first, names)
        second = TestStore.opened(world.store.path, storage, world.clock, world.knobs.settings)
        stack.callback(second.close)
        _require_refused(first, names)
        equal("names", set(shown(second.metadata)), contents.keys())
        equal("the second store", {name: read(second, name) for name in contents}, contents)
        second.append("second", b"more")
        second.offload()
        second.evict()
        equal("what is added", read(second, "second"), contents["second"] + b"more")
    world.store.kill()


def _make_second(world: World, contents: dict[str, bytes], *, stays_open: bool, stack: ExitStack) -> MemoryStorage:
    """Remove the store, and make another one there, with a bucket of its own; this process has it open, or another."""
    path, storage = world.store.path, MemoryStorage(world.clock)
    knobs, made_at = world.knobs, path if stays_open else path.with_name("second")
    shutil.rmtree(path)
    with ExitStack() as making:
        opened = open_test_store(made_at, policy=knobs.policy, cold=storage, settings=knobs.settings, clock=world.clock)
        store = (stack if stays_open else making).enter_context(opened)
        for name, data in contents.items():
            store.append(name, data)
    if not stays_open:
        made_at.rename(path)
    return storage


def _require_no_others_bytes(first: _First, names: list[str]) -> None:
    """For a second it may go on with what it has open; what it acknowledges ends with it."""
    for name in names:
        for way in first.readings():
            with suppress(TierfsError, OSError):
                require(way(name) == first.bytes[name], f"{name} has the second store's bytes, read {way.__name__}")
        if name in first.writers:
            with suppress(TierfsError):
                first.writers[name].append(b"lost")


def _require_refused(first: _First, names: list[str]) -> None:
    for name in names:
        for way in first.readings():
            try:
                data = way(name)
            except (Fenced, OSError):
                continue
            if way == first.by_handle and data == first.bytes[name]:
                continue  # as of any file that was removed while it is open
            raise Wrong(f"{name} is read {way.__name__} in a store that was removed: {data!r}")
        if name in first.writers:
            try:
                first.writers[name].append(b"lost")
            except TierfsError:  # of the directory that is gone, where a file comes before a commit
                continue
            raise Wrong(f"{name} takes bytes in a store that was removed")
