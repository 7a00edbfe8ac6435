"""The archive place on other hosts: in a replica, after a recovery, and after one from the objects of both places."""

from __future__ import annotations

import os
import shutil
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest

from tests.commands import run, tierfs
from tests.conftest import Bucket
from tests.tiering.archive.archiving import ARCHIVED, LARGE
from tests.tiering.archive.two_places import AWAY, BY_A_KEY, DATA, World, objects_in
from tierfs.app.recovery.from_objects import recover_from_objects
from tierfs.app.store import open_store
from tierfs.base.bytes.progress import unseen
from tierfs.base.words.types import IN_PLACE
from tierfs.engine.chunkstore.place import Place
from tierfs.upkeep.holder.perform import holding


def test_a_recovery_and_a_replica_use_the_place_once_they_are_told_to(world: World, tmp_path: Path) -> None:
    """A place that only a journal names is read on no host, and nothing is written or deleted there."""
    world.to_place("a/large")
    world.run("rm", "-r", "--now", "--yes", "b")
    world.run("offload")
    for command in (("replica", "--cold-dir", world.cold), ("recover", "--cold-dir", world.cold, "--yes")):
        host = replace(world, path=tmp_path / command[0])
        tierfs(*command, "-q", store=host.path, check=False)
        code, out, err = host.read("a/large")
        assert (code, out, b"only in the bucket's journal" in err) == (BY_A_KEY, b"", True)
        assert host.read("a/small") == (0, DATA["a/small"], b"")
        assert "not-allowed" in host.problems()
        assert host.run("config", f"archive.place={tmp_path / 'elsewhere'}", check=False).code
        host.run("config", f"archive.place={world.nas}", "-q")
        assert "not-allowed" not in host.problems()
        assert host.read("a/large") == (0, DATA["a/large"], b"")
        assert host.run("archive", "--back", check=False).code == (6 if command[0] == "replica" else 0)
    host.require_tidy()
    assert not objects_in(world.nas)


def test_a_place_that_only_a_journal_names_gets_nothing(world: World, tmp_path: Path) -> None:
    """Also where a setting lets readers in: only the command that sees the mark lets the owner in."""
    world.to_place("a/large")
    names, host = objects_in(world.nas), replace(world, path=tmp_path / "again")
    tierfs("recover", "--cold-dir", world.cold, "--yes", "-q", store=host.path, check=False)
    host.run("config", f"cold.allowed_locations=file:{world.nas}", "-q")
    assert "not-allowed" not in host.problems()
    refused = host.to_place(check=False)
    assert (refused.code, "only in the bucket's journal" in refused.err) == (BY_A_KEY, True)
    assert objects_in(world.nas) == names


def test_a_recovery_keeps_the_garbage_of_the_place(world: World, tmp_path: Path) -> None:
    """A checkpoint has it, and the next owner deletes it."""
    world.to_place("a/large")
    world.run("rm", "-r", "--now", "--yes", "a/large")
    with open_store(world.path) as store, holding(store, "test") as work:
        work.publish()
        work.checkpointer.checkpoint(whole=True)
    host = replace(world, path=tmp_path / "again")
    tierfs("recover", "--cold-dir", world.cold, "--yes", "-q", store=host.path, check=False)
    assert {row.location_id for row in host.garbage()} == {1, 2}
    host.run("config", f"archive.place={world.nas}", "-q")
    host.require_tidy()
    assert not objects_in(world.nas)


def test_a_recovery_from_objects_needs_to_be_told_the_place(world: World, tmp_path: Path) -> None:
    """What is only noted is not used; and another place, or none, is not taken for it."""
    world.to_place("a/large")
    host = replace(world, path=tmp_path / "again")
    refused = host.from_objects(check=False)
    assert (refused.code, f"name it: --archive-place file:{world.nas}" in refused.err) == (2, True), refused
    away = world.unmount()
    refused = host.from_objects("--archive-place", world.nas, check=False)
    assert (refused.code, "has no mark" in refused.err, any(world.nas.iterdir())) == (AWAY, True, False), refused
    world.mount(away)
    for directory in ("theirs", "their nas"):
        (tmp_path / directory).mkdir()
    tierfs("-q", "init", "--cold-dir", tmp_path / "theirs", store=tmp_path / "other")
    tierfs("config", f"archive.place={tmp_path / 'their nas'}", "-q", store=tmp_path / "other")
    places = (tmp_path / "their nas", AWAY), (tmp_path / "nowhere", AWAY), (world.cold, AWAY), ("nas", 2)
    for place, code in places:
        refused = host.from_objects("--archive-place", place, check=False)
        assert (refused.code, host.path.exists()) == (code, False), refused
    assert host.run("recover", "--cold-dir", world.cold, "--archive-place", world.nas, check=False).code == 2


def test_a_recovery_from_objects_reads_both_places(world: World, tmp_path: Path) -> None:
    """Of an object that has just moved there are two copies; the later one is linked, and `gc` deletes the other."""
    world.to_place("a/large")
    world.run("archive", "a/small", "--class", IN_PLACE)
    before = {(record.location_id, record.name) for record in world.records()}
    assert {location_id for location_id, _ in before} == {1, 2}
    assert len(objects_in(world.cold)) > len(before) - 2, "the old copies wait for the end of the grace period"
    shutil.rmtree(world.cold / "journal")
    host = replace(world, path=tmp_path / "again")
    done = host.from_objects("--archive-place", world.nas, "--json").json
    assert done["archive_place"] == f"file:{world.nas}"
    assert not [segment for segment in done["segments"] if segment["lost"]]
    assert {(record.location_id, record.name) for record in host.records()} == before
    host.require_data()
    host.run("check", "--read")
    host.require_tidy()
    host.run("archive", "--back")
    host.require_tidy()
    assert not objects_in(world.nas)
    again = replace(world, path=tmp_path / "third")
    tierfs("recover", "--cold-dir", world.cold, store=again.path, check=False)
    again.require_data()


