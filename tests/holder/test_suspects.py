"""Suspect chunks: read again by the holder, cleared once they prove right, and otherwise seldom read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.doubles.scripted_storage import ALWAYS, ScriptedStorage
from tests.faults.test_accusations import states
from tests.fsck.looking import flip_cold, flip_local
from tests.stores import TestStore, open_test_store
from tierfs.clock import ManualClock
from tierfs.errors import Unavailable
from tierfs.metadata import chain_edits
from tierfs.reading import suspects as module
from tierfs.reading.suspects import Suspects
from tierfs.types import ChunkState, Tier

GOOD, SUSPECT = ChunkState.GOOD, ChunkState.SUSPECT
DAY_S = 24 * 3600


@pytest.fixture
def store(tmp_path: Path) -> Iterator[TestStore]:
    with open_test_store(tmp_path / "store") as opened:
        opened.append("s", b"abcdefghijkl", seal=True)
        opened.offload()
        yield opened


def accuse(store: TestStore, name: str, tier: Tier, *numbers: int) -> None:
    """Mark chunks suspect, as failures did that are over."""
    for number in numbers:
        chunk = store.layout(name).chunks(tier)[number].chunk
        assert chain_edits.set_state(store.metadata, store.segment(name).id, tier, chunk, SUSPECT)


def suspects(store: TestStore, storage: Any = None) -> Suspects:
    return Suspects(store.metadata, store.files, lambda _: storage or store.cold)


@pytest.mark.parametrize("tier", list(Tier))
def test_what_proves_right_is_cleared_by_the_next_look(store: TestStore, tier: Tier) -> None:
    accuse(store, "s", tier, 0, 1)
    assert suspects(store).look() == 2
    assert set(states(store, "s", tier)) == {GOOD}


@pytest.mark.parametrize("tier", list(Tier))
def test_what_is_damaged_stays_suspect_and_is_read_less_and_less(store: TestStore, tier: Tier) -> None:
    clock, cold = store.clock, ScriptedStorage(store.cold)
    assert isinstance(clock, ManualClock)
    (flip_local if tier is Tier.LOCAL else flip_cold)(store, "s", 1)
    accuse(store, "s", tier, 0, 1)
    looking = suspects(store, cold)
    for _ in range(DAY_S // 10):
        looking.look()
        clock.advance(10)
    assert states(store, "s", tier)[:2] == [SUSPECT, GOOD]
    assert len(cold.reads) <= (0 if tier is Tier.LOCAL else 2 + 12)


def test_a_place_that_is_away_keeps_no_other_chunk_from_being_cleared(store: TestStore) -> None:
    clock, cold = store.clock, ScriptedStorage(store.cold)
    assert isinstance(clock, ManualClock)
    cold.fail("read", Unavailable("the server does not answer"), on=ALWAYS)
    accuse(store, "s", Tier.COLD, 0)
    accuse(store, "s", Tier.LOCAL, 2)
    looking = suspects(store, cold)
    with pytest.raises(Unavailable):
        looking.look()
    assert states(store, "s", Tier.LOCAL) == [GOOD, GOOD, GOOD]
    assert states(store, "s", Tier.COLD) == [SUSPECT, GOOD]
    cold.behave()
    assert looking.look() == 0, "it rests"
    clock.advance(61)
    assert looking.look() == 1


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 6])
def test_suspects_are_looked_for_only_when_there_are_others(
    store: TestStore, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    """The steps of a walk end anywhere among the five chunks."""
    monkeypatch.setattr(module, "_ROWS", rows)
    walked, messages = [], module.messages
    monkeypatch.setattr(module, "messages", lambda *some: walked.append(some) or messages(*some))
    looking = suspects(store)
    assert looking.look() == 0
    assert walked == []
    flip_local(store, "s", 9)
    accuse(store, "s", Tier.LOCAL, 2)
    looking.look()
    assert walked
    walked.clear()
    looking.look()
    assert walked == []
    accuse(store, "s", Tier.COLD, 1)
    assert looking.look() == 1
    assert states(store, "s", Tier.LOCAL) == [GOOD, GOOD, SUSPECT]


def test_what_was_removed_is_forgotten(store: TestStore) -> None:
    flip_local(store, "s", 9)
    accuse(store, "s", Tier.LOCAL, 2)
    looking = suspects(store)
    assert looking.look() == 0
    store.engine.delete("s", recursive=False, cold_due_ms=0)
    assert looking.look() == 0
    assert looking._known == {}


def test_a_chunk_as_long_as_the_one_just_cleared_is_found(store: TestStore) -> None:
    looking = suspects(store)
    for number in (0, 1):
        accuse(store, "s", Tier.LOCAL, number)
        assert looking.look() == 1
