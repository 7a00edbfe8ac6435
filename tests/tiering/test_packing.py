"""Packs: small chunks of many segments in one object, whatever moves, is damaged or crashes meanwhile."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.doubles.scripted_storage import ScriptedStorage
from tests.recovery.recovering import recovered
from tests.stores import TestStore, assert_layout, open_test_store
from tierfs.config import OffloadSettings
from tierfs.errors import DataLoss, NotFound
from tierfs.journal.publish import Publisher
from tierfs.metadata import directories, tables
from tierfs.metadata.tables import CHUNKS, GARBAGE, INTENTS, OBJECTS
from tierfs.segments import stat
from tierfs.tiering import packs as pack
from tierfs.tiering.packs import read_index
from tierfs.types import CRC_BLOCK_BYTES, ROOT_DIRECTORY, ChunkState, Tier

POLICY = {"chunk_bytes": "1048576", "object_bytes": str(16 * 100_000)}
"""Smaller runs are packed."""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[TestStore]:
    with open_test_store(tmp_path / "store", policy=POLICY) as opened:
        yield opened


def packs(store: TestStore) -> list[str]:
    return [found.name for found in store.cold.list("packs/")]


def fill(store: TestStore, count: int = 20, size: int = 3000) -> dict[str, bytes]:
    """Small segments of all lengths, written in no order of their names."""
    data = {f"d{number % 3}/s{number:03d}": os.urandom(size + number) for number in range(count)}
    for name, content in data.items():
        store.append(name, content, seal=True)
    return data


def hide(store: TestStore, name: str) -> None:
    """The first commit of `rm -r`, if it was not made yet."""
    with store.metadata.write() as txn:
        entry = directories.find(txn, name)
        if entry is not None:
            directories.queue(txn, ROOT_DIRECTORY, entry)


def test_small_segments_share_one_object(store: TestStore) -> None:
    data = fill(store)
    store.append("large", os.urandom(100_000))
    report = store.offload()
    assert (report.segments, report.objects) == (21, 2)
    assert len(packs(store)) == 1
    assert len(list(store.cold.list("segments/"))) == 1
    for name, content in data.items():
        assert_layout(store, name, local=[len(content)], cold=[len(content)])
        assert store.read(name, Tier.COLD) == content
    assert store.offload().objects == 0
    with store.metadata.read() as txn:
        assert txn.count(INTENTS.name) == 0


def test_a_pack_says_itself_what_it_holds(store: TestStore) -> None:
    data = fill(store)
    store.offload()
    (name,) = packs(store)
    length = store.cold.stat(name).length_bytes
    whole = memoryview(bytearray(length))
    store.cold.read_into(name, 0, whole)
    trailer = pack.parse_trailer(whole[-pack.TRAILER_BYTES :], length, name)
    index = pack.parse_index(whole[trailer.index.start : trailer.index.end], trailer, name)
    assert index.store_id == store.metadata.store_id
    found = {one.path: bytes(whole[one.object_offset : one.object_offset + one.length]) for one in index.entries}
    assert found == data
    assert [one.path for one in index.entries] == sorted(data)  # as grep -r comes by


def test_the_crc_of_a_packed_segment_stays_known(store: TestStore) -> None:
    data = fill(store, 3)
    store.offload()
    from tierfs.checksum import crc32c

    store.evict()
    for name, content in data.items():
        with store.metadata.read() as txn:
            assert stat.segment_crc(txn, store.segment(name)) == crc32c(content)


def test_blocks_of_files_and_pack_meet_at_odd_boundaries(tmp_path: Path) -> None:
    policy = {"chunk_bytes": str(CRC_BLOCK_BYTES + 1000), "object_bytes": str(64 << 20)}
    with open_test_store(tmp_path / "s", policy=policy) as store:
        data = fill(store, 8, 2 * CRC_BLOCK_BYTES + 7777)
        store.offload()
        assert len(packs(store)) == 1
        from tierfs.checksum import block_crcs
        from tierfs.metadata import checksums

        for name, content in data.items():
            assert store.read(name, Tier.COLD) == content
        (name,) = packs(store)
        whole = bytearray(store.cold.stat(name).length_bytes)
        store.cold.read_into(name, 0, memoryview(whole))
        with store.metadata.read() as txn:
            (holder,) = [one for _, one in txn.scan(OBJECTS) if one.tier is Tier.COLD]
            found = [run.crc(i) for run in checksums.runs(txn, holder.id) for i in range(run.count)]
        assert found == block_crcs(whole)
        assert (holder.references, holder.packed) == (8, 8)


def test_packs_end_at_the_object_limit_and_zero_packs_nothing(tmp_path: Path) -> None:
    with open_test_store(tmp_path / "s", policy={"chunk_bytes": "4096", "object_bytes": "64000"}) as store:
        fill(store, 40, 3000)
        report = store.offload()
        assert report.objects == len(packs(store)) == 2

    settings = OffloadSettings(pack_below_bytes=0)
    with open_test_store(tmp_path / "t", policy=POLICY, settings=settings) as store:
        fill(store, 4)
        assert store.offload().objects == 4
        assert packs(store) == []


def test_one_that_is_alone_is_an_object_like_any_other(store: TestStore) -> None:
    store.append("s", b"abc")
    store.offload()
    assert packs(store) == []


def test_a_damaged_chunk_is_left_out_and_the_others_are_cold(store: TestStore) -> None:
    data = fill(store, 5)
    name = "d1/s001"
    path = store.files.root / store.layout(name).local[0].object.name
    path.chmod(0o600)
    path.write_bytes(b"x" * len(data[name]))
    with pytest.raises(DataLoss, match="does not match its checksums"):
        store.offload()
    assert [placed.chunk.state for placed in store.layout(name).local] == [ChunkState.SUSPECT]
    assert_layout(store, name, local=[len(data[name])], cold=[])
    for other in data.keys() - {name}:
        assert store.read(other, Tier.COLD) == data[other]
    store.clock.advance(7200)
    store.settle()
    assert len(packs(store)) == 1


@pytest.mark.parametrize("count", [5, 70])
def test_many_damaged_chunks_cost_one_upload_more(store: TestStore, count: int) -> None:
    """Few files are kept open elsewhere, many are not; one of the bad ones is missing altogether."""
    data = fill(store, count)
    missing, *damaged = [store.files.root / store.layout(name).local[0].object.name for name in sorted(data)[:4]]
    missing.unlink()
    for path in damaged:
        path.chmod(0o600)
        path.write_bytes(b"x" * path.stat().st_size)
    store.cold = ScriptedStorage(store.cold)
    with pytest.raises((DataLoss, NotFound)):
        store.offload()
    assert store.cold.calls["put"] <= 2 + 1  # and the journal's
    for name in sorted(data)[:4]:
        assert_layout(store, name, local=[len(data[name])], cold=[])
    for name in sorted(data)[4:]:
        assert store.read(name, Tier.COLD) == data[name]


def lose_record(store: TestStore, name: str) -> None:
    """Damage the metadata of one segment."""
    with store.metadata.write() as txn:
        txn.delete(OBJECTS.name, tables.u64(store.layout(name).local[0].object.id))


@pytest.mark.parametrize("when", ["before it is read", "during the upload"])
def test_damaged_records_of_one_segment_keep_no_other_from_becoming_cold(
    store: TestStore, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    data = fill(store, 6)
    put = type(store.cold).put

    def lose_then_put(self: object, name: str, *args: object, **more: object) -> object:
        if name.startswith("packs/"):
            lose_record(store, "d1/s001")
        return put(self, name, *args, **more)  # type: ignore[arg-type]

    if when == "before it is read":
        lose_record(store, "d1/s001")
    else:
        monkeypatch.setattr(type(store.cold), "put", lose_then_put)
    with pytest.raises(DataLoss, match="missing object"):
        store.offload()
    assert len(packs(store)) == 1
    assert store.segment("d1/s001").cold.count == 0
    for name in data.keys() - {"d1/s001"}:
        assert store.read(name, Tier.COLD) == data[name]


def test_a_segment_that_cannot_be_planned_keeps_no_other_from_becoming_cold(store: TestStore) -> None:
    data = fill(store, 6)
    with store.metadata.write() as txn:
        txn.put_raw(CHUNKS.name, tables.chunk(store.segment("d1/s001").id, Tier.LOCAL, 0), b"\xff\xff\xff")
    with pytest.raises(DataLoss):
        store.offload()
    for name in data.keys() - {"d1/s001"}:
        assert store.read(name, Tier.COLD) == data[name]


def test_what_is_deleted_meanwhile_is_left_out(store: TestStore, monkeypatch: pytest.MonkeyPatch) -> None:
    data = fill(store, 5)
    put = type(store.cold).put

    def delete_then_put(self: object, name: str, *args: object, **more: object) -> object:
        if name.startswith("packs/"):
            store.engine.delete("d1/s001", recursive=False, cold_due_ms=0)
        return put(self, name, *args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(type(store.cold), "put", delete_then_put)
    report = store.offload()
    assert (report.segments, report.objects) == (4, 1)
    del data["d1/s001"]
    for name, content in data.items():
        assert store.read(name, Tier.COLD) == content


def test_what_is_being_removed_is_left_out(store: TestStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """`rm -r` of a huge directory hides its name first: no index may name a segment by what it is hidden under."""
    data = fill(store, 9)
    prove = Publisher.require_recent_ownership

    def remove_then_prove(self: Publisher) -> None:
        hide(store, "d1")
        prove(self)

    monkeypatch.setattr(Publisher, "require_recent_ownership", remove_then_prove)
    report = store.offload()
    assert (report.segments, report.objects) == (6, 1)
    (name,) = packs(store)
    index = read_index(store.cold, name, store.cold.stat(name).length_bytes)
    assert {one.path for one in index.entries} == {path for path in data if not path.startswith("d1/")}


def test_a_crash_between_two_commits_keeps_what_is_linked(store: TestStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first commit drops the intent, so that nobody takes a pack that has chunks for a dead upload's."""
    data = fill(store, 6)

    class Killed(BaseException):
        pass

    from tierfs.tiering import packing

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


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_crash_around_the_upload_leaves_garbage(store: TestStore, monkeypatch: pytest.MonkeyPatch, when: str) -> None:
    fill(store, 3)

    class Killed(BaseException):
        pass

    def die(*_: object, **__: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        target = (
            "tierfs.tiering.packing._link_batch" if when == "after" else "tierfs.chunkstore.memory.MemoryStorage.put"
        )
        patch.setattr(target, die)
        with pytest.raises((Killed, BaseExceptionGroup)):
            store.offload()
    store.reopen()
    assert store.offload().objects == 1
    store.clock.advance(7200)
    store.settle()
    assert len(packs(store)) == 1
    with store.metadata.read() as txn:
        assert (txn.count(GARBAGE.name), txn.count(INTENTS.name)) == (0, 0)


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


def test_a_growing_segment_is_packed_again_and_again(store: TestStore) -> None:
    for turn in range(3):
        store.append("a", b"a" * 100 + bytes([turn]))
        store.append("b", b"b" * 50 + bytes([turn]))
        store.offload()
    assert len(packs(store)) == 3
    assert store.read("a", Tier.COLD) == b"".join(b"a" * 100 + bytes([turn]) for turn in range(3))
    report = store.consolidate()
    assert (report.objects_before, report.objects_after) == (6, 2)
    assert_layout(store, "a", local=[101, 101, 101], cold=[303])
    store.clock.advance(7200)
    store.settle()
    assert packs(store) == []


def test_nothing_is_evicted_before_the_journal_names_the_whole_pack(
    store: TestStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tierfs.tiering import evict

    fill(store, 4)
    monkeypatch.setattr("tierfs.holder.work.ColdWork.publish", lambda *_: 0)
    store.offload()
    for name in ("d0/s000", "d1/s001"):
        segment = store.segment(name)
        assert evict.evict(store.metadata, segment.id, cold_before_ms=store.clock.now_ms()).chunks == 0


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


def test_a_dead_pack_whose_chunks_were_moved_by_concat_stays(tmp_path: Path) -> None:
    settings = OffloadSettings(relocate_min_bytes=1000)
    with open_test_store(tmp_path / "s", policy=POLICY, settings=settings) as store:
        data = fill(store, 20)
        store.offload()
        store.evict()
        store.append("target", b"t")
        store.engine.concat("target", "d0/s000")
        for name in sorted(data)[1:]:
            store.engine.delete(name, recursive=False, cold_due_ms=0)
        store.offload()
        store.consolidate()
        assert store.read("target", Tier.COLD)[1:] == data["d0/s000"]
