"""World: one life of a store whose disk, bucket and clock are simulated, beside the memory of what it must hold."""

from __future__ import annotations

import logging
import os
import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch
from weakref import WeakKeyDictionary

from tests.doubles.at_once import AtOnce
from tests.simulation.damages import Damages
from tests.simulation.disk import SimDisk
from tests.simulation.knobs import Knobs, turned
from tests.simulation.model import Model, Shown, Stamp
from tests.simulation.points import Death, Points
from tests.simulation.steps import VERBS, NothingToDo, Step
from tests.simulation.storage import ReadersStorage, SimStorage
from tests.stores import TestStore, open_test_store
from tierfs import osio, parallel
from tierfs.chunkstore.memory import MemoryStorage
from tierfs.chunkstore.protocol import BufferSource
from tierfs.chunkstore.resilient import ResilientStorage
from tierfs.clock import ClockReading, ManualClock
from tierfs.errors import DataLoss, NotFound, Unavailable
from tierfs.garbage.clocks import ClockDisagrees
from tierfs.metadata import directories, entries, environment, tables
from tierfs.metadata.directories import Entry
from tierfs.metadata.records import SegmentRecord
from tierfs.metadata.store import MetadataStore
from tierfs.segments.writer import SegmentWriter
from tierfs.types import ROOT_DIRECTORY, Ack, EntryKind, SegmentId, SegmentKind

if TYPE_CHECKING:
    from tests.simulation.verbs.dumps import Dumped
    from tests.simulation.verbs.streams import Reading

NAMES = ("a", "b", "d/c", "d/e", "d/f/g")

LEDGERS = "m"
"""The managed ledger."""

_BEGIN_MS = 2_500_000_000_000
"""Later than the times of the real files, so that all of them are old."""

FOREIGN = {"theirs": b"of another program", "segments/a/theirs": b"put there by hand", "packs/theirs": b"the same"}
"""Objects that are not ours."""

_MIDDLE = 60
"""The step whose bucket is kept."""

_RECENT = 0.4
"""Share of the draws of a segment that stay with the one before."""

_RECORDS = 1024
"""Remembered of each table."""

_TICK_S = 0.001
"""Time that every step takes."""


class Wrong(AssertionError):
    """The store is not what it must be."""


class WorldClock(ManualClock):
    """A clock that knows the time."""

    true_s = 0.0
    """Seconds that have passed."""
    off_s = 0.0
    """By which the wall clock is ahead of the right time."""

    def advance(self, delay_s: float) -> None:
        super().advance(delay_s)
        self.true_s += delay_s

    def jump(self, delay_s: float) -> None:
        super().jump(delay_s)
        self.off_s += delay_s

    def restart(self, rested_s: float, *, ahead_s: float = 0) -> None:
        super().restart(rested_s, ahead_s=ahead_s)
        self.true_s += rested_s
        self.off_s += ahead_s

    @property
    def right_ms(self) -> int:
        """What the wall clock should show."""
        return self.now_ms() - round(self.off_s * 1000)


