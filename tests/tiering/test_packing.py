"""Packs: small chunks of many segments in one object, whatever moves, is damaged or crashes meanwhile."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.doubles.scripted_storage import ScriptedStorage, When
from tests.recovery.recovering import recovered
from tests.stores import TestStore, assert_layout, open_test_store
from tierfs.checksum import block_crcs, crc32c
from tierfs.config import OffloadSettings
from tierfs.errors import DataLoss, NotFound
from tierfs.journal.publish import Publisher
from tierfs.metadata import checksums, directories, tables
from tierfs.metadata.tables import CHUNKS, GARBAGE, INTENTS, OBJECTS
from tierfs.segments import stat
from tierfs.tiering import evict, packing
from tierfs.tiering import packs as pack
from tierfs.tiering.packs import read_index
from tierfs.types import CRC_BLOCK_BYTES, ROOT_DIRECTORY, ChunkState, Tier

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


def hide(store: TestStore, name: str) -> None:
    """The first commit of `rm -r`, if it was not made yet."""
    with store.metadata.write() as txn:
        entry = directories.find(txn, name)
        if entry is not None:
            directories.queue(txn, ROOT_DIRECTORY, entry)


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


def test_blocks_of_files_and_pack_meet_at_odd_boundaries(tmp_path: Path) -> None:
    policy = {"chunk_bytes": str(CRC_BLOCK_BYTES + 1000), "object_bytes": str(64 << 20)}
    with open_test_store(tmp_path / "s", policy=policy) as store:
        data = fill(store, 8, 2 * CRC_BLOCK_BYTES + 7777)
        store.offload()
        assert len(packs(store)) == 1
        for name, content in data.items():
            assert store.read(name, Tier.COLD) == content
        _, whole = index_of(store)
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


@pytest.mark.parametrize("when", [When.BEFORE, When.AFTER])
def test_a_crash_around_the_upload_leaves_garbage(store: TestStore, storage: ScriptedStorage, when: When) -> None:
    fill(store, 3)
    storage.fail("put", KeyboardInterrupt(), when=when, of="packs/")
    with pytest.raises((KeyboardInterrupt, BaseExceptionGroup)):
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
