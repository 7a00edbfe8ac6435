"""Packs: small chunks of many segments in one object, whatever moves, is damaged or crashes meanwhile."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.app.recovery.recovering import recovered
from tests.doubles.scripted_storage import ScriptedStorage
from tests.stores import TestStore, assert_layout, open_test_store
from tierfs.base.bytes.checksum import crc32c
from tierfs.base.options.config import OffloadSettings
from tierfs.base.words.errors import DataLoss, NotFound
from tierfs.base.words.types import AttemptId, ByteRange, ChunkState, ObjectId, SegmentId, Tier
from tierfs.engine.metadata import records_pb2 as pb
from tierfs.engine.metadata import tables
from tierfs.engine.metadata.records import ObjectRecord
from tierfs.engine.metadata.tables import CHUNKS, INTENTS, OBJECTS
from tierfs.engine.segments import stat
from tierfs.tiering.packs import format as pack
from tierfs.tiering.packs import packing
from tierfs.tiering.packs.format import PackEntry, PackIndex, Trailer

POLICY = {"chunk_bytes": "1048576", "object_bytes": str(16 * 100_000)}
"""Smaller runs are packed."""


def packs(store: TestStore) -> list[str]:
    return [found.name for found in store.cold.list("packs/")]


def fill(store: TestStore, count: int = 20, size: int = 3000) -> dict[str, bytes]:
    """Small segments of all lengths, written in no order of their names."""
    data = {f"d{number % 3}/s{number:03d}": os.urandom(size + number) for number in range(count)}
    for name, content in data.items():
        store.append(name, content, seal=True)
    return data


@pytest.mark.parametrize("count", [1, 2, 20])
def test_small_segments_share_one_object(store: TestStore, count: int) -> None:
    data = fill(store, count)
    store.append("large", os.urandom(100_000))
    report = store.offload()
    assert (report.segments, report.objects) == (count + 1, 2)
    alone = count == 1  # and then an object like any other
    assert (len(packs(store)), len(list(store.cold.list("segments/")))) == ((0, 2) if alone else (1, 1))
    for name, content in data.items():
        assert_layout(store, name, local=[len(content)], cold=[len(content)])
        assert store.read(name, Tier.COLD) == content
    assert store.offload().objects == 0
    store.evict()
    with store.metadata.read() as txn:
        assert txn.count(INTENTS.name) == 0
        crcs = {name: stat.segment_crc(txn, store.segment(name)) for name in data}
    assert crcs == {name: crc32c(content) for name, content in data.items()}
    if not alone:
        index, held = index_of(store)
        assert index.store_id == store.metadata.store_id
        found = {one.path: held[one.object_offset : one.object_offset + one.length] for one in index.entries}
        assert found == data
        assert [one.path for one in index.entries] == sorted(data)  # as grep -r comes by


def index_of(store: TestStore) -> tuple[pack.PackIndex, bytes]:
    """The index of the only pack, as the pack says itself, and its bytes."""
    (name,) = packs(store)
    length = store.cold.stat(name).length_bytes
    whole = memoryview(bytearray(length))
    store.cold.read_into(name, 0, whole)
    trailer = pack.parse_trailer(whole[-pack.TRAILER_BYTES :], length, name)
    return pack.parse_index(whole[trailer.index.start : trailer.index.end], trailer, name), bytes(whole)


@pytest.mark.parametrize(("count", "bad"), [(5, 1), (5, 4), (70, 4)])
def test_a_damaged_chunk_is_left_out_and_the_others_are_cold(
    store: TestStore, storage: ScriptedStorage, count: int, bad: int
) -> None:
    """At the cost of one upload more. Few files are kept open elsewhere, many are not; a fourth bad one is missing."""
    data = fill(store, count)
    names = sorted(data)
    for number, name in enumerate(names[:bad]):
        path = store.files.root / store.layout(name).local[0].object.name
        if number == 3:
            path.unlink()
        else:
            path.chmod(0o600)
            path.write_bytes(b"x" * len(data[name]))
    storage.calls.clear()
    with pytest.raises((DataLoss, NotFound), match=None if bad == 4 else "does not match its checksums"):
        store.offload()
    assert storage.calls["put"] <= 2 + 1 + 1  # and the journal's, and the mark of the store
    for number, name in enumerate(names):
        assert_layout(store, name, local=[len(data[name])], cold=[] if number < bad else [len(data[name])])
        if number >= bad:
            assert store.read(name, Tier.COLD) == data[name]
        elif number < 3:
            assert store.layout(name).local[0].chunk.state is ChunkState.SUSPECT
    store.clock.advance(7200)
    store.settle()
    assert len(packs(store)) == 1


def lose_record(store: TestStore, name: str) -> None:
    """Damage the metadata of one segment."""
    with store.metadata.write() as txn:
        txn.delete(OBJECTS.name, tables.u64(store.layout(name).local[0].object.id))


def spoil_row(store: TestStore, name: str) -> None:
    with store.metadata.write() as txn:
        txn.put_raw(CHUNKS.name, tables.chunk(store.segment(name).id, Tier.LOCAL, 0), b"\xff\xff\xff")


def remove(store: TestStore, name: str) -> None:
    store.engine.delete(name, recursive=False, cold_due_ms=0)


@pytest.mark.parametrize(
    ("happens", "during", "error"),
    [
        (lose_record, False, "missing object"),
        (lose_record, True, "missing object"),
        (spoil_row, False, "a ChunkRecord cannot be decoded"),
        (remove, True, None),
    ],
    ids=["an object's record lost", "lost during the upload", "a chunk's record damaged", "deleted during the upload"],
)
def test_what_happens_to_one_segment_keeps_no_other_from_becoming_cold(
    store: TestStore,
    storage: ScriptedStorage,
    happens: Callable[[TestStore, str], None],
    during: bool,
    error: str | None,
) -> None:
    data = fill(store, 6)
    if during:
        storage.do("put", lambda: happens(store, "d1/s001"), of="packs/")
    else:
        happens(store, "d1/s001")
    if error is None:
        report = store.offload()
        assert (report.segments, report.objects) == (5, 1)
    else:
        with pytest.raises(DataLoss, match=error):
            store.offload()
        assert store.segment("d1/s001").cold.count == 0
    assert len(packs(store)) == 1
    for name in data.keys() - {"d1/s001"}:
        assert store.read(name, Tier.COLD) == data[name]


@pytest.mark.parametrize("batch", [1, 2, 200])
def test_times_stay_with_their_bytes_where_a_part_is_left_out(
    store: TestStore, storage: ScriptedStorage, monkeypatch: pytest.MonkeyPatch, batch: int
) -> None:
    """Parts lie in the order of their segments' names; the dead bytes of one are before those of the next."""
    monkeypatch.setattr(packing, "_BATCH", batch)
    times = {}
    for number in range(8):
        store.clock.advance(60)
        store.append(name := f"d/s{number}", os.urandom(1000), seal=True)
        times[name] = store.clock.now_ms()
    for gone in ("d/s2", "d/s3", "d/s6"):
        storage.do("put", lambda gone=gone: remove(store, gone), of="packs/")
    store.offload()
    assert {row.path for row in pack.read_index(store.cold, packs(store)[0], pack_of(store).length).entries} == {*times}
    for name in times.keys() - {"d/s2", "d/s3", "d/s6"}:
        ((placed),) = store.layout(name).cold
        held = ByteRange(placed.chunk.object_offset, placed.chunk.object_offset + placed.chunk.length)
        known = list(placed.object.times.stretches(held.start, held.end))
        assert [(each.length_bytes, each.first_ms, each.written_ms) for each in known] == [
            (1000, times[name], times[name])
        ]