class Errors(logging.Handler):
    """Keeps what the product logged as an error."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep one."""
        self.records.append(record)

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Keep errors while the block runs."""
        logger = logging.getLogger("tierfs")
        logger.addHandler(self)
        try:
            yield
        finally:
            logger.removeHandler(self)


@dataclass
class World:
    """A store and the model of it."""

    path: Path
    knobs: Knobs
    store: TestStore
    disk: SimDisk
    storage: SimStorage
    for_readers: ReadersStorage
    clock: WorldClock
    points: Points
    errors: Errors
    model: Model = field(default_factory=Model)
    maybe: Model | None = None
    """The state if the verb in work has happened."""
    ever: dict[int, tuple[bytes, ...]] = field(default_factory=dict)
    """By segment id, those that are gone included: the byte at an offset never changes, but that a load of a dump goes
    on from where that ended."""
    attempts: dict[int, list[bytes]] = field(default_factory=dict)
    """By segment id, what a change that failed would have made of it."""
    dumps: dict[str, Dumped] = field(default_factory=dict)
    """By the object's name, whether it came into the bucket or not."""
    promised: dict[int, int] = field(default_factory=dict)
    """By segment id: the end of what a verb said to be in the bucket."""
    writers: dict[str, SegmentWriter] = field(default_factory=dict)
    done: list[Step] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    """Steps by their verb, for those that found something to do."""
    faulty: bool = False
    """Whether a call of the storage may fail in this step."""
    newest_ms: int = 0
    """The latest time that the wall clock ever showed."""
    latest_ms: int = 0
    """The latest since a time was accepted, of those that were not ahead of the right one."""
    moving: tuple[str, SimStorage] | None = None
    """A place that the store may have by now, and its URL."""
    left: list[MemoryStorage] = field(default_factory=list)
    """The places before."""
    replica: TestStore | None = None
    replicated: dict[int, int] = field(default_factory=dict)
    """Lengths that it showed, by inode."""
    readings: dict[str, Reading] = field(default_factory=dict)
    """Streams by what they read."""
    reopened: set[SegmentId] = field(default_factory=set)
    """Segments that were unsealed once, or gone."""
    loaded: set[SegmentId] = field(default_factory=set)
    """Segments that came back by a dump."""
    unsure: set[int] = field(default_factory=set)
    """Numbers of bytes that a stream may read again or pass by: their segment was gone, and came back."""
    _bytes: int = 0
    _noted: Model | None = None
    damages: Damages = field(default_factory=Damages)
    new_process: bool = False
    """Whether the process ended in the last step, so that all readers are gone."""
    changed: list[str] = field(default_factory=list)
    """Segments with another content since the last step."""
    earlier: dict[str, Any] = field(default_factory=dict)
    """The objects of the bucket as they once were."""

    def step(self, step: Step) -> int:
        """Do one step; return the number of points it passed. Raises Wrong."""
        before = self.model.live
        self.done.append(step)
        if len(self.done) == _MIDDLE:
            self.earlier = dict(self.storage.inner._objects)
        self.clock.advance(_TICK_S)
        self.latest_ms = max(self.latest_ms, min(self.clock.now_ms(), self.clock.right_ms))
        self.newest_ms = max(self.newest_ms, self.clock.now_ms())
        self.new_process = False
        self.storage.begin(step.fault)
        self.faulty = step.fault is not None or self.storage.is_away
        self.points.arm(0 if step.end is None else step.end.point)
        try:
            VERBS[step.verb].run(self, step.arguments)
            self.counts[step.verb] = self.counts.get(step.verb, 0) + 1
        except NothingToDo:
            pass
        except ClockDisagrees:
            self.counts["paused"] = self.counts.get("paused", 0) + 1
        except Unavailable:
            if not self.faulty:
                raise
        except (DataLoss, NotFound):
            if not self.damages:
                raise
        except Death:
            pass
        finally:
            passed = self.points.passed
            self.points.disarm()
        if step.end is not None:
            self.end_process(step.end.power)
        self.maybe = None
        VERBS[step.verb].afterwards(self)
        self.changed = [name for name, content in self.model.live.items() if content is not before.get(name)]
        self._note()
        return passed

    @contextmanager
    def change(self, after: Model) -> Iterator[None]:
        """Change the store in the block; at its end the change is acknowledged, and until then it may have happened."""
        self.maybe = after
        try:
            yield
        except BaseException:
            self._attempted(after)
            raise
        self.model, self.maybe = after, None

    def _attempted(self, after: Model) -> None:
        """Keep what a change that failed would have written: a pack of it may be in the bucket, with nothing named."""
        segments = listed(self.store.metadata)
        for name, content in after.live.items():
            if name in segments and content is not self.model.live.get(name):
                self.attempts.setdefault(segments[name].id, []).append(content.data)

    def end_process(self, power: int | None) -> None:
        """Kill the process, perhaps lose the power, and start again; find out which verb in work has happened."""
        self.new_process = True
        self.writers.clear()
        self.store.kill()
        if power is not None:
            self.disk.power_loss(random.Random(power))
        self.store.start()
        if self.maybe is not None and self.shown() == self.maybe.shown:
            self.model = self.maybe
        self.maybe = None

    @property
    def recent(self) -> str | None:
        """The segment of the last step that named a living one: steps about one segment meet each other."""
        for step in reversed(self.done[-3:]):
            if step.arguments.get("name") in self.model.live:
                return str(step.arguments["name"])
        return None

    def any_name(self, chance: random.Random) -> str:
        """Return a segment of bytes, often the recent one. Raises NothingToDo."""
        recent, names = self.recent, self.model.of_bytes
        return recent if recent in names and chance.random() < _RECENT else pick(chance, names)

    def shown(self) -> dict[str, Shown]:
        """Return what a listing of the store says."""
        return shown(self.store.metadata)

    def dated_ms(self) -> int:
        """Return the time that the store records for what happens now."""
        with self.store.metadata.read() as txn:
            return txn.store.clock_seen.dates(ClockReading.of(self.clock))

    def stamp(self, size: int) -> Stamp:
        """Return when bytes are written, and their numbers."""
        self._bytes += size
        return Stamp(self.clock.true_s, self._bytes - size)

    def came_back(self, name: str) -> None:
        """Note that a segment that was gone may be there again."""
        content = self.model.live.get(name)
        if content is not None:
            self.unsure |= content.numbers(0, len(content.data))
            self.reopened.add(self.store.segment(name).id)

    def accept_clock(self) -> None:
        """Go by the present time, and make nothing in the trash due later than it would be if it went there now.

        What was due before may be gone, and stays due.
        """
        latest_ms, now_ms = self.latest_ms, self.clock.now_ms()
        self.latest_ms, self.clock.off_s = now_ms, 0.0
        last_ms = now_ms + 1000 * int(self.knobs.policy["trash_age"])
        trash = {
            name: tuple(
                replace(removal, due_ms=min(removal.due_ms, now_ms if removal.due_ms <= latest_ms else last_ms))
                for removal in removed
            )
            for name, removed in self.model.trash.items()
        }
        self.model = replace(self.model, trash=trash)

    def promise(self, path: str) -> None:
        """Note that a verb made everything below a path cold and said so."""
        for name, segment in listed(self.store.metadata).items():
            below = f"{name}/".startswith(f"{path}/" if path else "")
            if below and (segment.kind is SegmentKind.BYTES or segment.sealed):
                self.promised[segment.id] = segment.length

    def _note(self) -> None:
        if self.model is self._noted:
            return
        self._noted = self.model
        segments = listed(self.store.metadata)
        living = {segment.id for segment in segments.values()}
        # What was removed is in the bucket's trash, where it stays until a restore is published.
        self.promised = {segment_id: end for segment_id, end in self.promised.items() if segment_id in living}
        for name, segment in segments.items():
            content = self.model.live.get(name)
            if content is not None:
                *before, last = self.ever.get(segment.id, (b"",))
                lives = [last] if not content.data.startswith(last) else []
                self.ever[segment.id] = (*before, *lives, content.data)

    def writer(self, name: str, ack: Ack = Ack.LOCAL) -> SegmentWriter:
        """Return the open writer of a segment; one that is opened now has this acknowledgment."""
        writer = self.writers.get(name)
        if writer is None:
            lacks = self.lacks_acknowledged(name)
            writer = self.writers[name] = self.store.engine.open_writer(name, ack=ack)
            if lacks:
                raise Wrong(f"{name} has a writer, though the file of its active chunk lost acknowledged bytes")
        return writer

    def lacks_acknowledged(self, name: str) -> bool:
        """Return whether the file of a segment's active chunk is shorter than what was acknowledged."""
        if name not in self.model.live or not self.store.segment(name).active:
            return False
        last = self.store.layout(name).local[-1]
        path = self.store.files.root / last.object.name
        return not path.exists() or path.stat().st_size < last.chunk.object_offset + last.chunk.length

    def close(self, first: TestStore) -> None:
        """Close the stores of other hosts than the first."""
        for store in (self.store, self.replica):
            if store is not None and store is not first:
                store.close()

    def without_writer(self, name: str) -> None:
        """Close the writer of a segment, if there is one."""
        writer = self.writers.pop(name, None)
        if writer is not None:
            self.store.engine.close_writer(writer)


