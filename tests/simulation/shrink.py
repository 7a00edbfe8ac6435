"""Make a life that fails shorter: leave out steps for as long as it fails the same way (ddmin)."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from tests.simulation.lives import Life, Lived
from tests.simulation.steps import Step

_MOST_TRIES = 200


def shrunk(life: Life, lived: Lived) -> Lived:
    """Return the shortest life that was found to fail with an error of the same kind."""
    best, tries = lived, 0

    def fails(steps: Sequence[Step]) -> bool:
        nonlocal best, tries
        tries += 1
        again = life.again(steps)
        same = _kind(again) == _kind(lived)
        if same:
            best = again
        return same

    steps = list(lived.steps)
    if not fails(steps):
        return lived
    count = 2
    while len(best.steps) > 1 and tries < _MOST_TRIES:
        if _without_a_part(best.steps, count, fails):
            count = max(2, count - 1)
        elif count >= len(best.steps):
            break
        else:
            count = min(len(best.steps), 2 * count)
    for at in range(len(best.steps)):
        for simpler in _simpler(best.steps[at]):
            fails([*best.steps[:at], simpler, *best.steps[at + 1 :]])
    return best


def _kind(lived: Lived) -> str:
    """Return what the error says but for numbers; how it says it differs from one length of a life to the next."""
    return re.sub(r"[0-9a-f]*[0-9][0-9a-f]*", "#", f"{type(lived.error).__name__}: {lived.error}")


def _without_a_part(steps: Sequence[Step], count: int, fails: Callable[[Sequence[Step]], bool]) -> bool:
    size = -(-len(steps) // count)
    return any(fails([*steps[:at], *steps[at + size :]]) for at in range(0, len(steps), size))


def _simpler(step: Step) -> list[Step]:
    """Return the step without what it may not need."""
    simpler = []
    if step.fault is not None:
        simpler.append(replace(step, fault=None))
    if step.end is not None:
        simpler.append(step.ends(None))
    return simpler
