"""Plain packs that `consolidate --compress` compresses: which chunks move, which stay, and what a death leaves."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.app.recovery.recovering import recovered
from tests.doubles.scripted_storage import ScriptedStorage, When
from tests.engine.journal.replaying import check_store
from tests.stores import LOCATION, TestStore, quiet
from tests.tiering.cold_pieces import rows
from tests.tiering.test_compressed_consolidation import flip, rewrite
from tests.tiering.test_compressed_packs import fill, lines, pack_records, packs, set_policy, stored, unpacked, wishes
from tests.tiering.test_consolidate import Killed, dying
from tierfs.base.bytes.byte_times import ByteTimes, TimedBytes
from tierfs.base.options.config import OffloadSettings
from tierfs.base.words.errors import DataLoss
from tierfs.base.words.types import Ack, ChunkState, PayloadEncoding, Tier
from tierfs.engine.metadata import directories, tables
from tierfs.engine.metadata.tables import OBJECTS
from tierfs.engine.segments import clone
from tierfs.tiering.consolidate_command import CompressReport
from tierfs.tiering.consolidation_watch import ConsolidationWatch
from tierfs.tiering.packs import plain_packs, repack
from tierfs.tiering.packs.format import read_index
from tierfs.tiering.packs.repack import RepackRecipe
from tierfs.upkeep.holder.uncompressed import uncompressed

POLICY = {"chunk_bytes": "1048576", "object_bytes": str(16 * 100_000)}
SETTINGS = OffloadSettings(relocate_min_bytes=1000)


def plain(store: TestStore, count: int = 20) -> dict[str, bytes]:
    """Segments in one plain pack and nowhere else, of a store that compresses now."""
    data = fill(store, count)
    store.offload()
    store.evict()
    set_policy(store, "", **POLICY, compression="auto")
    return data


def compress(store: TestStore, path: str = "", *, dry_run: bool = False) -> CompressReport:
    with store.holding() as work:
        return work.compress(path, dry_run=dry_run, report=quiet)


def left(store: TestStore) -> tuple[int, int]:
    """What `tierfs status` counts."""
    with store.metadata.read() as txn:
        found = uncompressed(txn)
    return found.segments, found.bytes


def size(data: dict[str, bytes]) -> int:
    return sum(map(len, data.values()))


def assert_sound(store: TestStore, data: dict[str, bytes], tmp_path: Path, stay: int = 1) -> None:
    """Every byte is right here and in the bucket alone; after the grace period so many packs are left."""
    store.clock.advance(2 * 3600)  # type: ignore[attr-defined]
    store.settle()
    assert len(packs(store)) == stay
    assert rows(store) == (0, 0)
    assert {name: store.read(name, Tier.COLD) for name in data} == data
    with store.metadata.read() as txn:
        check_store(txn)
    with recovered(tmp_path / "again", store.cold) as again:
        assert {name: again.store.read(name, Tier.COLD) for name in data} == data


def test_a_plain_pack_is_compressed_and_its_record_keeps_its_times(store: TestStore, tmp_path: Path) -> None:
    data = plain(store)
    (old,) = pack_records(store)
    assert left(store) == (20, size(data))
    planned = compress(store, dry_run=True)
    store.clock.advance(3600)  # type: ignore[attr-defined]
    done = compress(store)
    new = max(pack_records(store), key=lambda record: record.id)
    assert (planned.segments, planned.objects_before, planned.compressed_objects, planned.plain_bytes) == (
        (done.segments, done.objects_before, done.compressed_objects, done.plain_bytes)
    )
    assert (done.segments, done.objects_before, done.objects_after, done.plain_bytes) == (20, 20, 1, size(data))
    assert done.bytes == done.client_bytes == done.stored_bytes == new.stored_length < size(data) / 2
    assert (new.created_ms, new.written_by_ms, new.times) == (old.created_ms, old.written_by_ms, old.times)
    assert new.encoding is PayloadEncoding.ZSTD_FRAMES
    assert unpacked(stored(store, new.name)) == b"".join(data[name] for name in sorted(data))
    assert left(store) == (0, 0)
    assert wishes(store) == dict.fromkeys(data, True)
    assert compress(store) == CompressReport()
    assert_sound(store, data, tmp_path)


def test_what_lies_elsewhere_or_has_another_policy_stays_in_the_old_pack(store: TestStore, tmp_path: Path) -> None:
    data = plain(store)
    (old,) = pack_records(store)
    set_policy(store, "d1", compression="off")
    compress(store, "d2")
    expected = {name: name.startswith("d2") for name in data}
    moved = {name: store.layout(name).cold[0].object.id != old.id for name in data}
    assert moved == expected
    others = {name: content for name, content in data.items() if name.startswith("d0")}
    assert left(store) == (len(others), size(others))
    compress(store)
    assert {name: store.layout(name).cold[0].object.id != old.id for name in data} == {
        name: not name.startswith("d1") for name in data
    }
    assert left(store) == (0, 0)
    assert_sound(store, data, tmp_path, stay=3)


def test_clones_share_their_bytes_in_the_new_pack(store: TestStore, tmp_path: Path) -> None:
    """One is of a part, which is no other's bytes."""
    data = plain(store, 5)
    (old,) = pack_records(store)
    times = ByteTimes.of([TimedBytes(1000, 1, 2), TimedBytes(size(data) - 1000, 5, 6)])
    with store.metadata.write() as txn:
        txn.put(OBJECTS, tables.u64(old.id), replace(old, times=times))
    for name, end in (("d0/s000", None), ("d1/s001", None), ("d2/s002", 1000)):
        clone.clone(store.metadata, name, f"clones/{name[3:]}", end=end)
        data[f"clones/{name[3:]}"] = data[name][:end]
    store.cold_work().publish()
    own = {name: content for name, content in data.items() if name not in ("clones/s000", "clones/s001")}
    assert left(store)[1] == size(own)
    assert compress(store, dry_run=True).plain_bytes == size(own)
    done = compress(store)
    assert (done.segments, done.objects_before, done.plain_bytes) == (8, 8, size(own))
    new = max(pack_records(store), key=lambda record: record.id)
    assert (new.references, new.length) == (8, size(own))
    stretches = list(new.times.stretches())
    assert [each.length_bytes for each in stretches] == [1000, size(own) - 1000]
    assert [each.written_ms for each in stretches] == [2, 6]
    for name in ("s000", "s001"):
        first, second = store.layout(f"d{name[-1]}/{name}").cold[0], store.layout(f"clones/{name}").cold[0]
        assert (first.object.id, first.chunk.object_offset) == (second.object.id, second.chunk.object_offset)
    assert left(store) == (0, 0)
    assert_sound(store, data, tmp_path)


