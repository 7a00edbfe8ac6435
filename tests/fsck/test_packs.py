"""fsck, orphans and the sweep of uploads know packs: a sound one is no finding, a bad byte is one segment's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fsck.looking import cold_findings
from tests.stores import TestStore, open_test_store
from tierfs.chunkstore.protocol import PendingUpload
from tierfs.fsck.findings import Kind
from tierfs.fsck.repair.mender import Unrecorded
from tierfs.metadata import tables
from tierfs.metadata.tables import CHUNKS
from tierfs.tiering import packs
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


def test_a_missing_pack_is_missed_for_each_of_its_segments(store: TestStore) -> None:
    store.cold.delete(pack_of(store))
    found = [one for one in cold_findings(store) if one.kind is Kind.OBJECT_MISSING]
    assert sorted(one.subject for one in found) == [f"d/s{number}" for number in range(6)]


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
