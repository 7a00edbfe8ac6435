"""Moves of the cold tier, and a second process that has begun an object before one, beside it or outlives it."""

from __future__ import annotations

import copy
import random
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from unittest.mock import patch

from tests.app.batches.batch_writes import Driver
from tests.doubles.classed_storage import ClassedStorage
from tests.simulation.model import Content, Model
from tests.simulation.opening import connected
from tests.simulation.places import Fate
from tests.simulation.points import Death
from tests.simulation.steps import Arguments, NothingToDo, verb
from tests.simulation.storage import SimStorage
from tests.simulation.world import LEDGERS, World, Wrong
from tests.stores import LOCATION, KeptOpen, quiet
from tierfs.base.words.errors import Conflict, NotFound, Unavailable, Unconfirmed
from tierfs.base.words.types import Ack, Tier
from tierfs.engine.journal import publish, store_mark
from tierfs.engine.journal.reader import list_journal
from tierfs.engine.metadata import policies
from tierfs.engine.metadata.records import LocationRecord
from tierfs.engine.metadata.tables import OBJECTS
from tierfs.upkeep.holder.work import ColdWork

_NAME = "beside"
"""The segment of an appender beside moves."""

_PATIENCE_S = 300.0

_KINDS = ("pool", "pool", "pool", "batch", "batch", "offload", "ledgers", "consolidate", "compress", "repack", "")

_LAST = 1 << 30
"""Behind the switch."""


def _move(world: World, chance: random.Random) -> Arguments:
    if world.damages:
        raise NothingToDo  # what a place has that is damaged in another is a matter of `prove`, which has its own tests
    arguments = {
        "kind": chance.choice(_KINDS),
        "begun": chance.choice([0, 0, 1, 3]),
        "linked": chance.choice([1, 2, 3, 5, 8, 13, 21, _LAST]),
        "published": chance.choice([1, 5, 21, _LAST, _LAST, _LAST]),
        "put": chance.choice([1, 1, 1, 2, 3, 5]),
        "size": chance.randint(1, 3 * world.knobs.chunk_bytes),
        "salt": chance.randrange(1 << 30),
    }
    return {**arguments, "back": chance.random() < 0.3, "fate": str(chance.choice(list(Fate)))}


@dataclass
class Beside:
    """A process that runs only while it is let, from one of its PUTs to the next that matters."""

    work: Callable[[], None]
    put: int = 1
    """The number of the PUT of an object at which it waits first."""
    error: BaseException | None = None
    _puts: dict[bool, int] = field(default_factory=lambda: {True: 0, False: 0})
    _waits: threading.Event = field(default_factory=threading.Event)
    _goes: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._thread = threading.Thread(target=self._run)
        self.begun = self.ended = False

    def _run(self) -> None:
        try:
            self.work()
        except BaseException as exc:
            self.error = exc
        self.ended = True
        self._waits.set()

    def is_running(self) -> bool:
        """Whether this is its thread."""
        return threading.current_thread() is self._thread

    def meets(self, call: str, name: str) -> None:
        """Wait before one PUT of an object, and before the first of the journal, until it may go on."""
        is_journal = name.startswith("journal/")
        if call not in ("put", "compose"):
            return
        self._puts[is_journal] += 1
        if self._puts[is_journal] != (1 if is_journal else self.put):
            return
        self._goes.clear()
        self._waits.set()
        assert self._goes.wait(_PATIENCE_S), "forgotten"

    def go_on(self) -> None:
        """Let it run until it waits again, or ends."""
        if self.ended:
            return
        self._waits.clear()
        if self.begun:
            self._goes.set()
        else:
            self.begun = True
            self._thread.start()
        assert self._waits.wait(_PATIENCE_S), "it does not end"

    def finish(self) -> None:
        """Let it run to its end."""
        while self.begun and not self.ended:
            self.go_on()
        if self.begun:
            self._thread.join()


def settle_place(world: World) -> None:
    """Let all that is not a process of before use the place that the records name."""
    if world.moving is None:
        return
    url, target = world.moving
    with world.store.metadata.read() as txn:
        if policies.location(txn, LOCATION).url != url:
            return
    world.moving = None
    origin = world.departed = world.storage
    world.store.places[url] = KeptOpen(connected(target, world.knobs, world.clock))
    target._written, target.used_twice = origin._written, origin.used_twice
    target.theirs = {name: target.inner.objects[name] for name in origin.theirs}
    world.storage = target
    world.left = [place for place in world.left if place is not target.inner]
    world.store.cold = connected(target, world.knobs, world.clock)
    if world.replica is not None:
        world.replica.cold = world.store.cold


def leave_place(world: World) -> None:
    """Follow the records, and let become of a place that was left in this step what was drawn for it."""
    settle_place(world)
    origin, world.departed = world.departed, None
    if origin is None:
        return
    fate = Fate(world.done[-1].arguments.get("fate", Fate.STAYS))
    world.places.end(origin.inner, fate)
    if fate is Fate.AWAY:
        origin.leave()
    if fate in (Fate.STAYS, Fate.EMPTY):
        world.left.append(origin.inner)


