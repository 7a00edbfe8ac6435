"""Runs of many lives: how many, how long, and the first that failed, with what replays it."""

from __future__ import annotations

import traceback
from collections import Counter
from dataclasses import dataclass, field

from tests.simulation.corpus import Kept
from tests.simulation.lives import Life, Lived
from tests.simulation.shrink import shrunk

DEATHS_OF_EACH = 2
"""Times that a life is lived again with deaths."""


@dataclass
class Tally:
    """What was lived."""

    lives: int = 0
    steps: int = 0
    deaths: int = 0
    power_losses: int = 0
    verbs: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    points: Counter[str] = field(default_factory=Counter)

    def add(self, lived: Lived) -> Lived:
        """Count one life."""
        self.lives += 1
        self.steps += len(lived.steps)
        self.deaths += sum(step.end is not None for step in lived.steps)
        self.power_losses += lived.losses
        for counter, counts in ((self.verbs, lived.counts), (self.faults, lived.faults), (self.points, lived.seen)):
            counter.update(counts)
        return lived

    def __str__(self) -> str:
        return (
            f"{self.steps} steps in {self.lives} lives, {self.deaths} deaths, {self.power_losses} power losses, "
            f"{self.faults.total()} faults, {self.points.total()} points"
        )


def live(seed: int, tally: Tally) -> None:
    """Live one seed, without deaths and with them. Raises AssertionError, with what replays it."""
    life = Life(seed)
    first = tally.add(life.first())
    _require(life, first)
    for number in range(DEATHS_OF_EACH):
        _require(life, tally.add(life.again(life.with_deaths(first, number))))


def _require(life: Life, lived: Lived) -> None:
    if lived.error is not None:
        raise AssertionError(report(life, lived)) from lived.error


def report(life: Life, lived: Lived) -> str:
    """Return the error of a life, the command that replays its seed, and the shortest steps that show it."""
    error = "".join(traceback.format_exception(lived.error, limit=-8))
    short = shrunk(life, lived)
    about = f"{type(short.error).__name__}: {short.error}".splitlines()[0]
    kept = Kept(life.seed, tuple(short.steps), about)
    return (
        f"seed {life.seed}, step {len(lived.steps)}: {error}\n"
        f"replay: python -m tests.simulation --seed {life.seed}\n"
        f"{len(short.steps)} of {len(lived.steps)} steps show it; for tests/simulation/corpus.txt:\n{kept.written()}"
    )
