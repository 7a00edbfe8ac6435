"""Records of a later version are read, changed and published by this one, and nothing of them is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from google.protobuf.internal.encoder import TagBytes  # type: ignore[import-untyped]

from tests.app.recovery.recovering import recovered
from tests.app.recovery.test_follow import follower, following
from tests.stores import TestStore, open_test_store
from tierfs.base.words.errors import DataLoss, PermissionDenied, TierfsError
from tierfs.base.words.types import ROOT_DIRECTORY, Tier
from tierfs.engine.chunkstore.protocol import BufferSource
from tierfs.engine.journal.names import JOURNAL_PREFIX, entry_slot
from tierfs.engine.journal.objects import read_small
from tierfs.engine.metadata import frames, policies
from tierfs.engine.metadata import records_pb2 as pb
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.sums import SUMS_KEY
from tierfs.engine.metadata.tables import (
    ALL_NAMES,
    CHUNKS,
    DIRECTORIES,
    LOCATIONS,
    OBJECTS,
    OUTBOX_NAME,
    POLICIES,
    SEGMENTS,
    STORE,
    Table,
)

_FIELD = 1999
_VARINT, _BYTES = 0, 2
_VALUE = b"\x2a"

EXTRA = TagBytes(_FIELD, _VARINT) + _VALUE
"""An unknown field of a record."""

_LOCAL, _COLD = 13, 14


def with_extra(database: bytes, value: bytes) -> bytes:
    """The same record with a field more, and one more in each head of a segment's chains."""
    if database == SEGMENTS.name:
        for number in (_LOCAL, _COLD):
            value += TagBytes(number, _BYTES) + bytes([len(EXTRA)]) + EXTRA
    return value + EXTRA


def age(metadata: MetadataStore) -> None:
    """Rewrite every row of a store as a later version would have."""
    with metadata.write() as txn:
        for database in ALL_NAMES:
            for key, value in list(txn.scan_raw(database)):
                changed = _change_with_extra(value) if database == OUTBOX_NAME else with_extra(database, value)
                txn.put_raw(database, key, changed)


def _change_with_extra(value: bytes) -> bytes:
    change = pb.Change.FromString(value)
    body = change.WhichOneof("body")
    if body in ("segment", "directory", "location", "policy"):
        getattr(change, body).MergeFromString(EXTRA)
    for record in (*change.cold_link.chunks, *change.cold_link.objects, *change.cold_link.checksums):
        record.MergeFromString(EXTRA)
    return change.SerializeToString()


def rows_without(metadata: MetadataStore, database: bytes) -> list[bytes]:
    """Keys of rows that lost the field, or never had it. The sums are no record: each commit counts and writes them."""
    with metadata.read() as txn:
        return [key for key, value in txn.scan_raw(database) if EXTRA not in value and key != SUMS_KEY]


TABLES: list[Table] = [SEGMENTS, CHUNKS, OBJECTS, DIRECTORIES, LOCATIONS, POLICIES, STORE]  # type: ignore[type-arg]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[TestStore]:
    """A store in which every row and every queued journal change has fields unknown to this version."""
    with open_test_store(tmp_path / "store") as opened:
        opened.append("d/both", b"0123456789", seal=True)
        opened.append("cold", b"abcdefgh", seal=True)
        opened.offload()
        opened.evict("cold")
        opened.append("local", b"xyz")
        age(opened.metadata)
        yield opened


def assert_kept(store: TestStore, **changed: int) -> None:
    """Every row has its unknown field, but for `changed` rows by table, which this version made."""
    missing = {table.name.decode(): len(rows_without(store.metadata, table.name)) for table in TABLES}
    assert {name: count for name, count in missing.items() if count} == changed


def test_everything_is_read(store: TestStore) -> None:
    assert_kept(store)
    assert store.read("d/both") == b"0123456789"
    assert store.read("cold", Tier.COLD) == b"abcdefgh"
    assert store.read("local") == b"xyz"


def test_verbs_keep_what_they_do_not_know(store: TestStore) -> None:
    store.append("local", b"!")
    store.engine.seal("local")
    assert_kept(store)
    store.offload("local")
    assert_kept(store, chunks=1, objects=1)
    store.evict()
    assert_kept(store, chunks=1, objects=1)
    with store.metadata.write() as txn:
        policies.put(txn, ROOT_DIRECTORY, {"chunk_bytes": "5"})
    assert_kept(store, chunks=1, objects=1)
    store.engine.delete("d", recursive=True, cold_due_ms=0)
    assert_kept(store, chunks=1, objects=1)
    assert store.read("local") == b"xyz!"