def test_a_recovery_from_objects_takes_the_good_one_of_two_copies(world: World, tmp_path: Path) -> None:
    """The later copy is damaged, the old one waits for its deletion: it is all that there is."""
    world.to_place("a/large")
    (moved,) = (record for record in world.records() if record.location_id == 2)
    data = bytearray((world.nas / moved.name).read_bytes())
    data[1000] ^= 1
    (world.nas / moved.name).write_bytes(data)
    host = replace(world, path=tmp_path / "again")
    done = host.from_objects("--archive-place", world.nas, "--json").json
    assert [left["object"] for left in done["left"]] == [f"{moved.name} in the archive place"]
    host.require_data()
    host.require_tidy()
    host.require_data()


def test_a_recovery_from_objects_takes_one_name_in_two_places_once(world: World, tmp_path: Path) -> None:
    """A copy by hand has put the objects of the archive into the cold tier, too; then one of them is bad."""
    world.to_place()
    world.collect()
    for directory in ("segments", "packs"):
        shutil.copytree(world.nas / directory, world.cold / directory, dirs_exist_ok=True)
    host = replace(world, path=tmp_path / "again")
    host.from_objects("--archive-place", world.nas)
    assert len(host.records()) == len(world.records())
    host.require_data()
    shutil.rmtree(host.path)
    for name in objects_in(world.cold):
        (world.cold / name).write_bytes(b"x" * (world.cold / name).stat().st_size)
    host.from_objects("--archive-place", world.nas)
    assert {record.location_id for record in host.records()} == {2}
    host.require_data()


def test_all_objects_in_the_archive_are_enough(world: World, tmp_path: Path) -> None:
    """The disk and the cold tier are lost, and a new cold tier is empty."""
    world.to_place()
    shutil.rmtree(world.cold)
    world.cold.mkdir()
    host = replace(world, path=tmp_path / "again")
    host.from_objects("--archive-place", world.nas)
    host.require_data()
    tierfs("append", "-q", "c/new", store=host.path, stdin=b"new")
    host.run("offload")
    host.run("archive", "--back")
    host.require_data()
    host.require_tidy()


class Killed(BaseException):
    """The process ended."""


STEPS = ("tierfs.engine.journal.archive_mark.write_note", "tierfs.engine.journal.epochs.begin")
STEPS += ("tierfs.engine.journal.publish.Publisher.publish", "tierfs.engine.journal.checkpoint.Checkpointer.checkpoint")
STEPS += ("tierfs.app.setup.store_directory.write_settings", "tierfs.app.recovery.inventory.names_now")


@pytest.mark.parametrize("step", STEPS)
def test_a_recovery_from_objects_that_dies_can_be_repeated(world: World, tmp_path: Path, step: str) -> None:
    """Before each step that is seen by others. Nothing of the objects changed, and the second one is like the first."""
    world.to_place("a/large")
    listed = objects_in(world.cold), objects_in(world.nas)
    with patch(step, side_effect=Killed), pytest.raises(Killed):
        recovering(world, tmp_path / "died")
    host = replace(world, path=tmp_path / "again")
    host.from_objects("--archive-place", world.nas)
    assert (objects_in(world.cold), objects_in(world.nas)) == listed
    host.require_data()
    host.require_tidy()
    host.require_data()


def recovering(world: World, path: Path) -> None:
    """Recover from the objects of both places, in this process."""
    archive = Place.in_directory(world.nas)
    recover_from_objects(path, Place.in_directory(world.cold), unseen, lambda _: None, archive=archive)


def test_an_address_that_is_noted_is_used_where_the_settings_allow_it(world: World, tmp_path: Path) -> None:
    world.to_place("a/large")
    host = replace(world, path=tmp_path / "again")
    environment = {**os.environ, "TIERFS_STORE": str(host.path), "TIERFS_COLD__ALLOWED_LOCATIONS": f"file:{world.nas}"}
    code, _, err = run(["recover", "--from-objects", "--cold-dir", str(world.cold), "--yes"], environment, b"")
    assert code == 0, err
    host.require_data()


def test_objects_of_both_places_are_thawed_before_a_recovery(bare: World, tmp_path: Path, moto_bucket: Bucket) -> None:
    """A rule of the archive's bucket has moved an object to a class from which it must be restored."""
    endpoint, bucket = moto_bucket
    bare.run("config", f"archive.place=s3://{bucket}/p", f"archive.endpoint_url={endpoint.endpoint_url}", "-q")
    bare.to_place("a/large")
    bare.collect()
    (moved,) = (record for record in bare.records() if record.location_id == 2)
    with closing(endpoint.client()) as client:
        source = {"Bucket": bucket, "Key": f"p/{moved.name}"}
        client.copy_object(**source, CopySource=source, StorageClass="DEEP_ARCHIVE")
    host = replace(bare, path=tmp_path / "again")
    assert f"--archive-endpoint-url {endpoint.endpoint_url}" in host.from_objects(check=False).err
    words = ("--archive-place", f"s3://{bucket}/p", "--archive-endpoint-url", endpoint.endpoint_url)
    refused = host.from_objects(*words, check=False)
    assert (refused.code, f"1 object of {LARGE:,} bytes" in refused.err, host.path.exists()) == (ARCHIVED, True, False)
    host.from_objects(*words, "--thaw", "2", check=False)
    assert {record.archive_class for record in host.records()} == {"", IN_PLACE}
    host.require_data()
