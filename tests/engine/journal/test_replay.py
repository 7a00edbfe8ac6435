"""A replay of the journal gives the owner's view of the bucket, wherever the journal is cut."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from tests.app.recovery.recovering import recovered
from tests.app.recovery.verbs import VERBS, Life
from tests.engine.journal.replaying import check_every_step, empty_copy, view
from tests.stores import TestStore
from tests.upkeep.check.looking import cold_findings, findings
from tierfs.base.words.errors import DataLoss
from tierfs.base.words.types import Tier
from tierfs.engine.journal import replay, replay_links
from tierfs.engine.metadata import chains, changes, tables
from tierfs.engine.metadata import records_pb2 as pb
from tierfs.engine.metadata.chain_edits import Editor
from tierfs.engine.metadata.records import SegmentRecord
from tierfs.engine.metadata.tables import OBJECTS
from tierfs.engine.metadata.transaction import WriteTransaction


def unlinked_by_a_verb(txn: WriteTransaction, segment: SegmentRecord) -> None:
    removed = list(chains.chunks(txn, segment.id, Tier.COLD))
    Editor(txn, segment).remove(Tier.COLD, removed, due_ms=0)


def unlinked_by_a_replay(txn: WriteTransaction, segment: SegmentRecord) -> None:
    replay_links.unlink(txn, segment, [0])


def removed_by_a_replay(txn: WriteTransaction, segment: SegmentRecord) -> None:
    replay.apply(txn, pb.Change(segment_removed=segment.id))


@pytest.mark.parametrize("unlink", [unlinked_by_a_verb, unlinked_by_a_replay, removed_by_a_replay])
@pytest.mark.parametrize("references", [0, 1, 2])
def test_an_object_goes_with_its_last_reference_and_never_by_a_wrong_count(
    store: TestStore, unlink: Callable[[WriteTransaction, SegmentRecord], None], references: int
) -> None:
    store.append("s", b"abcd", seal=True)
    store.offload()
    (placed,) = store.layout("s").cold
    key = tables.u64(placed.object.id)
    with store.metadata.write() as txn:
        txn.put(OBJECTS, key, replace(placed.object, references=references))
    expected = pytest.raises(DataLoss, match="without references") if references == 0 else nullcontext()
    with expected, store.metadata.write() as txn:
        unlink(txn, store.segment("s"))
    with store.metadata.read() as txn:
        left = txn.get(OBJECTS, key)
    assert (None if left is None else left.references) == {0: 0, 1: None, 2: 1}[references]


def lived(store: TestStore, seed: int) -> Life:
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
    life = lived(store, seed)
    store.settle()
    assert findings(store) + cold_findings(store) == []
    check_every_step(store, tmp_path / "copy")
    with recovered(tmp_path / "recovered", store.cold) as found:
        for name, content in life.live.items():
            start = found.store.segment(name).start_offset
            assert (start, found.store.read(name)[start:]) == (content.start, content.data[content.start :])


@pytest.mark.parametrize("seed", range(3))
def test_a_checkpoint_after_a_replay_says_what_the_journal_does(store: TestStore, tmp_path: Path, seed: int) -> None:
    lived(store, seed)
    with empty_copy(tmp_path / "copy", store.metadata.store_id) as copy:
        with copy.write() as txn, store.metadata.read() as theirs:
            replay.apply_state(txn, changes.state_changes(theirs), "part")

        with copy.read() as ours, store.metadata.read() as theirs:
            assert view(ours) == view(theirs)