def test_verbs_that_move_chunks_keep_what_they_do_not_know(store: TestStore) -> None:
    store.engine.truncate("cold", 3, cold_due_ms=0)
    assert_kept(store)
    store.engine.concat("local", "cold")
    assert_kept(store)
    assert store.read("local") == b"xyzdefgh"
    store.engine.unseal("d/both")
    assert_kept(store)


def test_recovery_keeps_what_it_does_not_know(store: TestStore, tmp_path: Path) -> None:
    store.engine.seal("local")
    store.cold_work().checkpointer.checkpoint()
    store.offload("local")  # in a slot after the checkpoint
    before = {name: len(rows_without(store.metadata, name)) for name in (CHUNKS.name, OBJECTS.name)}
    with recovered(tmp_path / "other", store.cold) as other:
        missing = {
            table.name.decode(): len(rows_without(other.store.metadata, table.name))
            for table in (SEGMENTS, CHUNKS, OBJECTS, POLICIES)
        }
    assert missing == {"segments": 0, "chunks": before[CHUNKS.name], "objects": before[OBJECTS.name], "policies": 0}


@pytest.mark.parametrize("started_over", [False, True], ids=["followed", "started over"])
def test_replicas_keep_what_they_do_not_know(store: TestStore, tmp_path: Path, started_over: bool) -> None:
    checkpointer = store.cold_work().checkpointer
    checkpointer.checkpoint()
    with following(store, tmp_path / "replica") as copy:
        age(store.metadata)
        store.engine.seal("local")
        store.engine.truncate("cold", 3, cold_due_ms=0)
        store.cold_work().publish()
        if started_over:
            for _ in range(2):
                store.append("local2", b"x")
                store.offload()
                checkpointer.checkpoint()
        follower(copy).refresh()
        lost = {table.name.decode(): len(rows_without(copy.metadata, table.name)) for table in (SEGMENTS, CHUNKS)}
    new = 1 if started_over else 0
    assert lost == {"segments": new, "chunks": 3 * new}  # what this version made meanwhile


def test_the_journal_carries_what_this_version_does_not_know(store: TestStore) -> None:
    store.engine.seal("local")
    store.cold_work().checkpointer.checkpoint()
    entries, parts = objects_of_journal(store)
    segments = [change.segment for entry in entries for change in entry.changes if change.HasField("segment")]
    assert EXTRA in segments[-1].SerializeToString()
    for change in (change for part in parts for change in part.changes):
        record = getattr(change, change.WhichOneof("body"))
        for one in (*record.chunks, *record.objects) if change.HasField("cold_link") else (record,):
            assert EXTRA in one.SerializeToString(), change


def objects_of_journal(store: TestStore) -> tuple[list[pb.JournalEntry], list[pb.CheckpointPart]]:
    names = [found.name for found in store.cold.list(JOURNAL_PREFIX)]
    entries = [frames.parse_entry(read_small(store.cold, name), name) for name in names if entry_slot(name) is not None]
    parts = [frames.parse_part(read_small(store.cold, name), name) for name in names if ".part-" in name]
    return entries, parts


def test_what_only_a_newer_tierfs_reads_or_writes_is_refused_with_the_remedy(store: TestStore) -> None:
    newer = replace(store.segment("cold"), version=2)
    with store.metadata.write() as txn:
        txn.put(SEGMENTS, newer.id.to_bytes(8), newer)
    name, data = "journal/00000000000000000077", bytearray(frames.frame(pb.JournalEntry(version=2)))
    data[4:8] = (2).to_bytes(4)
    store.cold.put(name, BufferSource(bytes(data)))
    with store.metadata.write() as txn:
        txn.update_store(min_writer_version=2)
    assert store.read("d/both") == b"0123456789", "it may be read all the same"
    refusals: list[tuple[type[TierfsError], str, Callable[[], object]]] = [
        (PermissionDenied, "can read but not write", lambda: store.append("local", b"x")),
        (DataLoss, "SegmentRecord has format version 2", lambda: store.segment("cold")),
        (DataLoss, "format version 2", lambda: frames.parse_entry(read_small(store.cold, name), name)),
    ]
    for error, message, call in refusals:
        with pytest.raises(error, match=message) as refused:
            call()
        assert refused.value.remedy == "upgrade tierfs"


def test_a_store_of_a_newer_format_is_not_opened(store: TestStore) -> None:
    with store.metadata.write() as txn:
        txn.update_store(min_reader_version=2)
    store.metadata.close()
    with pytest.raises(DataLoss, match="format version") as refused:
        MetadataStore(store.metadata.path, store.clock)
    assert refused.value.remedy == "upgrade tierfs"
