"""Places of others in which one thing is damaged: it is one line, and the others are adopted."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.doubles.mutations import mutations, times
from tests.stores import TestStore, open_test_store
from tests.tiering.adoption.adopting import read, run
from tests.tiering.adoption.pulsar import MAGIC, Offloaded, attempt, in_first_form, in_memory, offloaded, streamed
from tierfs.tiering.adoption.adopt import State
from tierfs.tiering.adoption.plan import AdoptionPlan
from tierfs.tiering.adoption.pulsar import Reading, plan_pulsar

GOOD = [b"good" * 9, b"", b"entries"] * 7
BAD = [b"bad" * (index % 4) for index in range(20)]


@pytest.fixture
def store(tmp_path: Path, expected_warnings: list[str]) -> Iterator[TestStore]:
    expected_warnings.append("")
    with open_test_store(tmp_path / "store") as opened:
        opened.cold_work().publish()
        yield opened


def forms() -> dict[str, Offloaded]:
    return {
        "released": offloaded(BAD, 7, uuid=attempt(2)),
        "streaming": streamed(3, [(1, 0, BAD[:10]), (2, 0, BAD[10:])], {1: 10, 2: 10}),
        "first": replace(in_first_form(BAD), uuid=attempt(4)),
    }


@pytest.mark.parametrize("form", forms())
def test_a_damaged_ledger_costs_no_other(store: TestStore, form: str) -> None:
    good, sound, chance = offloaded(GOOD, 5), forms()[form], random.Random(form)
    for number in range(20 * times()):
        seed = chance.randrange(2**32)
        damaged = sound
        if sound.index and chance.random() < 0.6:
            damaged = replace(sound, index=next(mutations(sound.index, seed, 1)))
        else:
            damaged = replace(sound, data=next(mutations(sound.data, seed, 1)))
        theirs, plan, into = in_memory(good, damaged), AdoptionPlan(), f"in{number}"
        plan_pulsar(plan, theirs, theirs.list(""), into, Reading(in_files=False, magic=MAGIC))
        plan.check_names()
        accepts = chance.random() < 0.5
        outcomes = {one.plan.name: one for one in run(store, theirs, plan, magic=MAGIC, accept_loss=accepts)}
        kept = next(name for name in outcomes if name.endswith("0005"))
        assert outcomes[kept].state is State.ADOPTED
        assert read(store, theirs, kept) == GOOD
        for outcome in outcomes.values():
            assert outcome.error is None or str(outcome.error).isprintable()
            if outcome.state is State.ADOPTED:
                assert outcome.ledger is not None
                assert len(read(store, theirs, outcome.plan.name)) == outcome.ledger.entries
        for _, error in plan.refused:
            assert str(error).isprintable()
