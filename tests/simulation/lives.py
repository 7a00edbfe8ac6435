"""Lives: a world is drawn and lived once to count its points, then again with deaths at drawn ones."""

from __future__ import annotations

import gc
import random
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import trio

from tests.simulation import endings, verbs
from tests.simulation import knobs as limits
from tests.simulation.faces.long_lived import LongLived, long_lived
from tests.simulation.knobs import Knobs
from tests.simulation.opening import opened
from tests.simulation.oracle import Oracle, new_reader
from tests.simulation.steps import VERBS, End, NothingToDo, Step, Verb
from tests.simulation.storage import Fault, Toxic
from tests.simulation.world import World

LENGTH = 120
"""Steps of a life."""

DEATHS = 3
"""Of one life after the first: each at a drawn point."""

_ARCHIVING = (1, 3, 5)
"""Remainders of seeds by 7."""

_GARBAGE = 100_000
"""Objects after which the collector looks at the newest: some 20 MB."""

_QUICK = Path("/dev/shm")
"""A file system in memory, where there is one: the simulated disk decides what is durable."""

assert verbs.ALL


@dataclass
class Lived:
    """What became of a life."""

    steps: list[Step]
    points: list[int] = field(default_factory=list)
    """Passed by each step."""
    counts: dict[str, int] = field(default_factory=dict)
    faults: dict[str, int] = field(default_factory=dict)
    seen: dict[str, int] = field(default_factory=dict)
    losses: int = 0
    error: BaseException | None = None


@dataclass(frozen=True, slots=True)
class Life:
    """The seed of a life, from which all its chance comes."""

    seed: int

    @property
    def damaged(self) -> bool:
        """Whether files and objects rot in this life."""
        return self.seed % 3 == 2

    @property
    def compressed(self) -> bool:
        """Whether this life begins with a policy that compresses; others may come to one later."""
        return self.seed % 2 == 1

    @property
    def archives(self) -> bool:
        """Whether objects of this life are in several storage classes, some of which must be restored before a read."""
        return not self.damaged and self.seed % 7 in _ARCHIVING

    @property
    def knobs(self) -> Knobs:
        """The limits of this life."""
        return limits.draw(random.Random(f"knobs {self.seed}"))

    def first(self, length: int = LENGTH) -> Lived:
        """Draw the steps and live them."""
        chance = random.Random(f"steps {self.seed}")
        table = [
            verb
            for verb in VERBS.values()
            if (self.damaged or not verb.damages) and (self.archives or not verb.archives)
        ]

        def drawn(world: World) -> Iterator[Step]:
            if self.compressed:
                yield Step("compression", {"path": "", "compression": chance.choice(["auto", "zstd"]), "level": "1"})
            for _ in range(length - self.compressed):
                yield _draw(world, chance, table)

        return self._live(drawn)

    def again(self, steps: Sequence[Step]) -> Lived:
        """Live steps that were drawn before."""
        return self._live(lambda world: iter(steps))

    def with_deaths(self, lived: Lived, number: int) -> list[Step]:
        """Return the steps of a life with some deaths at drawn points, the same for the same number."""
        chance = random.Random(f"death {self.seed} {number}")
        # Other bytes are read than in the life before, whose steps before the first death are these.
        steps = [replace(step, look=chance.randrange(1 << 30)) for step in lived.steps]
        for _ in range(chance.randint(1, DEATHS)):
            at, point = _place(lived.points, chance)
            power = chance.randrange(1 << 30) if chance.random() < 0.6 else None
            steps[at] = steps[at].ends(End(point, power))
        return steps

    def _live(self, steps: object) -> Lived:
        with _without_old_garbage(), _directory() as path, opened(path / "store", self.knobs, self.seed) as world:
            lived, chance = Lived(world.done), random.Random(f"oracle {self.seed}")
            try:
                trio.run(_run, world, steps(world), lived)  # type: ignore[operator]
                endings.check(world, path, chance)
            except BaseExceptionGroup as group:
                lived.error = _leaf(group)
                if isinstance(lived.error, KeyboardInterrupt):  # of the person who ends the run
                    raise lived.error from None
            except Exception as exc:
                lived.error = exc
            lived.counts, lived.faults = world.counts, world.storage.faults
            lived.seen, lived.losses = world.points.seen, world.disk.losses
            return lived


async def _run(world: World, steps: Iterator[Step], lived: Lived) -> None:
    more = True
    while more:
        async with long_lived(world) as readers:
            world.new_machine = False
            while more and not world.new_machine:
                more = await _live_process(world, steps, lived, readers)


async def _live_process(world: World, steps: Iterator[Step], lived: Lived, readers: LongLived) -> bool:
    """Live on until the process ends; return whether there are steps left."""
    async with new_reader(world) as reader:
        world.new_process = False
        with closing(Oracle(world, reader, readers)) as oracle:
            while not world.new_process:
                step = next(steps, None)
                if step is None:
                    await oracle.look_at_all()
                    return False
                lived.points.append(await oracle.watch(step))
    return True


def _draw(world: World, chance: random.Random, table: Sequence[Verb]) -> Step:
    """Draw a verb that has something to do, and perhaps a fault of the storage."""
    weights = [verb.weight for verb in table]
    while True:
        (verb,) = chance.choices(table, weights)
        try:
            arguments = verb.draw(world, chance)
        except NothingToDo:
            continue
        fault = None
        if verb.calls_storage and chance.random() < 0.35:
            fault = Fault(chance.choice([1, 2, 3, 4, 5, 8, 13, 21]), chance.choice(list(Toxic)), chance.randint(1, 6))
        return Step(verb.name, arguments, fault, look=chance.randrange(1 << 30))


def _place(points: Sequence[int], chance: random.Random) -> tuple[int, int]:
    """Draw a point of a life; return its step, and its number there."""
    number = chance.randrange(sum(points) + len(points))
    for at, count in enumerate(points):
        if number <= count:
            return at, number + 1
        number -= count + 1
    raise AssertionError("unreachable")


@contextmanager
def _without_old_garbage() -> Iterator[None]:
    """Let the collector look at what the life makes, not at all that its process imported, and seldom: a tenth of its
    time.

    In a run of all tests, whose process has put that aside for good, nothing more is.
    """
    thresholds, aside = gc.get_threshold(), gc.get_freeze_count() == 0
    if aside:
        gc.freeze()
    gc.set_threshold(_GARBAGE, *thresholds[1:])
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        if aside:
            gc.unfreeze()


@contextmanager
def _directory() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="tierfs-life-", dir=_QUICK if _QUICK.is_dir() else None))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _leaf(group: BaseExceptionGroup[BaseException]) -> BaseException:
    first = group.exceptions[0]
    return _leaf(first) if isinstance(first, BaseExceptionGroup) else first
