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


def live(life: Life, tally: Tally) -> Lived | None:
    """Live one life, without deaths and with them; return what failed first."""
    first = tally.add(life.first())
    if first.error is not None:
        return first
    for number in range(DEATHS_OF_EACH):
        again = tally.add(life.again(life.with_deaths(first, number)))
        if again.error is not None:
            return again
    return None


def report(life: Life, lived: Lived) -> str:
    """Return the error of a life, and the command that replays its seed and shortens it."""
    error = "".join(traceback.format_exception(lived.error, limit=-8))
    return (
        f"seed {life.seed}, step {len(lived.steps)}: {error}\n"
        f"replay, and shorten: python -m tests.simulation --seed {life.seed} --shrink\n"
        f"for tests/simulation/corpus.txt:\n{_kept(life, lived)}"
    )


def shortened(life: Life, lived: Lived) -> str:
    """Return the shortest steps that show the error of a life."""
    short = shrunk(life, lived)
    return f"{len(short.steps)} of {len(lived.steps)} steps show it:\n{_kept(life, short)}"


def _kept(life: Life, lived: Lived) -> str:
    about = f"{type(lived.error).__name__}: {lived.error}".splitlines()[0]
    return Kept(life.seed, tuple(lived.steps), about).written()
