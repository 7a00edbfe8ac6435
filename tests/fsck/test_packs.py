"""fsck, orphans and the sweep of uploads know packs: a sound one is no finding, a bad byte is one segment's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fsck.looking import cold_findings, deep_findings, findings, flip_cold
from tests.stores import TestStore, open_test_store
from tierfs.chunkstore.protocol import BufferSource, PendingUpload
from tierfs.fsck.findings import Kind
from tierfs.fsck.repair.mender import Unrecorded
from tierfs.metadata import tables
from tierfs.metadata.tables import CHUNKS
from tierfs.tiering import packs
from tierfs.tiering.packs import read_index
from tierfs.types import AttemptId, ByteRange, ObjectId, Tier

PACKING = {"chunk_bytes": "1048576", "object_bytes": "1600000"}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[TestStore]:
    with open_test_store(tmp_path / "store", policy=PACKING) as opened:
        for number in range(6):
            opened.append(f"d/s{number}", bytes([number]) * (40_000 + number), seal=True)
        opened.offload()
        opened.evict()
        yield opened


def pack_of(store: TestStore) -> str:
    (name,) = [item.name for item in store.cold.list("packs/")]
    return name


def test_a_sound_pack_is_no_finding(store: TestStore) -> None:
    assert [*findings(store), *cold_findings(store), *deep_findings(store)] == []
    store.engine.delete("d/s3", recursive=False, cold_due_ms=0)
    store.engine.truncate("d/s4", 1000, cold_due_ms=0)
    store.settle()
    assert [*findings(store), *cold_findings(store), *deep_findings(store)] == []


def test_a_bad_byte_is_named_by_segment(store: TestStore) -> None:
    flip_cold(store, "d/s2", 20_000)
    bad = deep_findings(store)
    assert "d/s2" in {one.subject for one in bad}
    assert {one.kind for one in bad} == {Kind.BYTES}


def test_a_missing_pack_is_missed_for_each_of_its_segments(store: TestStore) -> None:
    store.cold.delete(pack_of(store))
    found = [one for one in cold_findings(store) if one.kind is Kind.OBJECT_MISSING]
    assert sorted(one.subject for one in found) == [f"d/s{number}" for number in range(6)]


def test_only_a_pack_of_ours_that_nothing_names_is_an_orphan(store: TestStore, tmp_path: Path) -> None:
    assert store.cold_work().orphans(grace_s=0) == []
    name = pack_of(store)
    data = memoryview(bytearray(store.cold.stat(name).length_bytes))
    store.cold.read_into(name, 0, data)
    index = read_index(store.cold, name, len(data))
    lost = packs.pack_name(ObjectId(999), 1, index.attempt, 0)
    store.cold.put(lost, BufferSource(bytes(data)))
    store.cold.put("packs/no-name-of-ours", BufferSource(bytes(data)))
    store.cold.put(packs.pack_name(ObjectId(998), 7, index.attempt, 0), BufferSource(bytes(data)))  # a later owner's
    with open_test_store(tmp_path / "other", policy=PACKING, cold=store.cold) as other:
        assert other.metadata.store_id != store.metadata.store_id
        assert other.cold_work().orphans(grace_s=0) == []
    assert [one.name for one in store.cold_work().orphans(grace_s=0)] == [lost]


def test_an_upload_of_a_pack_that_nobody_finishes_is_swept(store: TestStore) -> None:
    name = packs.pack_name(ObjectId(999), 1, AttemptId("ab" * 16), 0)
    later = packs.pack_name(ObjectId(999), 2, AttemptId("ab" * 16), 0)
    begun = [PendingUpload(one, "id", 0) for one in (name, later)]
    uploads = store.cold_work()._dead_uploads()
    members = {"uploads": lambda *_: iter(begun), "abort_upload": lambda *_: None, "list": lambda *_: iter(())}
    uploads._storage = type("Uploading", (), members)()  # type: ignore[assignment]
    assert [one.name for one in uploads.find(grace_ms=0)] == [name]


def test_bytes_that_a_pack_still_holds_are_not_called_lost(store: TestStore) -> None:
    segment = store.segment("d/s1")
    with store.metadata.write() as txn:
        txn.delete(CHUNKS.name, tables.chunk(segment.id, Tier.COLD, 0))
    unrecorded = Unrecorded(store.metadata, store.files)
    found = unrecorded.copy_of(segment.id, ByteRange(0, 10), store.cold)
    assert found is not None
    assert pack_of(store) in found
    assert unrecorded.copy_of(segment.id, ByteRange(50_000, 50_001), store.cold) is None
