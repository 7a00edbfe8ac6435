"""Unseal: a sealed segment accepts bytes again, but not from earlier writers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.segments.changes import Crash, crashing, journaled
from tests.stores import TestStore, assert_layout, open_test_store
from tierfs.errors import Conflict, Fenced, InvalidRequest, IsDirectory, NotFound
from tierfs.metadata import tables
from tierfs.metadata.tables import SEGMENTS
from tierfs.segments.create import create
from tierfs.segments.seal import unseal
from tierfs.tiering.candidates import objects_to_make
from tierfs.types import ByteRange, SegmentKind, SegmentStatus


@pytest.fixture
def store(tmp_path: Path) -> Iterator[TestStore]:
    with open_test_store(tmp_path / "store") as opened:
        yield opened


def set_status(store: TestStore, name: str, status: SegmentStatus, successor_id: int = 0) -> None:
    segment = store.segment(name)
    with store.metadata.write() as txn:
        txn.put(SEGMENTS, tables.u64(segment.id), replace(segment, status=status, successor_id=successor_id))


def test_appends_go_on_in_a_new_chunk(store: TestStore) -> None:
    store.append("s", b"abcdef", seal=True)
    record, changed = store.engine.unseal("s")
    assert (record.status, record.sealed_ms, changed) == (SegmentStatus.OPEN, 0, True)
    store.append("s", b"gh", seal=True)
    assert_layout(store, "s", local=[4, 2, 2], cold=[])
    assert store.read("s") == b"abcdefgh"


def test_repeating_it_changes_nothing(store: TestStore) -> None:
    store.append("s", b"abcdef", seal=True)
    store.engine.unseal("s")
    before = store.segment("s")
    assert store.engine.unseal("s") == (before, False)
    assert store.segment("s") == before


def test_the_name_gets_a_new_inode_and_the_journal_is_told(store: TestStore) -> None:
    store.append("s", b"abcdef", seal=True)
    before = store.segment("s")
    store.clock.advance(5)
    with journaled(store) as changes:
        after, _ = store.engine.unseal("s")
    assert after.inode != before.inode
    assert after.generation == before.generation + 1
    assert (after.modified_ms, after.changed_ms) == (before.modified_ms, store.clock.now_ms())
    (change,) = changes
    assert (change.segment.status, change.segment.inode) == (SegmentStatus.OPEN, after.inode)


def test_who_wrote_before_the_seal_is_fenced(store: TestStore) -> None:
    writer = store.engine.open_writer("s")
    writer.append(b"ab")
    store.engine.seal("s")
    store.engine.unseal("s")
    with pytest.raises(Fenced):
        writer.append(b"cd")
    store.append("s", b"ef")
    assert store.read("s") == b"abef"


def test_who_sealed_with_its_last_append_is_fenced_too(store: TestStore) -> None:
    writer = store.engine.open_writer("s")
    writer.append(b"ab", seal=True)
    store.engine.unseal("s")
    assert store.segment("s").writer_epoch == writer.epoch + 1


def test_a_successor_forbids_it(store: TestStore) -> None:
    store.append("d/s", b"ab", seal=True)
    store.append("d/next", b"cd")
    set_status(store, "d/s", SegmentStatus.SEALED_BY_POLICY, store.segment("d/next").id)
    with pytest.raises(Conflict, match="it continues in d/next"):
        store.engine.unseal("d/s")
    store.engine.delete("d/next", recursive=False, cold_due_ms=0)
    record, changed = store.engine.unseal("d/s")
    assert (changed, record.successor_id) == (True, 0)


def test_sealed_by_policy_without_a_successor(store: TestStore) -> None:
    store.append("s", b"ab", seal=True)
    set_status(store, "s", SegmentStatus.SEALED_BY_POLICY)
    assert store.engine.unseal("s")[1]


def test_what_cannot_be_unsealed(store: TestStore) -> None:
    store.append("d/s", b"ab")
    with store.metadata.write() as txn:
        ledger = create(txn, "ledger", SegmentKind.LEDGER)
        txn.put(SEGMENTS, tables.u64(ledger.id), replace(ledger, status=SegmentStatus.SEALED))
    with pytest.raises(NotFound):
        store.engine.unseal("missing")
    with pytest.raises(IsDirectory):
        store.engine.unseal("d")
    with pytest.raises(InvalidRequest, match="ledger"):
        store.engine.unseal("ledger")


def test_a_crash_before_the_commit_changes_nothing(store: TestStore) -> None:
    store.append("s", b"ab", seal=True)
    before = store.segment("s")
    with pytest.raises(Crash):
        unseal(crashing(store.metadata), "s")
    assert store.segment("s") == before


def test_an_offload_under_way_is_not_disturbed(store: TestStore) -> None:
    store.append("s", b"abcdef", seal=True)
    with store.metadata.read() as txn:
        (action,) = objects_to_make(txn, store.segment("s"))
    store.engine.unseal("s")
    writer = store.engine.open_writer("s")
    assert writer.append(b"gh") == ByteRange(6, 8)
    store.cold_work().tools.offload.run(action)
    assert_layout(store, "s", local=[4, 2, 2], cold=[6])