def test_a_chunk_that_its_index_does_not_lead_to_is_compressed(store: TestStore, tmp_path: Path) -> None:
    """A concat moved it behind a segment that is too large to be joined with it."""
    data = plain(store, 5)
    set_policy(store, "", **{**POLICY, "compression": "zstd", "object_bytes": "1048576"})
    store.append("t", lines(1_048_000))
    store.offload("t")
    store.evict("t")
    store.engine.concat("t", "d1/s001")
    data["t"] = lines(1_048_000) + data.pop("d1/s001")
    store.cold_work().publish()
    compress(store)
    assert [each.object.encoding for each in store.layout("t").cold] == [PayloadEncoding.ZSTD_FRAMES] * 2
    (name,) = [record.name for record in pack_records(store)]
    entries = read_index(store.cold, name, store.cold.stat(name).length_bytes).entries
    assert [(each.path, each.start_offset) for each in entries if each.path == "t"] == [("t", 1_048_000)]
    assert_sound(store, data, tmp_path)


def test_what_saves_too_little_stays_and_is_not_looked_at_again(store: TestStore, storage: ScriptedStorage) -> None:
    data = {f"s{number}": os.urandom(3000) for number in range(9)}
    for name, content in data.items():
        store.append(name, content, seal=True)
    store.offload()
    set_policy(store, "", **POLICY, compression="auto")
    (old,) = pack_records(store)
    done = compress(store)
    assert (done.kept_plain_bytes, done.segments, done.objects_before) == (size(data), 0, 0)
    assert [(record.id, record.kept_plain) for record in pack_records(store)] == [(old.id, True)]
    assert left(store) == (0, 0)
    storage.reads.clear()
    assert compress(store) == CompressReport()
    assert storage.reads == []
    set_policy(store, "", **POLICY, compression="zstd")
    assert left(store) == (9, size(data))
    assert compress(store).compressed_objects == 1
    assert {name: store.read(name, Tier.COLD) for name in data} == data


