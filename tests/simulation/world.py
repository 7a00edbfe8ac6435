"""World: one life of a store whose disk, bucket and clock are simulated, beside the memory of what it must hold."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from tests.doubles.classed_storage import ClassedStorage
from tests.doubles.manual_clock import ManualClock
from tests.simulation.damages import Damages
from tests.simulation.disk import SimDisk
from tests.simulation.knobs import Knobs
from tests.simulation.model import Model, Shown, Stamp
from tests.simulation.places import Places
from tests.simulation.points import Death, Points
from tests.simulation.steps import VERBS, NothingToDo, Step
from tests.simulation.storage import SimStorage
from tests.stores import TestStore
from tierfs.base.system.clock import TOLERANCE_S, ClockReading
from tierfs.base.words.errors import Archived, DataLoss, NotFound, Unavailable
from tierfs.base.words.types import ROOT_DIRECTORY, Ack, EntryKind, SegmentId, SegmentKind
from tierfs.engine.metadata import directories, entries
from tierfs.engine.metadata.directories import Entry
from tierfs.engine.metadata.records import SegmentRecord
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.segments.writer import SegmentWriter
from tierfs.tiering.garbage.clocks import ClockDisagrees

if TYPE_CHECKING:
    from tests.simulation.verbs.dumps import Dumped
    from tests.simulation.verbs.streams import Reading

NAMES = ("a", "b", "d/c", "d/e", "d/f/g")

LEDGERS = "m"
"""The managed ledger."""

FOREIGN = {"theirs": b"of another program", "segments/a/theirs": b"put there by hand", "packs/theirs": b"the same"}
"""Objects that are not ours."""

_MIDDLE = 60
"""The step whose bucket is kept."""

_RECENT = 0.4
"""Share of the draws of a segment that stay with the one before."""

_CREEP_S = 2 * TOLERANCE_S
"""By which a wall clock can be off, in two steps, before the store distrusts it."""

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
    rested_s = 0.0
    """For how long the machine was off before a start with a clock that is behind: nothing can tell the store."""

    def advance(self, delay_s: float) -> None:
        super().advance(delay_s)
        self.true_s += delay_s

    def jump(self, delay_s: float) -> None:
        super().jump(delay_s)
        self.off_s += delay_s
        self.rested_s = self.rested_s if self.off_s < 0 else 0.0

    def restart(self, rested_s: float, *, ahead_s: float = 0) -> None:
        super().restart(rested_s, ahead_s=ahead_s)
        self.true_s += rested_s
        self.off_s += ahead_s
        self.rested_s = self.rested_s + rested_s if self.off_s < 0 else 0.0

    @property
    def dated_s(self) -> float:
        """The earliest time by which the store may date what happens now: a clock that is slightly off is trusted."""
        slightly_off_s = self.off_s if -_CREEP_S <= self.off_s < 0 else 0.0
        return self.true_s - self.rested_s + slightly_off_s

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
    places: Places
    """All places by their addresses, as readers see them."""
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
    left: list[ClassedStorage] = field(default_factory=list)
    """The places before to which it may go back."""
    departed: SimStorage | None = None
    """The place that was left in this step."""
    replica: TestStore | None = None
    replicated: dict[int, int] = field(default_factory=dict)
    """Lengths that it showed, by inode."""
    readings: dict[str, Reading] = field(default_factory=dict)
    """Streams by what they read."""
    reopened: set[SegmentId] = field(default_factory=set)
    """Segments that were unsealed once, or gone."""
    loaded: set[SegmentId] = field(default_factory=set)
    """Segments that came back by a dump."""
    cloned: set[SegmentId] = field(default_factory=set)
    """Segments that began with the files and objects of another."""
    unsure: set[int] = field(default_factory=set)
    """Numbers of bytes that a stream may read again or pass by: their segment was gone, and came back."""
    has_archived: bool = False
    """Whether objects were moved to a class in which they must be restored before a read."""
    ruled: set[str] = field(default_factory=set)
    """Objects that a rule of the bucket moved, which no record tells."""
    _bytes: int = 0
    _noted: Model | None = None
    damages: Damages = field(default_factory=Damages)
    new_process: bool = False
    """Whether the process ended in the last step, and its readers with it."""
    new_machine: bool = False
    """Whether all processes did: the power was lost, the machine started again, or the store has another host."""
    changed: list[str] = field(default_factory=list)
    """Segments with another content since the last step."""
    earlier: dict[str, Any] = field(default_factory=dict)
    """The objects of the bucket as they once were."""

    def step(self, step: Step) -> int:
        """Do one step; return the number of points it passed. Raises Wrong."""
        before = self.model.live
        self.done.append(step)
        if len(self.done) == _MIDDLE:
            self.earlier = dict(self.storage.inner.objects)
        self.clock.advance(_TICK_S)
        self.latest_ms = max(self.latest_ms, min(self.clock.now_ms(), self.clock.right_ms))
        self.newest_ms = max(self.newest_ms, self.clock.now_ms())
        self.new_process = self.new_machine = False
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
        except Archived:
            if not self.has_archived:
                raise
            self.counts["archived"] = self.counts.get("archived", 0) + 1
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
        self.new_machine |= power is not None
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
        return Stamp(self.clock.dated_s, self._bytes - size)

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
        self.latest_ms, self.clock.off_s, self.clock.rested_s = now_ms, 0.0, 0.0
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
        if name not in self.model.live or not listed(self.store.metadata)[name].active:
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
    kept = _LISTED.get(metadata)
    if kept is not None and kept[0] == metadata.last_transaction_id():
        return kept[1]
    with metadata.read() as txn:
        below = dict(directories.segments_below(txn, Entry("", EntryKind.DIRECTORY, ROOT_DIRECTORY), ""))
        _LISTED[metadata] = (txn.id, below)
    return below


def shown(metadata: MetadataStore) -> dict[str, Shown]:
    """Return what a listing says of each segment."""
    with metadata.read() as txn:
        return {
            name: (each.start_offset, each.length, each.sealed, entries.count(txn, each.id))
            for name, each in listed(metadata).items()
        }


def pick(chance: random.Random, things: list[Any]) -> Any:
    """Return one of the things. Raises NothingToDo without any."""
    if not things:
        raise NothingToDo
    return chance.choice(things)