_LISTED: WeakKeyDictionary[MetadataStore, tuple[int, dict[str, SegmentRecord]]] = WeakKeyDictionary()
"""By store, the listing of a transaction: several checks ask for the same after each step."""


def listed(metadata: MetadataStore) -> dict[str, SegmentRecord]:
    """Return all segments of a store by their names."""
    with metadata.read() as txn:
        kept = _LISTED.get(metadata)
        if kept is None or kept[0] != txn.id:
            below = directories.segments_below(txn, Entry("", EntryKind.DIRECTORY, ROOT_DIRECTORY), "")
            kept = _LISTED[metadata] = (txn.id, dict(below))
        return kept[1]


def shown(metadata: MetadataStore) -> dict[str, Shown]:
    """Return what a listing says of each segment."""
    with metadata.read() as txn:
        return {
            name: (each.start_offset, each.length, each.sealed, entries.count(txn, each.id))
            for name, each in listed(metadata).items()
        }


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
        if not knobs.threads:
            stack.enter_context(patch.object(parallel, "ThreadPoolExecutor", AtOnce))
        bucket = MemoryStorage(clock)
        for name, data in FOREIGN.items():
            bucket.put(name, BufferSource(data))
        storage = SimStorage(bucket, points)
        retried = connected(storage, knobs, clock)
        disk = SimDisk(path, points)
        path.mkdir()
        stack.enter_context(disk.attached())
        store = stack.enter_context(
            open_test_store(path, policy=knobs.policy, cold=retried, settings=knobs.settings, clock=clock)
        )
        disk.sync(path)  # as `init` does, behind everything it made
        world = World(path, knobs, store, disk, storage, ReadersStorage(bucket), clock, points, errors)
        stack.callback(world.close, store)
        yield world


def connected(storage: SimStorage, knobs: Knobs, clock: WorldClock) -> ResilientStorage:
    """Connect to a place, as a process does."""
    return ResilientStorage(storage, attempts=knobs.attempts, sleep=_at_once, clock=clock)


def _close_metadata(path: Path) -> None:
    """Close what deaths left open, as the end of a process does: a map of 1 TiB each."""
    for place in [place for place in environment._registry if place.is_relative_to(path)]:
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


def pick(chance: random.Random, things: list[Any]) -> Any:
    """Return one of the things. Raises NothingToDo without any."""
    if not things:
        raise NothingToDo
    return chance.choice(things)
