"""A copied or restored cold tier is no damage: another etag alone says nothing, the bytes do."""

from __future__ import annotations

import random

import pytest

from tests.copied import all_adopted, copy_tier, recorded_etags
from tests.doubles.scripted_storage import ScriptedStorage
from tests.stores import TestStore
from tests.upkeep.check.looking import cold_findings, deep_findings, flip_cold, scrubber
from tierfs.base.bytes.progress import Meter
from tierfs.base.words.types import CRC_BLOCK_BYTES, MIB
from tierfs.upkeep.check.changed_objects import ChangedObjects
from tierfs.upkeep.check.findings import Kind, Severity
from tierfs.upkeep.check.scrub.verify import Verifier

LENGTH = 5 * MIB + 12_345
POLICY = {"chunk_bytes": str(MIB), "object_bytes": str(4 * MIB)}
DATA = random.Random(4).randbytes(LENGTH)


@pytest.fixture
def store(store: TestStore) -> TestStore:
    """Cold and nowhere else."""
    store.append("s", DATA, seal=True)
    store.offload()
    store.evict()
    return store


def test_a_copy_is_a_note_and_nothing_is_written(store: TestStore) -> None:
    copy_tier(store.cold)
    before = store.metadata.last_transaction_id()
    (found,) = cold_findings(store)
    assert (found.kind, found.severity) == (Kind.ETAGS, Severity.NOTE)
    assert f"2 objects of {LENGTH} bytes" in found.message
    assert deep_findings(store) == []
    assert store.metadata.last_transaction_id() == before


def test_repair_adopts_the_etags(store: TestStore) -> None:
    copy_tier(store.cold)
    (found,) = cold_findings(store, ChangedObjects(store.metadata, lambda _: store.cold, adopts=True))
    assert found.severity is Severity.NOTE
    assert "adopted 2 etags" in found.message
    assert all_adopted(store)
    store.settle()
    assert cold_findings(store) == []


def test_a_check_that_reads_all_bytes_counts_no_etags_before_it_has_read_them(store: TestStore) -> None:
    copy_tier(store.cold)
    changed = ChangedObjects(store.metadata, lambda _: store.cold, adopts=True, reads=False)
    (found,) = cold_findings(store, changed)
    assert found.message.endswith("--read checks their bytes, and --repair adopts the etags of those that match")


def test_verify_adopts_the_etags(store: TestStore) -> None:
    copy_tier(store.cold)
    segment = store.segment("s")
    verifier = Verifier(store.metadata, scrubber(store), Meter(), marks=True)
    (result,) = verifier.run([("s", segment.id, segment.range)])
    assert (result.ok, result.marked) == (True, 0)
    assert all_adopted(store)


@pytest.mark.parametrize(
    ("offset", "sampled"), [(5, True), (2 * MIB - 17, True), (3 * MIB, False), (4 * MIB - 1, True), (LENGTH - 1, True)]
)
def test_a_copy_with_a_bad_bit_is_named_where_a_sample_meets_it(store: TestStore, offset: int, sampled: bool) -> None:
    before = recorded_etags(store)
    flip_cold(store, "s", offset)
    copy_tier(store.cold)
    found = {one.kind: one for one in cold_findings(store)}
    assert set(found) == ({Kind.OBJECT_DIFFERS, Kind.ETAGS} if sampled else {Kind.ETAGS})
    if sampled:
        block = offset % (4 * MIB) // CRC_BLOCK_BYTES * CRC_BLOCK_BYTES
        assert f"bytes {block} to" in found[Kind.OBJECT_DIFFERS].message
    (bad,) = deep_findings(store)
    assert bad.range is not None
    assert bad.range.start <= offset < bad.range.end
    assert bad.range.length_bytes <= CRC_BLOCK_BYTES
    assert recorded_etags(store) == before


@pytest.mark.parametrize("read", [1, 2, 6])
def test_a_wrong_byte_on_the_wire_is_no_difference(store: TestStore, read: int) -> None:
    copy_tier(store.cold)
    cold = ScriptedStorage(store.cold)
    store.cold = cold
    cold.damage(0, on=read, of="chunk-")
    assert {finding.kind for finding in cold_findings(store)} == {Kind.ETAGS}
    reads = [each for each in cold.reads if "chunk-" in each.name]
    assert reads.count(reads[read - 1]) == 2, "it was read again"
