"""Compressed objects: rows without their frames, or with other ones, are no lost bytes; a bad bit costs its frame."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from tests.copied import copy_tier
from tests.stores import TestStore
from tests.upkeep.check.looking import cold_findings, deep_findings, findings
from tests.upkeep.check.test_mender import mended
from tierfs.base.system.metrics import NullMetrics
from tierfs.base.words.types import CRC_BLOCK_BYTES, MIB, AttemptId, ByteRange, SegmentId, Tier
from tierfs.engine.chunkstore.memory import MemoryStorage
from tierfs.engine.chunkstore.protocol import BufferSource
from tierfs.engine.metadata import chains, checksums, directories, tables
from tierfs.engine.metadata.records import ChecksumRun, ObjectRecord
from tierfs.engine.metadata.tables import CHECKSUMS, CHUNKS, OBJECTS
from tierfs.reading.etags import Etags
from tierfs.reading.fetch.checked_blocks import BlockDiffers, CheckedBlocks, fetch
from tierfs.reading.verified import VerifiedReader, grid_in
from tierfs.tiering.objects import object_name
from tierfs.upkeep.check.findings import Kind, Severity
from tierfs.upkeep.check.repair.copies import Mended
from tierfs.upkeep.check.repair.unrecorded import Unrecorded

LENGTH = 40 * MIB
POLICY = {"chunk_bytes": str(64 * MIB), "object_bytes": str(64 * MIB), "compression": "auto"}
ROWS = 2
"""Of 32 MiB each."""


@cache
def whole_text() -> bytes:
    return b"".join(map(b"%08d the same words on each line\n".__mod__, range(LENGTH // 37)))


@pytest.fixture
def store(store: TestStore) -> TestStore:
    """Cold and nowhere else."""
    store.append("s", whole_text(), seal=True)
    store.offload()
    store.evict()
    return store


def object_of(store: TestStore) -> ObjectRecord:
    with store.metadata.read() as txn:
        (record,) = [record for _, record in txn.scan(OBJECTS)]
    return record


def rows(store: TestStore) -> list[ChecksumRun]:
    with store.metadata.read() as txn:
        return list(checksums.runs(txn, object_of(store).id))


def put_rows(store: TestStore, runs: list[ChecksumRun]) -> None:
    record = object_of(store)
    with store.metadata.write() as txn:
        checksums.delete(txn, record.id)
        for run in runs:
            txn.put(CHECKSUMS, tables.pair(record.id, run.start), run)


def changed(number: int, **more: Any) -> Callable[[list[ChecksumRun]], list[ChecksumRun]]:
    return lambda runs: [replace(run, **more) if at == number else run for at, run in enumerate(runs)]


def _swapped(runs: list[ChecksumRun]) -> list[ChecksumRun]:
    """Two frames that differ in their length have changed places."""
    first, *rest = runs[1].stored_lengths
    other = next(at for at, length in enumerate(rest) if length != first and at > 30)
    rest[other], first = first, rest[other]
    return [runs[0], replace(runs[1], stored_lengths=(first, *rest))]


MISSING: dict[str, tuple[Callable[[list[ChecksumRun]], list[ChecksumRun]], int]] = {
    "no frames": (changed(1, frame_lengths=(), stored_lengths=()), 32 * MIB),
    "of a plain object": (lambda runs: [replace(run, frame_lengths=(), stored_lengths=()) for run in runs], 0),
    "behind the object": (changed(0, stored_start=2**40), 0),
    "behind the row": (changed(1, frame_start=33 * MIB), 32 * MIB),
    "too few": (lambda runs: [replace(runs[0], stored_lengths=runs[0].stored_lengths[:-1]), runs[1]], 0),
    "too large": (changed(1, frame_lengths=(8 * MIB,)), 32 * MIB),
    "no row": (lambda runs: runs[:1], 32 * MIB),
}


@pytest.mark.parametrize(("change", "offset"), MISSING.values(), ids=MISSING)
def test_rows_without_places_of_their_frames_are_written_again(
    store: TestStore, change: Callable[[list[ChecksumRun]], list[ChecksumRun]], offset: int
) -> None:
    before = rows(store)
    assert len(before) == ROWS
    put_rows(store, change(before))
    (gap,) = findings(store)
    assert (gap.kind, gap.severity) == (Kind.CHECKSUM_GAP, Severity.DAMAGE)
    assert gap.message == f"its checksums or the places of its frames are missing from byte {offset} on"
    unread = deep_findings(store)
    assert {each.message.rpartition(": ")[2] for each in unread} == {
        "the metadata has no checksums for these bytes; no other copy"
    }
    for mend in (gap, unread[0]):
        put_rows(store, change(before))
        assert mended(store, [mend]) == [Mended()]
        assert rows(store) == before
    assert (findings(store), deep_findings(store)) == ([], [])


WRONG: dict[str, Callable[[list[ChecksumRun]], list[ChecksumRun]]] = {
    "a byte later": changed(0, stored_start=1),
    "changed places": _swapped,
}


@pytest.mark.parametrize("change", WRONG.values(), ids=WRONG)
def test_frames_in_other_places_than_rows_say_are_no_lost_bytes(
    store: TestStore, change: Callable[[list[ChecksumRun]], list[ChecksumRun]]
) -> None:
    before = rows(store)
    put_rows(store, change(before))
    assert findings(store) == []
    bad = deep_findings(store)
    assert {each.kind for each in bad} == {Kind.BYTES}
    assert set(mended(store, bad)) == {Mended()}
    assert rows(store) == before
    assert store.read("s", Tier.COLD) == whole_text()
    assert deep_findings(store) == []


def _by_mount(store: TestStore) -> Callable[[ByteRange], bytes]:
    known = Etags(store.metadata)

    def read(wanted: ByteRange) -> bytes:
        record = object_of(store)
        with store.metadata.read() as txn:
            grid = grid_in(txn, record, wanted)
        blocks = CheckedBlocks(record, grid, wanted.start, memoryview(bytearray(wanted.length_bytes)))
        fetch(blocks, store.cold, known, NullMetrics())
        return bytes(blocks.view)

    return read


def _by_threads(store: TestStore) -> Callable[[ByteRange], bytes]:
    reader = VerifiedReader(store.metadata, lambda _: store.cold)

    def read(wanted: ByteRange) -> bytes:
        record = object_of(store)
        return bytes(reader.read(record, wanted, reader.grid(record, wanted), None))

    return read


@pytest.mark.parametrize("reads", [_by_mount, _by_threads], ids=["fetched", "verified"])
def test_readers_that_live_through_a_repair_of_the_rows_read_right_bytes(
    store: TestStore, reads: Callable[[TestStore], Callable[[ByteRange], bytes]]
) -> None:
    """Another process repairs them; the reader has the old ones in memory, of frames that are where these say."""
    read, before = reads(store), rows(store)
    put_rows(store, _swapped(before))
    wrong, right = (ByteRange(at, at + CRC_BLOCK_BYTES) for at in (32 * MIB, 39 * MIB))
    with pytest.raises(BlockDiffers):
        read(wrong)
    assert read(right) == right.of(memoryview(whole_text()))
    assert set(mended(store, deep_findings(store))) == {Mended()}
    assert rows(store) == before
    assert read(wrong) == wrong.of(memoryview(whole_text()))


def test_a_bad_bit_costs_the_bytes_of_its_frame(store: TestStore) -> None:
    record, run = object_of(store), rows(store)[0]
    at = sum(run.stored_lengths[:7]) + run.stored_lengths[7] // 2
    flip(store.cold, record.name, at)
    bad = deep_findings(store)
    assert [each.range for each in bad] == [ByteRange(7 * CRC_BLOCK_BYTES, 8 * CRC_BLOCK_BYTES)]
    (done,) = mended(store, bad)
    assert (done.left, done.lost_bytes) == (None, CRC_BLOCK_BYTES)
    with store.metadata.read() as txn:
        chain = list(chains.chunks(txn, directories.segment_by_name(txn, "s").id, Tier.COLD))
    assert [chunk.range for chunk in chain if chunk.lost] == [ByteRange(7 * CRC_BLOCK_BYTES, 8 * CRC_BLOCK_BYTES)]
    assert deep_findings(store) == []
    flip(store.cold, record.name, at)  # somebody puts the right object back
    (lost,) = [each for each in findings(store) if each.kind is Kind.LOST]
    assert mended(store, [lost])[0].left is None
    assert store.read("s", Tier.COLD) == whole_text()


def flip(cold: object, name: str, at: int) -> None:
    assert isinstance(cold, MemoryStorage)
    held = cold.objects[name]
    data = bytearray(held.data)
    data[at] ^= 0x10
    cold.objects[name] = replace(held, data=bytes(data))


def test_sizes_of_objects_are_of_stored_bytes(store: TestStore) -> None:
    record = object_of(store)
    assert cold_findings(store) == []
    copy_tier(store.cold)
    (note,) = cold_findings(store)
    assert f"1 object of {record.stored_length} bytes" in note.message
    assert isinstance(store.cold, MemoryStorage)
    held = store.cold.objects[record.name]
    cut = replace(held.stored, length_bytes=record.stored_length - 1)
    store.cold.objects[record.name] = replace(held, data=held.data[:-1], stored=cut)
    (short,) = cold_findings(store)
    assert f"it has {record.stored_length - 1} bytes, its record says {record.stored_length}" in short.message


def test_bytes_that_an_unrecorded_object_may_hold_are_not_called_lost(store: TestStore) -> None:
    """Its name tells which: it is much shorter than they are."""
    segment, record = store.segment("s"), object_of(store)
    with store.metadata.write() as txn:
        txn.delete(CHUNKS.name, tables.chunk(segment.id, Tier.COLD, 0))
    last = ByteRange(len(whole_text()) - 1, len(whole_text()))
    assert record.stored_length < last.start
    assert record.name in (Unrecorded(store.metadata, store.files).copy_of(segment.id, last, store.cold) or "")


def test_an_orphan_is_collected_if_this_store_made_it(store: TestStore) -> None:
    names = []
    for number, store_id in enumerate([store.metadata.store_id, "f" * 32]):
        held = ByteRange(number, number + 9)
        name = object_name("s", SegmentId(1), held, 1, AttemptId("a" * 32), 5, is_compressed=True)
        store.cold.put(name, BufferSource(b"lost"), metadata={"store": store_id})
        names.append(name)
    assert {orphan.name for orphan in store.cold_work().orphans(grace_s=0)} == {names[0]}
    store.collect()
    kept = {item.name for item in store.cold.list("segments/")}
    assert names[0] not in kept
    assert {names[1], object_of(store).name} <= kept
