"""The archive place: another directory as the archive of a cold tier; what moves, stays, and is left by a crash."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from tests.commands import tierfs
from tests.conftest import Bucket
from tests.reality.reference import reference
from tests.tiering.archive.archiving import IN_PARTS
from tests.tiering.archive.two_places import AWAY, DATA, World, make_due, objects_in
from tierfs.app.store import Store, open_store
from tierfs.base.words.errors import Unavailable, WrongColdTier
from tierfs.base.words.types import IN_PLACE
from tierfs.engine.chunkstore.directory.storage import DirectoryStorage
from tierfs.engine.chunkstore.protocol import BufferSource, ChunkStorage, Source, StoredObject
from tierfs.engine.chunkstore.wrappers import Wrapped
from tierfs.engine.journal import archive_mark
from tierfs.engine.metadata import directories
from tierfs.engine.metadata.record_parts import PLACED_VERSION
from tierfs.engine.metadata.records import RECORD_VERSION
from tierfs.tiering.archive.command import met_in
from tierfs.tiering.archive.due import ArchiveAction, ArchiveTarget, DueObjects, Movable
from tierfs.tiering.archive.move import ArchiveMove
from tierfs.tiering.archive.watch import ArchiveWatch
from tierfs.upkeep.holder.perform import holding
from tierfs.upkeep.holder.work import ColdWork


class Killed(BaseException):
    """The process ended."""


def test_objects_move_to_another_place_and_back(world: World) -> None:
    """A new name for each, the same id; both places have in the end what records name there, and nothing else."""
    before = {record.id: record for record in world.records()}
    assert world.to_place("-n", "--json").json["objects"] == len(before)
    assert world.to_place("--json").json["objects"] == len(before)
    for record in world.records():
        old = before[record.id]
        assert (record.archive_class, record.version, record.location_id) == (IN_PLACE, PLACED_VERSION, 2)
        assert (record.crc32c, record.created_ms, record.references) == (old.crc32c, old.created_ms, old.references)
        assert record.name != old.name
    assert {(row.location_id, row.name) for row in world.garbage()} == {(1, old.name) for old in before.values()}
    world.require_data()
    world.require_tidy()
    assert world.to_place("--json").json["objects"] == 0
    world.run("check", "--read")
    status = world.run("status", "--json", check=False).json
    assert (status["archived_objects"], status["archive_url"]) == (len(before), f"file:{world.nas}")
    amounts = {line["what"]: line["amount"] for line in world.run("report", "--json").json["lines"]}
    assert amounts[f"storage {IN_PLACE}"] == status["archived_bytes"]
    assert world.run("archive", "--back", "--json").json["objects"] == len(before)
    assert {(r.archive_class, r.version, r.location_id) for r in world.records()} == {("", RECORD_VERSION, 1)}
    world.require_data()
    world.require_tidy()
    assert not objects_in(world.nas)
    world.run("check", "--read")


def test_a_bucket_is_the_archive_of_a_directory(bare: World, moto_bucket: Bucket) -> None:
    """What is sent in parts, too; then back, and the bucket has nothing but its mark."""
    endpoint, bucket = moto_bucket
    parts = reference(3, IN_PARTS)
    bare.fill({"c/parts": parts})
    bare.run("config", f"archive.place=s3://{bucket}/p", f"archive.endpoint_url={endpoint.endpoint_url}", "-q")
    for words, place in ((("--class", IN_PLACE), 2), (("--back",), 1)):
        bare.run("archive", *words)
        bare.collect()
        named = {record.name for record in bare.records() if record.location_id == 2}
        assert (bool(named), {record.location_id for record in bare.records()}) == (place == 2, {place})
        with closing(endpoint.client()) as client:
            listed = {entry["Key"] for entry in client.list_objects_v2(Bucket=bucket)["Contents"]}
        assert listed == {"p/tierfs-store", *(f"p/{name}" for name in named)}
        assert bare.read("c/parts") == (0, parts, b"")
        bare.run("check", "--read")


def test_policies_move_objects_there(world: World) -> None:
    world.run("config", "a/large", f"archive_class={IN_PLACE}", "archive_after=0s")
    with open_store(world.path) as store, holding(store, "test") as work:
        watch = ArchiveWatch(store.metadata, work.cold.location_id)
        (action,) = watch.next(8, lambda _: True)
        work.archive_one(action)
        assert watch.next(8, lambda _: True) == []
    assert sorted(record.archive_class for record in world.records()) == ["", IN_PLACE]
    world.require_data()


def test_without_a_place_the_class_is_refused(bare: World) -> None:
    for words in (("archive", "--class", IN_PLACE), ("config", "/", f"archive_class={IN_PLACE}")):
        refused = bare.run(*words, check=False)
        assert (refused.code, "archive.place=URL" in refused.err) == (2, True), refused


def test_a_place_of_others_is_refused(bare: World, tmp_path: Path) -> None:
    """The cold tier, what is inside it or around it, and another store's places; and the reverse."""
    other, theirs = tmp_path / "other", tmp_path / "theirs"
    for path in (theirs, bare.cold / "in"):
        path.mkdir()
    tierfs("-q", "init", "--cold-dir", theirs, store=other)
    for place, code in ((bare.cold, 2), (bare.cold / "in", 2), (tmp_path, 2), (theirs, 5), ("memory:", 2)):
        refused = bare.run("config", f"archive.place={place}", check=False)
        assert refused.code == code, refused
    (bare.cold / "in").rmdir()
    bare.run("config", f"archive.place={bare.nas}", "-q")
    (inside := bare.nas / "in").mkdir()
    for place in (bare.nas, inside):
        assert tierfs("config", f"archive.place={place}", store=other, check=False).code == 5
        assert tierfs("init", "--cold-dir", place, store=tmp_path / "new", check=False).code == 5
    assert bare.run("move", "--to", bare.nas, check=False).code == 2
    assert bare.run("config", f"cold.url={bare.nas}", check=False).code == AWAY
    found = tierfs("recover", "--from-objects", "--cold-dir", bare.nas, "--yes", store=tmp_path / "new", check=False)
    assert (found.code, "is the archive place of a store" in found.err) == (2, True)


