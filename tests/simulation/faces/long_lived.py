"""Processes that read for long: they outlive the deaths of writers, moves and changes of address, and read on."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import trio

from tests.simulation.faces.files import Files
from tests.simulation.knobs import MOST_BLOCK_BYTES
from tests.simulation.model import Content
from tests.simulation.places import reader_of
from tests.simulation.world import World, Wrong, listed
from tierfs.app.open_segment import SegmentHandle
from tierfs.base.bytes.checksum import Buffer
from tierfs.base.bytes.progress import Meter
from tierfs.base.system.metrics import NullMetrics
from tierfs.base.words.errors import Fenced, TierfsError
from tierfs.base.words.types import ReadPriority, SegmentId
from tierfs.engine.chunkstore.local_files import ChunkFiles
from tierfs.engine.metadata import environment, tables
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.tables import SEGMENTS
from tierfs.reading.cache.cache import DiskCache
from tierfs.reading.cache.files import InUse
from tierfs.reading.cache.fill import PART_BYTES, Warmer, _parts, _Replaced
from tierfs.reading.cache.fill_plan import Target, WantedBytes, plan
from tierfs.reading.handle import ReadHandle
from tierfs.reading.reader import StoreReader
from tierfs.reading.stream import _copy_all, _require_living
from tierfs.upkeep.check.scrub.pieces import ScrubPiece, pieces
from tierfs.upkeep.check.scrub.scrub import Scrubber

_OPENED = 0.25
"""Share of the looks in which something is opened."""

_READ = 0.3
"""The same, in which something is read on."""

_CHECKED = 0.15
"""The same, in which the running check goes on."""

_FILLED = 0.1
"""The same, in which the cache of the disk is filled further."""

_CACHE_BYTES = 20_000
"""Less than all segments together, in most lives."""

_CACHE_ENDS_S = 30.0
_LOOK_AGAIN_S = 0.001

_MOST = 6
"""Things that are open at once."""

_MOST_PIECES = 4
"""Of a check, each time."""

_CHANGES = ("move", "readdress")
"""Steps after which all that is open is read on."""


@dataclass
class _Open:
    """A segment that is open."""

    name: str
    segment_id: SegmentId
    content: Content
    """As it was when it was opened."""


@dataclass
class _Handle(_Open):
    """One of a mount."""

    handle: ReadHandle

    async def read(self, start: int, end: int) -> bytes:
        return bytes(await self.handle.read(start, end - start))

    def close(self) -> None:
        self.handle.close()


@dataclass
class _File(_Open):
    """One of a Python program, or of fsspec."""

    handle: SegmentHandle

    async def read(self, start: int, end: int) -> bytes:
        data = bytearray(max(0, min(end, len(self.content.data)) - start))
        if start < self.content.start:
            return b""
        read = self.handle.read_into(start - self.content.start, memoryview(data))
        return bytes(data[:read])

    def close(self) -> None:
        self.handle.close()


@dataclass
class _Follower(_Open):
    """One of `cat -f`."""

    handle: ReadHandle
    offset: int
    data: bytearray = field(default_factory=bytearray)

    def write(self, data: Buffer) -> None:
        self.data += data

    def flush(self) -> None:
        """Nothing waits for it."""

    def check(self) -> None:
        """Its receiver stays."""

    def close(self) -> None:
        self.handle.close()


class LongLived:
    """What reads for long on one machine, until that ends. Files that rot unnoticed are for others to read."""

    def __init__(
        self, world: World, metadata: MetadataStore, files: ChunkFiles, reader: StoreReader, cache: DiskCache
    ) -> None:
        self._world = world
        self._metadata = metadata
        self._reader = reader
        storage_of = world.places.locations(metadata, world.store.path).storage_of
        self._files = Files(metadata, lambda: reader_of(world.places, metadata, files, world.store.path))
        self._scrubber = Scrubber(metadata, files, storage_of)
        self._pieces: Iterator[ScrubPiece] = iter(())
        self._warmer = Warmer(cache, metadata, storage_of, NullMetrics(), Meter(), 1, files)
        self._parts: Iterator[WantedBytes] = iter(())
        self._open: list[_Handle | _File | _Follower] = []

    def close(self) -> None:
        """End what has a thread."""
        self._files.close()

    async def look(self, chance: random.Random) -> None:
        """Read on. Raises Wrong."""
        world = self._world
        if world.damages or (world.has_archived and world.storage.inner.freezes):
            return
        has_moved = world.done[-1].verb in _CHANGES
        if world.model.live and chance.random() < _OPENED:
            self._open_another(chance)
        if has_moved or chance.random() < _CHECKED:
            self._check_on(chance)
        if has_moved or chance.random() < _FILLED:
            self._fill_on(chance)
        if has_moved or chance.random() < _READ:
            for opened in list(self._open) if has_moved else chance.sample(self._open, min(1, len(self._open))):
                await self._read_on(opened, chance)
            await self._reader.settle()  # what failed is proved and marked now, not in a second

    def _open_another(self, chance: random.Random) -> None:
        if len(self._open) >= _MOST:
            self._drop(chance.choice(self._open))
        world = self._world
        name = chance.choice(sorted(world.model.live))
        content, segment = world.model.live[name], listed(world.store.metadata)[name]
        priority = chance.choice((ReadPriority.LOCAL_FIRST, ReadPriority.OFFLOADED_FIRST))
        kind, opened = chance.random(), (name, segment.id, content)
        if kind < 0.4:
            handle = SegmentHandle(self._files._connected(), segment, priority)
            self._open.append(_File(*opened, handle))
        elif kind < 0.7 or content.sealed:  # what follows ends where a segment is sealed
            self._open.append(_Handle(*opened, self._reader.open(segment.id, priority=priority)))
        else:
            at = chance.randint(content.start, len(content.data))
            self._open.append(_Follower(*opened, self._reader.open(segment.id, priority=priority), at))

    def _drop(self, opened: _Handle | _File | _Follower) -> None:
        self._open.remove(opened)
        opened.close()

    async def _read_on(self, opened: _Handle | _File | _Follower, chance: random.Random) -> None:
        segments = listed(self._world.store.metadata)
        live = self._world.model.live
        now = next((live[name] for name in live if name in segments and segments[name].id == opened.segment_id), None)
        if isinstance(opened, _Follower):
            await self._follow(opened, now)
            return
        content = now or opened.content
        start = chance.randint(content.start, len(content.data))
        end = min(len(content.data), start + chance.choice([1, 50, 400]))
        where = f"{opened.name} {start} to {end}, read on by a {type(opened).__name__.lower()} opened before"
        try:
            data = await opened.read(start, end)
        except TierfsError as exc:
            if now is None and isinstance(exc, Fenced):
                self._drop(opened)
                return
            raise Wrong(f"{where}: {exc!r}") from exc
        except OSError as exc:
            if opened.segment_id in self._world.loaded:  # back by a dump, and shorter
                self._drop(opened)
                return
            raise Wrong(f"{where}: {exc!r}") from exc
        known = opened.content.start <= start < len(opened.content.data)
        if data != content.data[start : start + len(data)] or (known and not data and start < end):
            raise Wrong(f"{where}: {len(data)} bytes, which are wrong or too few")

    async def _follow(self, opened: _Follower, now: Content | None) -> None:
        """Go on to the end, as `cat -f` does when something was committed."""
        if now is None or len(now.data) < opened.offset or opened.offset < now.start:  # gone, back by a dump, cut off
            self._drop(opened)
            return
        begin = opened.offset
        opened.data.clear()
        try:
            opened.offset = await _copy_all(self._reader, opened.handle, opened.offset, opened)
            _require_living(self._reader, opened.handle, opened.offset)
        except TierfsError as exc:
            raise Wrong(f"{opened.name}, followed from {begin}: {exc!r}") from exc
        if opened.data != now.data[begin:]:
            raise Wrong(f"{opened.name}, followed from {begin}: {len(opened.data)} other bytes")
        if now.sealed:
            self._drop(opened)

    def _check_on(self, chance: random.Random) -> None:
        """Let the running check go on, or begin one: nothing is called damaged."""
        for _ in range(chance.randint(1, _MOST_PIECES)):
            piece = next(self._pieces, None)
            if piece is None:
                self._pieces = self._all_pieces()
                return
            living = {segment.id for segment in listed(self._world.store.metadata).values()}
            if piece.placed is None and piece.segment_id not in living:
                continue  # of the trash only the cold bytes are on a second host
            checked = self._scrubber.check(piece)
            if checked.bad and not checked.away:
                raise Wrong(f"a running check finds {checked.bad} of segment {piece.segment_id} bad: {checked.why}")

    def _fill_on(self, chance: random.Random) -> None:
        """Let the running warm-up go on, or begin one."""
        for _ in range(chance.randint(1, _MOST_PIECES)):
            part = next(self._parts, None)
            if part is None:
                self._parts = self._wanted_parts()
                return
            with suppress(_Replaced):
                self._warmer._fill(part, memoryview(bytearray(part.held.length_bytes + 2 * MOST_BLOCK_BYTES)))
            if self._warmer._error is not None:
                raise Wrong(f"a running warm-up says: {self._warmer._error}")

    def _wanted_parts(self) -> Iterator[WantedBytes]:
        with self._metadata.read() as txn:
            targets = [
                Target(name, segment.id, self._reader.read_priority(txn, segment))
                for name, segment in listed(self._world.store.metadata).items()
            ]
        for part, _ in _parts(plan(self._metadata, targets, _CACHE_BYTES).wanted, PART_BYTES):
            yield part

    def _all_pieces(self) -> Iterator[ScrubPiece]:
        with self._metadata.read() as txn:
            ids = [SegmentId(tables.read_u64(key)) for key, _ in txn.scan_raw(SEGMENTS.name)]
        for segment_id in ids:
            yield from pieces(self._metadata, segment_id)


async def _open_cache(directory: Path, store_id: str) -> DiskCache:
    """Open it as soon as the process before has ended: a block that its thread was writing is written first."""
    with trio.fail_after(_CACHE_ENDS_S):
        while True:
            try:
                return DiskCache.open_or_raise(directory, store_id, _CACHE_BYTES, NullMetrics(), free_floor_bytes=0)
            except InUse:
                await trio.sleep(_LOOK_AGAIN_S)


@asynccontextmanager
async def long_lived(world: World) -> AsyncIterator[LongLived]:
    """Start them on the machine of the store as it is now."""
    metadata = MetadataStore(world.store.path / "metadata", world.clock)
    # So that the metadata are closed with the process of a writer; reads open them again.
    environment.remove_user(metadata.path, metadata)
    files = ChunkFiles(world.store.path / "chunks")
    cache = await _open_cache(world.path.parent / "cache", metadata.store_id)
    # One process in two reads by the cache of the disk; what another filled, and a loss of power left, is there.
    of_reader, kept = (cache, None) if len(world.done) % 2 else (None, cache)
    try:
        async with reader_of(world.places, metadata, files, world.store.path, of_reader) as reader:
            readers = LongLived(world, metadata, files, reader, cache)
            try:
                yield readers
            finally:
                readers.close()
    finally:
        files.close()
        if kept is not None:
            kept.close()