@pytest.mark.parametrize("way", ["packed", "appended", "repacked"])
def test_packs_that_auto_keeps_plain_say_so(store: TestStore, way: str) -> None:
    def write() -> None:
        for number in range(20):
            store.append(f"s{number}", os.urandom(3000), ack=Ack.COLD if way == "appended" else None)

    if way == "repacked":
        write()
        store.offload()
        store.evict()
    set_policy(store, "", **POLICY, compression="auto")
    if way == "repacked":
        for number in range(2, 20):
            store.engine.delete(f"s{number}", recursive=False, cold_due_ms=0)
        store.cold_work().publish()
        assert store.cold_work().repacker.step() == 6000
    else:
        write()
        store.offload()
    assert {record.kept_plain for record in pack_records(store)} == {True}
    assert left(store) == (0, 0)


def test_a_damaged_chunk_is_suspect_and_the_others_are_compressed_next(store: TestStore, tmp_path: Path) -> None:
    data = plain(store, 6)
    (name,) = packs(store)
    bad = store.layout("d1/s001").cold[0].chunk
    rewrite(store, name, flip(bad.object_offset + 7))
    with pytest.raises(DataLoss, match="does not match its checksums"):
        compress(store)
    assert store.layout("d1/s001").cold[0].chunk.state is ChunkState.SUSPECT
    assert wishes(store) == dict.fromkeys(data, False)
    compress(store)
    for each in data.keys() - {"d1/s001"}:
        assert store.layout(each).cold[0].object.encoding is PayloadEncoding.ZSTD_FRAMES
        assert store.read(each, Tier.COLD) == data[each]
    assert left(store) == (0, 0)


def test_a_dead_neighbours_damage_keeps_no_chunk(store: TestStore, tmp_path: Path) -> None:
    """Blocks are shared, and a chunk's own checksum decides."""
    data = plain(store, 6)
    (name,) = packs(store)
    bad = store.layout("d1/s001").cold[0].chunk
    store.engine.delete("d1/s001", recursive=False, cold_due_ms=0)
    store.cold_work().publish()
    rewrite(store, name, flip(bad.object_offset + 7))
    del data["d1/s001"]
    assert compress(store).objects_before == 5
    assert_sound(store, data, tmp_path)