class Dying(Wrapped):
    """A storage whose process dies before or after an object is written."""

    def __init__(self, inner: ChunkStorage, step: str) -> None:
        super().__init__(inner)
        self._step = step

    def put(
        self, name: str, source: Source, *, metadata: Mapping[str, str] | None = None, create_only: bool = True
    ) -> StoredObject:
        if self._step == "before the copy":
            raise Killed
        stored = super().put(name, source, metadata=metadata, create_only=create_only)
        if self._step == "after the copy":
            raise Killed
        return stored


def die() -> None:
    raise Killed


@pytest.mark.parametrize("step", ["before the copy", "after the copy", "before the commit", "before it is published"])
@pytest.mark.parametrize("back", [False, True])
def test_a_process_that_dies_leaves_no_object_and_loses_none(world: World, step: str, back: bool) -> None:
    """The next holder makes garbage of what it had in flight, and the move can be repeated."""
    if back:
        world.to_place("a/large")
    wanted = "" if back else IN_PLACE
    with open_store(world.path) as store:
        work = store.cold_work()
        archive = work.archive_tier()
        assert archive is not None
        at = replace(archive.tier, storage=Dying(archive.tier.storage, step))
        require_now = die if step == "before the commit" else archive.require_now
        dying = replace(archive, tier=at, require_now=require_now)
        connect = work.in_class
        work.archiver = ArchiveMove(
            store.metadata, work.cold, lambda name: Dying(connect(name), step), lambda: dying, grace_ms=0
        )
        dies = step != "before it is published" and not (back and step == "before the commit")
        action = planned(store, work, "a/large", wanted)
        if dies:
            with pytest.raises(Killed):
                work.archive_one(action)
        else:
            work.archive_one(action)
    world.require_data()
    world.require_tidy()
    assert (wanted in world.classes()) is (not dies or back)
    world.run("archive", "--back") if back else world.to_place()
    assert world.classes() == {wanted}
    world.require_data()
    world.require_tidy()


