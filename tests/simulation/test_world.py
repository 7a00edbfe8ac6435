"""One World: random lives of the whole store, with faults, deaths and losses of power, against a model in memory."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.simulation import corpus, endings, invariants
from tests.simulation.corpus import Kept
from tests.simulation.lives import LENGTH, Life
from tests.simulation.tally import DEATHS_OF_EACH, Tally, live, report

STEPS = int(os.environ.get("TIERFS_TEST_STEPS", "15000"))
"""Of all cases together; `make world` has 60,000."""
_CASE_STEPS = 3 * LENGTH * (1 + DEATHS_OF_EACH)
"""Of three seeds, one of which is damaged."""

_SEEDS_APART = 1_000_000

_PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"


def test_each_promise_that_a_life_can_check_has_a_check_that_the_documents_name() -> None:
    assert endings.DEAR
    # Answering, work that follows change, and names at the door have tests of their own.
    assert sorted(invariants.CHECKED) == sorted(set(range(1, 19)) - {10, 14, 15})
    page = _PAGE.read_text()
    for number, names in invariants.CHECKED.items():
        row = next(line for line in page.splitlines() if re.match(rf"\| ([0-9]+, )*{number}(, [0-9]+)* \| .*`", line))
        assert [name for name in names if f"`{name}`" not in row] == []


@pytest.mark.parametrize("kept", list(corpus.read()), ids=lambda kept: kept.about[:40])
def test_lives_that_failed_once_keep_every_promise(kept: Kept, expected_warnings: list[str]) -> None:
    expected_warnings.append("")
    life = corpus.life(kept)
    lived = life.again(kept.steps)
    assert lived.error is None, report(life, lived)


@pytest.mark.parametrize("case", range(-(-STEPS // _CASE_STEPS)))
@pytest.mark.timeout(900)
def test_random_lives_keep_every_promise(case: int, expected_warnings: list[str]) -> None:
    expected_warnings.append("")
    tally, seed = Tally(), case * _SEEDS_APART
    while tally.steps < _CASE_STEPS:
        lived = live(Life(seed), tally)
        assert lived is None, report(Life(seed), lived)
        seed += 1
    assert tally.deaths
    assert tally.power_losses