@verb(2, _move, calls_storage=True, afterwards=leave_place)
def move(world: World, arguments: Arguments) -> None:
    """Everything is copied, and the store goes on in the new place; the one before is left, and says so."""
    origin = world.storage
    target = target_of(world, back=arguments["back"])
    after = _appended(world, arguments)
    beside = Beside(lambda: _work(world, arguments), arguments.get("put", 1))
    moments = sorted((arguments["begun"], arguments["linked"], arguments["published"]))
    calls = 0

    def meet(storage: SimStorage, call: str, name: str) -> None:
        nonlocal calls
        if beside.is_running():
            beside.meets(call, name)
        elif storage is target:
            calls += 1
            for _ in range(moments.count(calls)):
                beside.go_on()

    origin.gate = target.gate = meet
    store = world.store
    place = LocationRecord(id=LOCATION, url=f"memory:{len(world.done)}")
    world.moving = place.url, target
    world.places.add(place.url, target.inner)
    store.elsewhere = KeptOpen(connected(target, world.knobs, world.clock))
    world.maybe = after
    try:
        with patch.object(publish, "TURN_S", 0.0), store.holding() as work:
            for _ in range(moments.count(0)):
                beside.go_on()
            work.switch(place, quiet)
            settle_place(world)
            require_all_there(world)
    finally:
        beside.finish()
        origin.gate = target.gate = None
        _end(world, beside, after, arguments["kind"])
    settle_place(world)
    _require_note(world, origin)


def target_of(world: World, *, back: bool) -> SimStorage:
    """Return a new place, or one that was left."""
    inner = ClassedStorage(world.clock)
    if back and world.left:
        inner = world.left[-1]
        # What is there in another class stays as it is, and the records say the class of new objects.
        world.ruled |= {name for name, held in inner.objects.items() if held.stored.storage_class}
    target = copy.copy(world.storage)
    target.inner = target._inner = inner
    target.theirs, target._late = {}, []
    target._written, target.used_twice = {}, set()  # a copy that was damaged on its way is made again
    store_mark.write_mark(inner, store_mark.StoreMark(world.store.metadata.store_id))
    return target


def require_all_there(world: World) -> None:
    """Every object of ours that a record names is in the present place."""
    if world.damages:
        return
    with world.store.metadata.read() as txn:
        records = [record for _, record in txn.scan(OBJECTS) if record.tier is Tier.COLD and not record.foreign]
    objects = world.storage.inner.objects
    lost = [name for record in records for name in (record.name, record.index_name) if name and name not in objects]
    if lost:
        raise Wrong(f"left behind by a move: {lost}")


def _require_note(world: World, origin: SimStorage) -> None:
    """A place that was left without a fault says so."""
    if origin is world.storage or world.faulty:
        return
    if not list_journal(origin.inner).is_left:
        raise Wrong("a place that was left does not say so")
    if list_journal(world.storage.inner).is_left:
        raise Wrong("the present place is called left")


# The process beside it


def _appended(world: World, arguments: Arguments) -> Model:
    """Return the state if its append or its batch has happened; the segment of an append is there before."""
    if arguments["kind"] == "batch":
        after = world.model
        for name, data in _batch(world, arguments).items():
            after = after.put(name, replace(Content().appended(data, world.stamp(len(data))), sealed=True))
        return after
    if arguments["kind"] != "pool":
        return world.model
    content = world.model.live.get(_NAME)
    if content is None or content.sealed or content.is_ledger:
        if content is not None:
            return world.model
        content = Content()
        with world.change(world.model.put(_NAME, content)):
            world.writer(_NAME, Ack.COLD)
    world.without_writer(_NAME)
    data = random.Random(arguments["salt"]).randbytes(arguments["size"])
    return world.model.put(_NAME, content.appended(data, world.stamp(len(data))))


def _batch(world: World, arguments: Arguments) -> dict[str, bytes]:
    chance, version = random.Random(arguments["salt"]), len(world.done)
    return {f"out/{version}-{k}": chance.randbytes(arguments["size"]) for k in range(1 + arguments["salt"] % 3)}


def _work(world: World, arguments: Arguments) -> None:
    kind = arguments["kind"]
    if kind == "batch":
        assert not Driver(world.store).write(_batch(world, arguments), len(world.done)).repeated
        return
    if kind == "pool":
        if world.maybe is None or world.maybe is world.model:
            return
        content, after = world.model.live[_NAME], world.maybe.live[_NAME]
        engine = world.store.another_engine()
        try:
            writer = engine.open_writer(_NAME, ack=Ack.COLD)
            writer.append(after.data[len(content.data) :], expected_offset=len(content.data))
        finally:
            engine.locks.close()
    elif kind:
        work = world.store.cold_work()
        with patch.object(work.publisher, "publish", lambda **_: 0):  # a process of its own publishes, and is slow
            _cold(work, kind)


def _cold(work: ColdWork, kind: str) -> None:
    if kind == "offload":
        work.offload("", quiet)
    elif kind == "ledgers":
        with suppress(NotFound):  # there are none yet
            work.offload_prefix(LEDGERS, None, quiet)
    elif kind == "consolidate":
        work.consolidate("", dry_run=False, report=quiet)
    elif kind == "compress":
        work.compress("", dry_run=False, report=quiet)
    else:
        for _ in range(100):
            if work.repacker.step() is None:
                return


def _end(world: World, beside: Beside, after: Model, kind: str) -> None:
    """Take note of what the process did."""
    error = beside.error
    if isinstance(error, Death) or world.points.dead:
        return  # the end of the process finds out
    world.maybe = None
    if not beside.begun or after is world.model:
        if isinstance(error, Wrong | AssertionError):
            raise error
        return
    if error is None or isinstance(error, Unconfirmed):
        if error is None and kind == "pool":
            world.promised[world.store.segment(_NAME).id] = len(after.live[_NAME].data)
        world.model = after
    elif not isinstance(error, Conflict | Unavailable):
        raise error
    else:
        world._attempted(after)