@pytest.mark.parametrize("back", [False, True])
def test_the_old_object_stays_until_the_journal_names_the_new_one(world: World, tmp_path: Path, back: bool) -> None:
    """The disk is lost when the grace period has ended, and the change was never published."""
    if back:
        world.to_place("a/large")
        world.collect()
    world.run("offload")  # the journal has the place
    names = objects_in(world.nas if back else world.cold)
    with open_store(world.path) as store:
        work = store.cold_work()
        work.archive_one(planned(store, work, "a/large", "" if back else IN_PLACE))
        make_due(store)
        assert work.collect().deleted == 0
    assert objects_in(world.nas if back else world.cold) == names
    shutil.rmtree(world.path)
    host = replace(world, path=tmp_path / "again")
    tierfs("recover", "--cold-dir", world.cold, "-q", store=host.path, check=False)
    checked = host.run("check", check=False)
    assert f"to allow it: tierfs config archive.place=file:{world.nas}" in checked.out
    host.run("config", f"archive.place={world.nas}", "-q")
    host.require_data()


def planned(store: Store, work: ColdWork, name: str, storage_class: str) -> ArchiveAction:
    """Return the move of the one object of a segment."""
    with store.metadata.read() as txn:
        due = DueObjects(Movable.of(txn, work.cold.location_id), asked=True)
        segment = directories.segment_by_name(txn, name)
    target = ArchiveTarget(storage_class, store.clock.now_ms())
    (action,) = met_in(store.metadata, due, segment.id, name, target)
    return action


def test_a_place_that_is_not_mounted_gets_nothing_and_loses_nothing(world: World, expected_warnings: list[str]) -> None:
    """An empty directory has no mark: nothing moves there, is deleted for it or there, or counts as lost."""
    expected_warnings.append("no orphans are looked for in the archive place")
    world.to_place("a/large")
    names, kept = objects_in(world.nas), objects_in(world.cold)
    away = world.unmount()
    for words in (("archive", "--class", IN_PLACE), ("archive", "--back")):
        refused = world.run(*words, check=False)
        assert (refused.code, "archive place" in refused.err) == (AWAY, True), refused
    assert world.read("b/small") == (0, DATA["b/small"], b"")
    checked = world.run("check", check=False)
    assert "is not accessible" in checked.out
    assert "missing" not in checked.out
    assert str(world.nas) in world.run("status", check=False).out
    assert "archive place" in world.run("doctor", check=False).out
    world.run("rm", "-r", "--now", "--yes", "a/large")
    with open_store(world.path) as store, holding(store, "test") as work:
        work.publish()
        make_due(store)
        assert "archive place" in work.collect_all(grace_s=0).error
    assert {(row.location_id, bool(row.attempts)) for row in world.garbage()} == {(2, True)}
    assert not any(world.nas.iterdir())
    world.mount(away)
    assert (objects_in(world.nas), objects_in(world.cold) < kept) == (names, True)
    world.require_tidy()
    assert not objects_in(world.nas)


def test_a_copy_in_the_bare_mount_point_is_not_linked(world: World) -> None:
    """The disk went after the mark was seen: the copy was written, and reads well, and is nowhere once it is back."""
    with open_store(world.path) as store:
        work = store.cold_work()
        archive = work.archive_tier()
        assert archive is not None
        archive.tier.require_ours()
        away = world.unmount()
        store_id = store.metadata.store_id
        there = DirectoryStorage(world.nas)
        bare = replace(archive.tier, storage=there, require_ours=lambda: None)
        moving = replace(archive, tier=bare, require_now=lambda: archive_mark.require(there, store_id))
        work.archiver = ArchiveMove(store.metadata, work.cold, work.in_class, lambda: moving, grace_ms=0)
        with closing(there), pytest.raises(WrongColdTier):
            work.archive_one(planned(store, work, "a/large", IN_PLACE))
    assert world.classes() == {""}
    shutil.rmtree(world.nas / "segments")
    shutil.rmtree(world.nas / ".tmp", ignore_errors=True)
    world.mount(away)
    world.require_data()
    world.require_tidy()