def pack_of(store: TestStore) -> ObjectRecord:
    with store.metadata.read() as txn:
        (record,) = [record for _, record in txn.scan(OBJECTS) if record.packed]
    return record


@pytest.mark.parametrize("policy", [POLICY, POLICY | {"compression": "zstd"}], ids=["plain", "compressed"])
def test_a_crash_between_two_commits_keeps_what_is_linked(store: TestStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first commit drops the intent, so that nobody takes a pack that has chunks for a dead upload's."""
    data = fill(store, 6)

    class Killed(BaseException):
        pass

    linking = packing._link_batch
    commits = []

    def die(*arguments: object) -> None:
        commits.append(1)
        if len(commits) > 1:
            raise Killed
        linking(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(packing, "_BATCH", 2)
    with monkeypatch.context() as patch:
        patch.setattr(packing, "_link_batch", die)
        with pytest.raises(Killed):
            store.offload()
    store.reopen()
    assert store.offload().segments == 4
    store.clock.advance(7200)
    store.settle()
    for name, content in data.items():
        assert store.read(name, Tier.COLD) == content
    assert len(packs(store)) == 2


def test_a_pack_goes_when_its_last_segment_does(store: TestStore) -> None:
    data = fill(store, 3)
    store.offload()
    store.evict()
    for index, name in enumerate(data):
        store.settle()
        assert len(packs(store)) == 1
        assert store.read(name, Tier.COLD) == data[name]
        with store.metadata.read() as txn:
            (holder,) = [one for _, one in txn.scan(OBJECTS) if one.tier is Tier.COLD]
            assert holder.references == 3 - index
        store.engine.delete(name, recursive=False, cold_due_ms=store.clock.now_ms())
    store.settle()
    assert packs(store) == []


def test_what_is_left_of_a_mostly_dead_pack_moves(tmp_path: Path) -> None:
    settings = OffloadSettings(relocate_min_bytes=1000)
    with open_test_store(tmp_path / "s", policy=POLICY, settings=settings) as store:
        data = fill(store, 20)
        store.offload()
        store.evict()
        (old,) = packs(store)
        kept = sorted(data)[:3]
        store.engine.truncate(kept[0], 1000, cold_due_ms=0)
        for name in sorted(data)[5:]:
            store.engine.delete(name, recursive=False, cold_due_ms=0)
        store.consolidate()
        assert packs(store) == [old]  # a quarter of it counts
        for name in sorted(data)[3:5]:
            store.engine.delete(name, recursive=False, cold_due_ms=0)
        store.offload()
        store.consolidate()
        assert len(packs(store)) == 2
        for name in kept:
            cut = store.segment(name).start_offset
            assert store.read(name, Tier.COLD)[cut:] == data[name][cut:]
        store.clock.advance(7200)
        store.settle()
        (new,) = packs(store)
        assert new != old
        for name in kept:
            cut = store.segment(name).start_offset
            assert store.read(name, Tier.COLD)[cut:] == data[name][cut:]
        store.consolidate()
        assert packs(store) == [new]
        with recovered(tmp_path / "again", store.cold) as again:
            for name in kept:
                cut = again.store.segment(name).start_offset
                assert again.store.read(name, Tier.COLD)[cut:] == data[name][cut:]


INDEX = PackIndex(
    "s" * 4,
    2,
    AttemptId("ab"),
    1000,
    (PackEntry(SegmentId(7), "a/b", 0, 5, 0, 1), PackEntry(SegmentId(9), "c", 4, 3, 5, 0xFFFFFFFF)),
)

GOLDEN = (
    "08011204737373731802220261 6228e807320e0807120361 2f6220053501000000321008091201631804200328053 5ffffffff"
    "54465350 00000001 0000000000000008 0000000000000033 43f1709c 457f3a3e"
)


def parsed(data: bytes, object_bytes: int) -> PackIndex:
    """As a reader does: the trailer, then the index it names."""
    trailer = pack.parse_trailer(data[-pack.TRAILER_BYTES :], object_bytes, "packs/x")
    start = len(data) - pack.TRAILER_BYTES - trailer.index.length_bytes
    return pack.parse_index(data[start : len(data) - pack.TRAILER_BYTES], trailer, "packs/x")


def test_the_index_of_a_pack_has_its_golden_bytes() -> None:
    data = pack.index_and_trailer(INDEX, 8)
    assert data.hex() == GOLDEN.replace(" ", "")
    assert parsed(data, 8 + len(data)) == INDEX


entries = st.lists(
    st.tuples(
        st.integers(1, 2**62),
        st.text(max_size=20),
        st.integers(0, 2**62),
        st.integers(1, 2**40),
        st.integers(0, 2**32 - 1),
    ),
    max_size=20,
)


@given(entries, st.integers(1, 2**31), st.integers(0, 2**40))
def test_what_is_written_is_read(rows: list[tuple[int, str, int, int, int]], epoch: int, created_ms: int) -> None:
    at, made = 0, []
    for number, path, start, length, crc in rows:
        made.append(PackEntry(SegmentId(number), path, start, length, at, crc))
        at += length
    index = PackIndex("store", epoch, AttemptId("ff"), created_ms, tuple(made))
    data = pack.index_and_trailer(index, at)
    assert parsed(data, at + len(data)) == index


@given(st.binary(min_size=pack.TRAILER_BYTES, max_size=pack.TRAILER_BYTES), st.integers(0, 2**40))
def test_random_bytes_are_no_trailer(data: bytes, object_bytes: int) -> None:
    with pytest.raises(DataLoss):
        pack.parse_trailer(data, object_bytes, "packs/x")


@given(st.integers(0, 1000), st.integers(0, 7))
def test_every_flipped_bit_of_index_and_trailer_is_found(at: int, bit: int) -> None:
    data = bytearray(pack.index_and_trailer(INDEX, 8))
    at %= len(data)
    data[at] ^= 1 << bit
    with pytest.raises(DataLoss, match="packs/x"):
        parsed(bytes(data), 8 + len(data))


def test_a_huge_index_is_refused_before_it_is_read() -> None:
    checked = struct.pack(">4sIQQI", b"TFSP", 1, 0, 2**30, 0)
    trailer = checked + crc32c(checked).to_bytes(4, "big")
    with pytest.raises(DataLoss, match="its index is at another offset"):
        pack.parse_trailer(trailer, 2**30 + 32, "packs/x")


@pytest.mark.parametrize(
    "bad",
    [
        {"length": 0},
        {"length": 9},
        {"object_offset": 8, "length": 1},
        {"object_offset": 2**64 - 1, "length": 1},
        {"segment_id": 0},
        {"start_offset": 2**63},
    ],
)
def test_impossible_entries_are_refused(bad: dict[str, int]) -> None:
    entry = pb.PackEntry(segment_id=1, path="a", length=8)
    for key, value in bad.items():
        setattr(entry, key, value)
    data = pb.PackIndex(version=1, entries=[entry]).SerializeToString()
    with pytest.raises(DataLoss, match="is damaged"):
        pack.parse_index(data, Trailer(ByteRange(8, 8 + len(data)), crc32c(data)), "packs/x")


def test_overlapping_entries_and_too_many_are_refused() -> None:
    one = pb.PackEntry(segment_id=1, path="a", length=4)
    for count in (2, pack.MAX_PACK_ENTRIES + 1):
        data = pb.PackIndex(version=1, entries=[one] * count).SerializeToString()
        with pytest.raises(DataLoss, match="is damaged"):
            pack.parse_index(data, Trailer(ByteRange(8, 8 + len(data)), crc32c(data)), "packs/x")


def test_a_newer_format_says_so() -> None:
    data = pb.PackIndex(version=9).SerializeToString()
    with pytest.raises(DataLoss, match="format version 9"):
        pack.parse_index(data, Trailer(ByteRange(0, len(data)), crc32c(data)), "packs/x")


def test_names_tell_object_epoch_attempt_and_checksum() -> None:
    name = pack.pack_name(ObjectId(12), 3, AttemptId("0a" * 16), 0xAB)
    assert name == f"packs/00000000000000000012-e3-{'0a' * 16}-c000000ab"
    assert pack.parse_name(name) == pack.PackName(ObjectId(12), 3, AttemptId("0a" * 16), 0xAB)
    assert pack.parse_name("segments/a/1/chunk-0-1-e1-ab") is None
