"""One World: random lives of the whole store, with faults, deaths and losses of power, against a model in memory."""

from __future__ import annotations

import pytest

from tests.simulation import corpus
from tests.simulation.corpus import Kept
from tests.simulation.lives import Life
from tests.simulation.tally import Tally, live, report

CASES = 20
STEPS = 60_000
"""Of all cases together."""

_SEEDS_APART = 1_000_000


@pytest.mark.parametrize("kept", list(corpus.read()), ids=lambda kept: kept.about[:40])
def test_lives_that_failed_once(kept: Kept, expected_warnings: list[str]) -> None:
    expected_warnings.append("")
    life = corpus.life(kept)
    lived = life.again(kept.steps)
    assert lived.error is None, report(life, lived)


@pytest.mark.parametrize("case", range(CASES))
@pytest.mark.timeout(900)
def test_lives(case: int, expected_warnings: list[str]) -> None:
    expected_warnings.append("")
    tally, seed = Tally(), case * _SEEDS_APART
    while tally.steps < STEPS // CASES:
        lived = live(seed, tally)
        assert lived is None, report(Life(seed), lived)
        seed += 1
    assert tally.deaths
    assert tally.power_losses
