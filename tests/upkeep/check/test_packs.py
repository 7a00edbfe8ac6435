"""Packs: a bad bit costs the chunk that it lies in, and none that shares its block; a missing pack is missed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.copied import copy_tier
from tests.doubles.scripted_storage import ScriptedStorage
from tests.reading.readers import reader_of
from tests.stores import TestStore, open_test_store
from tests.upkeep.check.looking import cold_findings, deep_findings, flip_cold, holder_at, scrubber
from tierfs.base.bytes.progress import Meter
from tierfs.base.words.errors import DataLoss
from tierfs.base.words.types import MIB, AttemptId, ByteRange, ChunkState, ObjectId, Tier
from tierfs.engine.chunkstore.protocol import PendingUpload
from tierfs.engine.metadata import checksums, tables
from tierfs.engine.metadata.tables import CHUNKS
from tierfs.tiering.packs import format as packs
from tierfs.upkeep.check.findings import Kind
from tierfs.upkeep.check.repair.checksums import mend_checksums
from tierfs.upkeep.check.repair.unrecorded import Unrecorded
from tierfs.upkeep.check.scrub.verify import Verifier

POLICY = {"chunk_bytes": "1048576", "object_bytes": "1600000"}


@pytest.fixture
def store(store: TestStore) -> TestStore:
    for number in range(6):
        store.append(f"d/s{number}", bytes([number]) * (40_000 + number), seal=True)
    store.offload()
    store.evict()
    return store


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


@pytest.mark.parametrize("policy", [POLICY, POLICY | {"compression": "zstd"}], ids=["plain", "compressed"])
def test_bytes_that_a_pack_still_holds_are_not_called_lost(store: TestStore) -> None:
    segment = store.segment("d/s1")
    with store.metadata.write() as txn:
        txn.delete(CHUNKS.name, tables.chunk(segment.id, Tier.COLD, 0))
    unrecorded = Unrecorded(store.metadata, store.files)
    found = unrecorded.copy_of(segment.id, ByteRange(0, 10), store.cold)
    assert found is not None
    assert pack_of(store) in found
    assert unrecorded.copy_of(segment.id, ByteRange(50_000, 50_001), store.cold) is None


# A bad bit

NAMES = ("a", "b", "c", "d", "e")
DATA = {name: os.urandom(5000 + number) for number, name in enumerate(NAMES)}
BAD = "c"


@pytest.fixture
def harmed(tmp_path: Path) -> Iterator[TestStore]:
    """Five segments in one block of one pack, nowhere else; one of them has a bad bit."""
    with open_test_store(tmp_path / "store", policy={"read_priority": "local-first"}) as opened:
        for name, data in DATA.items():
            opened.append(name, data, seal=True)
        opened.offload()
        opened.evict()
        assert len(list(opened.cold.list("packs/"))) == 1
        flip_cold(opened, BAD, 100)
        yield opened


def suspects(harmed: TestStore) -> set[str]:
    return {
        name
        for name in NAMES
        for placed in harmed.layout(name).chunks(Tier.COLD)
        if placed.chunk.state is ChunkState.SUSPECT
    }


def test_verify_names_the_damaged_segment_alone(harmed: TestStore) -> None:
    verifier = Verifier(harmed.metadata, scrubber(harmed), Meter(), marks=True)
    segments = [(name, harmed.segment(name).id, harmed.segment(name).range) for name in NAMES]
    assert {found.name for found in verifier.run(segments) if not found.ok} == {BAD}
    assert suspects(harmed) == {BAD}


def test_a_copied_pack_differs_for_the_damaged_segment_alone(harmed: TestStore) -> None:
    copy_tier(harmed.cold)
    (finding,) = [finding for finding in cold_findings(harmed) if finding.kind is Kind.OBJECT_DIFFERS]
    assert finding.subject == BAD


async def test_segments_beside_a_damaged_one_are_read_and_stay_unmarked(
    harmed: TestStore, expected_warnings: list[str]
) -> None:
    expected_warnings.append("does not match its checksum")
    async with reader_of(harmed) as reader:
        for name, data in DATA.items():
            handle = reader.open(harmed.segment(name).id)
            if name == BAD:
                with pytest.raises(DataLoss):
                    await handle.read(0, 10_000)
            else:
                assert bytes(await handle.read(0, 10_000)) == data
                assert bytes(await handle.read(1000, 500)) == data[1000:1500]
            handle.close()
    assert suspects(harmed) == {BAD}


def test_a_wrong_byte_on_the_wire_keeps_no_checksums_from_being_mended(store: TestStore) -> None:
    holder, _ = holder_at(store, "d/s1", Tier.COLD, 0)
    with store.metadata.write() as txn:
        checksums.delete(txn, holder.id)
    cold = ScriptedStorage(store.cold)
    cold.damage(0, of="packs/")
    store.cold = cold
    assert mend_checksums(store.metadata, scrubber(store), holder.id) is None
    assert deep_findings(store) == []


@pytest.mark.parametrize("own", [False, True], ids=["a neighbour's bit", "its own"])
def test_a_chunk_in_several_pieces_answers_for_none_of_its_neighbours(tmp_path: Path, own: bool) -> None:
    policy = {"chunk_bytes": str(8 * MIB), "object_bytes": str(64 * MIB)}
    with open_test_store(tmp_path / "large", policy=policy) as store:
        data = os.urandom(3_700_011)
        names = [f"s{number}" for number in range(10)]  # one of them crosses the 32 MiB of a run of checksums
        for name in names:
            store.append(name, data, seal=True)
        store.offload()
        store.evict()
        places = {name: holder_at(store, name, Tier.COLD, 0) for name in names}
        crossing = next(name for name, (_, at) in places.items() if at < 32 * MIB < at + len(data))
        before = max((at, name) for name, (_, at) in places.items() if at < places[crossing][1])[1]
        flip_cold(store, *((crossing, 0) if own else (before, len(data) - 1)))
        assert {finding.subject for finding in deep_findings(store)} == {crossing if own else before}
