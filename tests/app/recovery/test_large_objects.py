"""Objects whose checksums are more than one frame of the journal may hold: everything written can be read back."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest

from tests.app.recovery.recovering import recovered
from tests.app.recovery.test_follow import follower, following
from tests.engine.journal.replaying import apply_all, check_store, empty_copy, entries_of, view
from tests.stores import LOCATION, TestStore
from tierfs.base.words.errors import InvalidRequest
from tierfs.base.words.types import ObjectId, Tier
from tierfs.engine.journal import reader
from tierfs.engine.journal.names import JOURNAL_PREFIX, slot_name
from tierfs.engine.metadata import chains, changes, checksums, directories, frames, tables
from tierfs.engine.metadata import records_pb2 as pb
from tierfs.engine.metadata.chain_edits import Editor
from tierfs.engine.metadata.records import ChecksumRun, ChunkRecord, ObjectRecord, SegmentRecord
from tierfs.engine.metadata.tables import CHECKSUMS, OBJECTS, SEGMENTS
from tierfs.engine.metadata.transaction import WriteTransaction
from tierfs.tiering.backup import store as dump
from tierfs.tiering.backup.segment import dump_segment, find_dump, read_dump

GIB = 1 << 30
LENGTH = 264 * GIB
"""Its checksums are 8.25 MiB, of which one object of the journal holds 8."""


@pytest.fixture(autouse=True)
def large(store: TestStore) -> None:
    store.append("large", b"x")
    store.cold_work().publish()


def put_object(txn: WriteTransaction, segment: SegmentRecord, start: int, length: int) -> tuple[SegmentRecord, int]:
    """Link an object nobody has the bytes of, as offload does; returns the changed segment and the object's id."""
    holder = ObjectRecord(
        id=ObjectId(txn.allocate_id()),
        tier=Tier.COLD,
        location_id=LOCATION,
        name=f"segments/large/{segment.id}/chunk-{start:020d}-{start + length:020d}-e1-aa",
        length=length,
        etag="etag",
        created_ms=txn.now_ms,
        linked_sequence=txn.store.next_outbox,
    )
    for number, at in enumerate(range(0, length, checksums.RUN_BYTES)):
        crcs = number.to_bytes(4, "big") * checksums.RUN_BLOCKS
        checksums.put_run(txn, holder.id, ChecksumRun(start=at, crcs=crcs))
    chunk = ChunkRecord(start_offset=start, length=length, object_id=holder.id)
    changed = Editor(txn, replace(segment, length=start + length)).insert(Tier.COLD, chunk, holder).segment
    txn.put(SEGMENTS, tables.u64(segment.id), changed)
    changes.segment_changed(txn, changed)
    changes.cold_linked(txn, segment.id, (chunk,), (replace(holder, references=1),))
    return changed, holder.id


@pytest.fixture
def object_id(store: TestStore) -> int:
    with store.metadata.write() as txn:
        segment = directories.segment_by_name(txn, "large")
        for chunk in list(chains.chunks(txn, segment.id, Tier.LOCAL)):
            segment = Editor(txn, segment).remove(Tier.LOCAL, [chunk], due_ms=0).segment
        return put_object(txn, replace(segment, active=False, resumable=False), 0, LENGTH)[1]


def test_entries_of_a_large_object_can_be_read_and_say_the_same(
    store: TestStore, object_id: int, tmp_path: Path
) -> None:
    """Local bytes wait for the change that links it, and a journal that ends before that has nothing of it."""
    with store.metadata.read() as txn:
        holder = txn.must_get(OBJECTS, tables.u64(object_id), "the object")
        rows = dict(changes.outbox(txn, 0))
        assert pb.Change.FromString(rows[holder.linked_sequence]).HasField("cold_link")
    store.cold_work().publish()
    sizes = [item.length_bytes for item in store.cold.list(JOURNAL_PREFIX)]
    assert max(sizes) <= frames.MAX_OBJECT_BYTES
    with empty_copy(tmp_path / "copy", store.metadata.store_id) as copy:
        apply_all(copy, entries_of(store.cold))
        with copy.read() as txn, store.metadata.read() as own:
            check_store(txn)
            assert view(txn) == view(own)
            assert txn.count(CHECKSUMS.name) == LENGTH // checksums.RUN_BYTES
    store.cold.delete(slot_name(max(reader.list_journal(store.cold).slots)))  # that of the link
    with recovered(tmp_path / "new", store.cold) as found:
        assert found.store.segment("large").cold.count == 0
        with found.store.metadata.read() as txn:
            assert txn.count(CHECKSUMS.name) == 0


def test_a_checkpoint_of_a_large_object_is_enough(store: TestStore, object_id: int, tmp_path: Path) -> None:
    store.cold_work().checkpointer.checkpoint()
    for slot in reader.list_journal(store.cold).slots:
        store.cold.delete(slot_name(slot))
    with recovered(tmp_path / "new", store.cold) as found:
        assert found.store.segment("large").length == LENGTH
        with found.store.metadata.read() as txn:
            assert txn.count(CHECKSUMS.name) == LENGTH // checksums.RUN_BYTES


def test_a_replica_shows_a_large_object_once_it_is_linked(store: TestStore, tmp_path: Path) -> None:
    with following(store, tmp_path / "replica") as replica:
        with store.metadata.write() as txn:
            put_object(txn, directories.segment_by_name(txn, "large"), 1, LENGTH)
        store.cold_work().publish()
        follower(replica).refresh()
        with replica.metadata.read() as txn:
            check_store(txn)
            [chunk] = chains.chunks(txn, replica.segment("large").id, Tier.COLD)
            assert chunk.length == LENGTH


def test_dumps_of_a_large_object_can_be_read(store: TestStore, object_id: int) -> None:
    dump_segment(store.metadata, store.cold, "large")
    found = find_dump(store.cold, store.metadata.store_id, "large")
    changes = [change for piece in read_dump(store.cold, found) for change in piece.changes]
    assert changes[-1].HasField("cold_link")
    file = io.BytesIO()
    with store.metadata.read() as txn:
        dump.write(txn, file, 0)
    file.seek(0)
    assert dump.verify(file, "dump").rows["checksums"] == LENGTH // checksums.RUN_BYTES


def test_what_no_reader_would_take_is_not_written(store: TestStore) -> None:
    before = [item.name for item in store.cold.list("")]
    with store.metadata.write() as txn:
        row = pb.Change(policy=pb.PolicyRecord(settings={"x": "y" * frames.MAX_OBJECT_BYTES}))
        txn.add_to_outbox(row.SerializeToString())
    with pytest.raises(InvalidRequest, match=r"JournalEntry has 8388\d{3} bytes; readers take at most 8388608"):
        store.cold_work().publish()
    assert [item.name for item in store.cold.list("")] == before
