"""The journal of every verb makes the same store elsewhere, at every step."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.fsck.looking import cold_findings, findings
from tests.journal.replaying import check_every_step, empty_copy, view
from tests.recovery.recovering import recovered
from tests.recovery.verbs import VERBS, Life
from tests.stores import TestStore
from tierfs.journal import replay
from tierfs.metadata import changes


def live(store: TestStore, seed: int) -> Life:
    """Run random verbs, all bytes cold at the end."""
    life = Life(store, random.Random(seed))
    life.run(60, VERBS)
    store.offload()
    store.evict()
    return life


@pytest.mark.parametrize("seed", range(8))
def test_every_step_of_the_journal_is_a_sound_store_and_the_last_one_is_ours(
    store: TestStore, tmp_path: Path, seed: int
) -> None:
    life = live(store, seed)
    store.settle()
    assert findings(store) + cold_findings(store) == []
    check_every_step(store, tmp_path / "copy")
    with recovered(tmp_path / "recovered", store.cold) as found:
        for name, content in life.live.items():
            start = found.store.segment(name).start_offset
            assert (start, found.store.read(name)[start:]) == (content.start, content.data[content.start :])


@pytest.mark.parametrize("seed", range(3))
def test_a_checkpoint_afterwards_says_the_same(store: TestStore, tmp_path: Path, seed: int) -> None:
    live(store, seed)
    with empty_copy(tmp_path / "copy", store.metadata.store_id) as copy:
        with copy.write() as txn, store.metadata.read() as theirs:
            replay.apply_state(txn, changes.state_changes(theirs), "part")

        with copy.read() as ours, store.metadata.read() as theirs:
            assert view(ours) == view(theirs)
