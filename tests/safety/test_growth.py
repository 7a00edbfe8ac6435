"""What a chunk must still be when bytes behind it are committed, continued or marked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from tests.stores import TestStore, open_test_store
from tierfs.config import WriteSettings
from tierfs.errors import Conflict
from tierfs.journal.publish import Publisher
from tierfs.metadata import chain_edits, chains, tables
from tierfs.metadata.chains import Growth
from tierfs.metadata.journal_state import PublishIntent
from tierfs.metadata.records import ChunkRecord
from tierfs.metadata.tables import SEGMENTS
from tierfs.segments.engine import Engine
from tierfs.segments.group_commit import AppendCall
from tierfs.segments.ownership import StaleBase
from tierfs.types import ChunkState, ObjectId, SegmentStatus, Tier


@pytest.fixture
def store(tmp_path: Path) -> Iterator[TestStore]:
    with open_test_store(tmp_path / "store", policy={"chunk_bytes": "8"}) as opened:
        yield opened


@pytest.mark.parametrize("wrong", ["nothing", "writer_epoch", "segment_length", "object_id", "status"])
def test_a_chunk_grows_quickly_only_as_its_writer_left_it(store: TestStore, wrong: str) -> None:
    store.engine.open_writer("s").append(b"ab")
    store.engine.open_writer("other").append(b"cd")
    segment, (placed,), (other,) = store.segment("s"), store.layout("s").local, store.layout("other").local
    growth = Growth(segment.id, segment.writer_epoch, segment.length, placed.object.id, 1, 7, 0, [7], resumable=False)
    if wrong == "object_id":
        growth = replace(growth, object_id=other.object.id)
    elif wrong in ("writer_epoch", "segment_length"):
        growth = replace(growth, **{wrong: getattr(growth, wrong) - 1})
    with store.metadata.write() as txn:
        if wrong == "status":
            message = txn.message(SEGMENTS, tables.u64(segment.id))
            assert message is not None
            message.status = SegmentStatus.SEALED
            txn.put_message(SEGMENTS, tables.u64(segment.id), message)
        assert chains.grow(txn, growth) is (wrong == "nothing")


@pytest.mark.parametrize("alive", [True, False])
def test_a_chunk_is_not_continued_beside_its_living_writer(store: TestStore, alive: bool) -> None:
    writer = store.engine.open_writer("s")
    writer.append(b"ab", last=True)
    if not alive:
        store.engine.close_writer(writer)
    other = Engine(store.metadata, store.files, store.path / "writers", store.clock, WriteSettings())
    with closing(other):
        other.open_writer("s", take_over=True)
        assert store.segment("s").active is not alive


@pytest.mark.parametrize("tier", list(Tier))
@pytest.mark.parametrize("more", [-1, 0, 1])
def test_a_chunk_is_marked_good_only_in_the_length_that_was_read(tier: Tier, more: int) -> None:
    seen = ChunkRecord(start_offset=0, length=4, object_id=ObjectId(1), state=ChunkState.SUSPECT)
    current = replace(seen, length=4 + more)
    expected = more == 0 or (more > 0 and tier is Tier.LOCAL)
    assert chain_edits._changes(current, tier, seen, ChunkState.GOOD) is expected


@pytest.mark.parametrize("wrong", ["nothing", "base_length", "object_id"])
def test_an_append_is_committed_only_at_the_end_and_in_its_chunk(store: TestStore, wrong: str) -> None:
    writer = store.engine.open_writer("s")
    writer.append(b"ab")
    pending = writer._write([AppendCall(writer, memoryview(b"c"))])
    if wrong == "base_length":
        pending._writing = replace(pending._writing, base_length=1)
    elif wrong == "object_id":
        pending._pieces[0].chunk.object_id = ObjectId(999)
    store.files.sync_directory(pending.chunks[0].name)
    if wrong == "nothing":
        with store.metadata.write() as txn:
            pending.apply(txn)
        return
    with pytest.raises(StaleBase), store.metadata.write() as txn:
        pending.apply(txn)


@pytest.mark.parametrize("attempt", ["a", "b"])
def test_an_entry_counts_as_published_only_under_its_own_intent(store: TestStore, attempt: str) -> None:
    intent = PublishIntent(slot=1, first_sequence=1, last_sequence=1, attempt="a")
    with store.metadata.write() as txn:
        txn.update_store(journal=replace(txn.store.journal, intent=replace(intent, attempt=attempt)))
    publisher = Publisher(store.metadata, store.cold)
    if attempt == "a":
        publisher._confirm(intent)
        return
    with pytest.raises(Conflict, match="another process published"):
        publisher._confirm(intent)