def test_local_bytes_stay_while_the_place_of_their_copies_is_away(world: World) -> None:
    local = DATA["b/small"]
    for name in ("c/local", "d/local"):
        tierfs("append", "-q", name, "--seal", store=world.path, stdin=local)
        world.run("offload")
    world.to_place("c")
    away = world.unmount()
    for expected in (len(local), 0):  # of the one whose copy is in the cold tier
        assert world.run("evict", "--json").json["bytes"] == expected
    assert world.read("c/local") == (0, local, b"")
    world.mount(away)
    assert world.run("evict", "--json").json["bytes"] == len(local)


def test_another_address_needs_the_mark_and_the_objects(world: World, tmp_path: Path) -> None:
    world.to_place("a/large")
    other = tmp_path / "other"
    other.mkdir()
    assert world.run("config", f"archive.place={other}", check=False).code == AWAY
    shutil.copy(world.nas / "tierfs-store", other)
    assert world.run("config", f"archive.place={other}", check=False).code == 3
    shutil.rmtree(other)
    world.nas.rename(other)
    world.run("config", f"archive.place={other}", "-q")
    moved = replace(world, nas=other)
    moved.require_data()
    moved.run("archive", "--back")
    moved.require_tidy()


def test_gc_finds_orphans_in_the_place_and_leaves_those_of_other_stores(world: World) -> None:
    world.to_place()
    copied = {name: (world.nas / name).read_bytes() for name in objects_in(world.nas)}
    orphan = next(name for name in copied if name.startswith("segments/"))
    attempt = orphan.rsplit("-", 2)[1]
    stray = orphan.replace(attempt, "0" * 32)
    with closing(DirectoryStorage(world.nas)) as nas:
        metadata = nas.stat(orphan).metadata
        nas.put(stray, BufferSource(copied[orphan]), metadata=metadata)
        theirs = orphan.replace(attempt, "1" * 32)
        nas.put(theirs, BufferSource(copied[orphan]), metadata={**metadata, "store": "f" * 32})
    with open_store(world.path) as store, holding(store, "test") as work:
        assert [each.name for each in work.orphans(grace_s=0) if each.location_id == 2] == [stray]
    world.collect()
    assert objects_in(world.nas) == {*copied, theirs}


def test_a_damaged_copy_is_no_copy(world: World) -> None:
    """The bytes that arrive are read back against the checksums before the record changes."""

    class Damaging(Wrapped):
        def put(
            self, name: str, source: Source, *, metadata: Mapping[str, str] | None = None, create_only: bool = True
        ) -> StoredObject:
            data = bytearray(source.read(0, source.length_bytes))
            data[1000] ^= 1
            return super().put(name, BufferSource(bytes(data)), metadata=metadata, create_only=create_only)

    with open_store(world.path) as store:
        work = store.cold_work()
        archive = work.archive_tier()
        assert archive is not None
        moving = replace(archive, tier=replace(archive.tier, storage=Damaging(archive.tier.storage)))
        work.archiver = ArchiveMove(store.metadata, work.cold, work.in_class, lambda: moving, grace_ms=0)
        with pytest.raises(Unavailable):
            work.archive_one(planned(store, work, "a/large", IN_PLACE))
    assert world.classes() == {""}
    world.require_tidy()


def test_a_dump_brings_back_a_segment_whose_bytes_are_there(world: World) -> None:
    world.to_place("a/large")
    world.run("backup", "--to-bucket", "a/large")
    world.run("rm", "-r", "--now", "--yes", "a/large")
    world.run("restore", "a/large")
    world.require_data()
    assert world.run("archive", "--back", "--json").json["objects"] == 1
    world.require_data()
    world.require_tidy()


def test_an_adoption_leaves_the_own_objects_out(world: World) -> None:
    world.to_place("a/large")
    done = world.run("adopt", world.nas, "--into", "adopted", "--json", check=False)
    assert "this store's own" in done.out + done.err
    assert all(not record.foreign for record in world.records())
