"""A store that has no archive place any more: what must be gone before, and what is gone afterwards."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest

from tests.commands import tierfs
from tests.tiering.archive.two_places import World, objects_in
from tierfs.app.setup import archive_change
from tierfs.app.store import open_store
from tierfs.base.words.names import as_word
from tierfs.base.words.types import IN_PLACE
from tierfs.engine.journal.archive_mark import NOTE_NAME
from tierfs.engine.metadata.tables import LOCATIONS
from tierfs.upkeep.holder.perform import holding

UNSET = ("config", "archive.place=")
THEIRS = 5
"""Exit code of a place that another store has."""


class Killed(BaseException):
    """The process ended."""


def brought_back(world: World) -> World:
    """Move all objects there and back."""
    world.to_place()
    world.run("archive", "--back")
    world.collect()
    return world


def places_of(world: World) -> int:
    with open_store(world.path) as store, store.metadata.read() as txn:
        return txn.count(LOCATIONS.name)


def test_an_archive_place_is_not_unset_while_anything_is_there(world: World) -> None:
    world.run("config", "a", f"archive_class={IN_PLACE}", "archive_after=30d", "-q")
    world.to_place()
    refused = world.run(*UNSET, check=False)
    assert (refused.code, f"has {len(world.records())} objects" in refused.err) == (2, True), refused
    assert "tierfs archive --back" in refused.err
    world.run("config", "a", "archive_after=off", "-q")
    world.run("archive", "--back")
    refused = world.run(*UNSET, check=False)
    assert (refused.code, "grace period" in refused.err) == (2, True), refused
    world.collect()
    refused = world.run(*UNSET, check=False)
    assert (refused.code, "policy of a" in refused.err) == (2, True), refused
    assert world.run("archive", "a/large", "--class", IN_PLACE, "--json").json["objects"] == 1, "nothing was unset"


def test_nothing_is_left_of_it(world: World, tmp_path: Path) -> None:
    """Neither mark nor note: another store may have it, and a recovery from objects needs no other place."""
    done = brought_back(world).run(*UNSET, "--json").json
    assert done == {"unset": ["archive.place"], "before": f"file:{world.nas}"}
    assert not any(path.is_file() for path in world.nas.rglob("*"))
    assert not (world.cold / NOTE_NAME).exists()
    assert "was not set" in world.run(*UNSET).out
    assert world.to_place(check=False).code == 2
    world.run("check", "--read")
    host = replace(world, path=tmp_path / "again")
    host.from_objects()
    host.require_data()
    host.run("config", f"archive.place={world.nas}", "-q")
    host.to_place()
    host.require_tidy()


def test_other_hosts_know_it_from_the_journal(world: World, tmp_path: Path) -> None:
    """A replica that may use it, one that may not, and a recovery; and they know the next place."""
    world.to_place()
    world.run("offload")
    hosts = [replace(world, path=tmp_path / name) for name in ("allowed", "not allowed")]
    for host in hosts:
        warned = tierfs("replica", "--cold-dir", world.cold, store=host.path, check=False).err
        assert f"tierfs --store {as_word(str(host.path))} config archive.place=file:{world.nas}" in warned
    hosts[0].run("config", f"archive.place={world.nas}", "-q")
    world.run("archive", "--back")
    world.collect()
    world.run(*UNSET)
    (other := tmp_path / "other").mkdir()
    world.run("config", f"archive.place={other}", "-q")
    world.to_place("a/large")
    world.run("offload")
    for host in hosts:
        assert host.run("replica", "--refresh", check=False).code == 0
        assert places_of(host) == 2
        host.run("config", f"archive.place={other}", "-q")
        host.require_data()
    with open_store(world.path) as store, holding(store, "test") as work:
        work.checkpointer.checkpoint(whole=True)
    host = replace(world, path=tmp_path / "again")
    warned = tierfs("recover", "--cold-dir", world.cold, store=host.path, check=False).err
    assert f"config archive.place=file:{other}" in warned
    host.run("config", f"archive.place={other}", "-q")
    replace(host, nas=other).require_tidy()
    host.require_data()


def test_a_place_that_is_away_is_unset_all_the_same(world: World) -> None:
    """A disk that is gone for good, with nothing on it."""
    brought_back(world)
    away = world.unmount()
    assert "its mark tierfs-store stays" in world.run(*UNSET, check=False).err
    assert not any(world.nas.iterdir())
    world.mount(away)
    world.run("config", f"archive.place={world.nas}", "-q")
    world.to_place()
    world.require_tidy()


@pytest.mark.parametrize("step", ["remove_note", "is_ours"])
def test_a_process_that_dies_leaves_what_a_second_one_ends(world: World, step: str) -> None:
    brought_back(world)
    dying = patch.object(archive_change.archive_mark, step, side_effect=Killed)
    with open_store(world.path) as store, dying, pytest.raises(Killed):
        archive_change.unset(store)
    world.run(*UNSET)
    assert not (world.cold / NOTE_NAME).exists()
    world.run("config", f"archive.place={world.nas}", "-q")
    world.to_place()
    world.require_data()


def test_objects_that_no_record_names_do_not_become_orphans(world: World, tmp_path: Path) -> None:
    """The note is lost, and a recovery has left them out: once the place is set, `gc` would delete them."""
    world.to_place("a/large")
    world.collect()
    (world.cold / NOTE_NAME).unlink()
    host = replace(world, path=tmp_path / "again")
    host.from_objects()
    refused = host.run("config", f"archive.place={world.nas}", check=False)
    assert (refused.code, "--archive-place" in refused.err) == (THEIRS, True), refused
    kept = objects_in(world.nas)
    last = replace(world, path=tmp_path / "last")
    last.from_objects("--archive-place", world.nas)
    last.require_data()
    last.require_tidy()
    assert objects_in(world.nas) == kept
