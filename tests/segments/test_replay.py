"""The journal of unseal, truncate and concat makes the same store elsewhere, at every step."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fsck.looking import cold_findings, findings
from tests.journal.replaying import check_every_step, empty_copy, view
from tests.recovery.recovering import recovered
from tests.stores import TestStore, open_test_store
from tierfs.journal import replay
from tierfs.metadata import changes
from tierfs.segments import trash

NAMES = ["a", "b", "d/c", "d/e"]
STEPS = 60


@pytest.fixture
def store(tmp_path: Path) -> Iterator[TestStore]:
    with open_test_store(tmp_path / "store") as opened:
        yield opened


def reshape(store: TestStore, chosen: random.Random) -> dict[str, bytes]:
    """Run random verbs, all bytes cold at the end; return the readable bytes."""
    model: dict[str, bytes] = {}
    removed: dict[str, bytes] = {}
    for number in range(STEPS):
        name, other = chosen.sample(NAMES, 2)
        data = bytes([97 + number % 26]) * chosen.randrange(1, 15)
        if name not in model:
            store.append(name, data)
            model[name] = data
        verb = chosen.choice(["append", "truncate", "concat", "offload", "evict", "delete", "remove"])
        if verb == "append":
            store.engine.unseal(name)
            store.append(name, data)
            model[name] += data
        elif verb == "truncate":
            gone = chosen.randrange(len(model[name]) + 1)
            store.engine.truncate(name, store.segment(name).start_offset + gone, cold_due_ms=store.clock.now_ms())
            model[name] = model[name][gone:]
        elif verb == "concat" and other in model:
            store.engine.seal(other)
            store.engine.unseal(name)
            store.engine.concat(name, other)
            model[name] += model.pop(other)
        elif verb == "offload":
            store.offload()
        elif verb == "evict":
            store.evict()
        elif verb == "delete" and chosen.random() < 0.3:
            store.engine.delete(name, recursive=False, cold_due_ms=store.clock.now_ms())
            del model[name]
        elif verb == "remove":
            store.engine.delete(name, recursive=False, cold_due_ms=store.clock.now_ms(), to_trash=True)
            removed[name] = model.pop(name)
        back = sorted(removed.keys() - model.keys())
        if back and chosen.random() < 0.3:
            trash.restore(store.metadata, back[0])  # the newest removal of its name
            model[back[0]] = removed.pop(back[0])
    store.offload()
    store.evict()
    return model


@pytest.mark.parametrize("seed", range(8))
def test_every_step_of_the_journal_is_a_sound_store_and_the_last_one_is_ours(
    store: TestStore, tmp_path: Path, seed: int
) -> None:
    model = reshape(store, random.Random(seed))
    store.settle()
    assert findings(store) + cold_findings(store) == []
    check_every_step(store, tmp_path / "copy")
    with recovered(tmp_path / "recovered", store.cold) as found:
        for name, data in model.items():
            segment = found.store.segment(name)
            assert found.store.read(name)[segment.start_offset :] == data


@pytest.mark.parametrize("seed", range(3))
def test_a_checkpoint_afterwards_says_the_same(store: TestStore, tmp_path: Path, seed: int) -> None:
    reshape(store, random.Random(seed))
    with empty_copy(tmp_path / "copy", store.metadata.store_id) as copy:
        with copy.write() as txn, store.metadata.read() as theirs:
            replay.apply_state(txn, changes.state_changes(theirs), "part")

        with copy.read() as ours, store.metadata.read() as theirs:
            assert view(ours) == view(theirs)