def test_chunks_that_went_meanwhile_are_left_out(
    store: TestStore, storage: ScriptedStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of the second batch, and one of the first."""
    data = plain(store, 6)
    monkeypatch.setattr(repack, "BATCH", 2)
    gone = sorted(data)[1:4]

    def remove() -> None:
        for name in gone:
            store.engine.delete(name, recursive=False, cold_due_ms=store.clock.now_ms())

    storage.do("put", remove, when=When.AFTER, of="packs/")
    assert compress(store).objects_before == 3
    for name in gone:
        del data[name]
    assert_sound(store, data, tmp_path)


def test_a_large_pack_becomes_several(store: TestStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repack, "MOST_BYTES", 20_000)
    data = plain(store)
    done = compress(store)
    assert (done.objects_before, done.objects_after) == (20, 4)
    assert_sound(store, data, tmp_path, stay=4)


def test_packs_are_found_in_bounded_memory(store: TestStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain_packs, "MOST_CHUNKS", 6)
    monkeypatch.setattr(directories, "PAGE_SEGMENTS", 3)
    data = plain(store)
    assert compress(store).objects_after == 4
    assert left(store) == (0, 0)
    assert_sound(store, data, tmp_path, stay=4)


@pytest.mark.parametrize("compression", ["auto", "off"])
def test_a_dying_pack_moves_in_the_form_of_the_policy_in_force(
    store: TestStore, tmp_path: Path, compression: str
) -> None:
    """The background writer's step, which knows no command."""
    before = "off" if compression == "auto" else "zstd"
    set_policy(store, "", **POLICY, compression=before)
    data = fill(store)
    store.offload()
    store.evict()
    assert set(wishes(store).values()) == {before == "zstd"}
    set_policy(store, "", **POLICY, compression=compression)
    for name in sorted(data)[:-2]:
        del data[name]
        store.engine.delete(name, recursive=False, cold_due_ms=0)
    store.cold_work().publish()
    assert store.cold_work().repacker.step() == size(data)
    assert wishes(store) == dict.fromkeys(data, compression == "auto")
    assert_sound(store, data, tmp_path)


def test_the_background_writer_compresses_what_it_joins_and_nothing_else(store: TestStore) -> None:
    data = {"large": lines(900_000), "s": b""}
    store.append("large", data["large"], seal=True)
    for number in range(3):
        data["s"] += (part := lines(120_000, number))
        store.append("s", part)
        store.offload()
        store.evict()
    store.engine.seal("s")
    store.cold_work().publish()
    packed = plain(store, 5)
    watch = ConsolidationWatch(store.metadata, LOCATION, store.settings)
    work = store.cold_work()
    joined = 0
    while (action := watch.next(lambda _: True)) is not None:
        work.consolidator.run(action, lambda _: None)
        work.publish()
        joined += 1
    assert joined == 1
    assert [each.object.encoding for each in store.layout("s").cold] == [PayloadEncoding.ZSTD_FRAMES]
    assert [each.object.encoding for each in store.layout("large").cold] == [PayloadEncoding.RAW]
    assert wishes(store) == dict.fromkeys(packed, False)
    assert store.read("s", Tier.COLD) == data["s"]


@pytest.mark.parametrize(
    ("owner", "verb", "after", "stay"),
    [
        (RepackRecipe, "describe", True, 1),
        (RepackRecipe, "write", False, 1),
        (RepackRecipe, "write", True, 1),
        (RepackRecipe, "link", False, 1),
        (RepackRecipe, "link_batch", True, 1),
        (RepackRecipe, "second link_batch", False, 2),
        (RepackRecipe, "link", True, 1),
    ],
)
def test_a_death_at_any_step_loses_nothing(
    store: TestStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: object, verb: str, after: bool, stay: int
) -> None:
    """Between two commits a part has moved."""
    monkeypatch.setattr(repack, "BATCH", 8)
    data = plain(store)
    with monkeypatch.context() as patch:
        if verb == "second link_batch":
            second_dies(patch)
        else:
            patch.setattr(owner, verb, dying(owner, verb, after=after))
        with pytest.raises(Killed):
            compress(store)
    assert {name: store.read(name, Tier.COLD) for name in data} == data
    compress(store)
    assert left(store) == (0, 0)
    assert_sound(store, data, tmp_path, stay=stay)


def second_dies(patch: pytest.MonkeyPatch) -> None:
    """The process ends in the second commit that links chunks."""
    swap, calls = RepackRecipe.link_batch, list[int]()

    def die(self: RepackRecipe, *arguments: Any) -> None:
        if calls:
            raise Killed
        calls.append(1)
        swap(self, *arguments)

    patch.setattr(RepackRecipe, "link_batch", die)
