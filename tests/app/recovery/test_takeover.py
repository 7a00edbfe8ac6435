"""Taking over from an owner that goes on publishing, and taking nothing when the work on this disk fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.app.recovery.recovering import recovered
from tests.doubles.scripted_storage import ScriptedStorage
from tests.faults.two_owners import bucket as objects
from tests.stores import TestStore, open_test_store, quiet
from tierfs.app.recovery.from_objects import recover_from_objects
from tierfs.app.recovery.recover import recover_store
from tierfs.app.setup import store_directory
from tierfs.base.bytes.progress import Progress
from tierfs.base.words.errors import Fenced, StorageFull
from tierfs.engine.chunkstore.directory.storage import DirectoryStorage
from tierfs.engine.chunkstore.memory import MemoryStorage
from tierfs.engine.chunkstore.place import Place
from tierfs.engine.journal.names import JOURNAL_PREFIX

LOST_RACES = 20


def racing(inner: MemoryStorage, act: Callable[[], None], times: int) -> ScriptedStorage:
    """Let somebody act before each of the first slots is created that come by here."""
    storage = ScriptedStorage(inner)
    storage.do("put", act, on=range(1, times + 1), of="journal/0")
    return storage


@pytest.fixture
def owner(tmp_path: Path, cold: MemoryStorage) -> Iterator[TestStore]:
    with open_test_store(tmp_path / "owner", cold=cold) as store:
        store.append("s", b"abcd")
        store.offload()
        yield store


def test_a_takeover_replays_what_came_and_tries_the_next_slot_until_it_wins(
    owner: TestStore, cold: MemoryStorage, tmp_path: Path
) -> None:
    names: list[str] = []

    def act() -> None:
        names.append(f"late{len(names)}")
        owner.append(names[-1], b"abcd")
        owner.offload()

    with recovered(tmp_path / "new", racing(cold, act, LOST_RACES)) as found:
        assert len(names) == LOST_RACES
        for name in names:
            assert found.store.read(name) == b"abcd"
        with pytest.raises(Fenced):
            act()


def test_a_takeover_begins_anew_when_slots_were_deleted_meanwhile(
    owner: TestStore, cold: MemoryStorage, tmp_path: Path
) -> None:
    def act() -> None:
        for name in ("late", "later"):
            owner.append(name, b"abcd")
            owner.offload()
            owner.cold_work().checkpointer.checkpoint()

    with recovered(tmp_path / "new", racing(cold, act, 2)) as found:
        assert found.store.read("late") == b"abcdabcd"
        with pytest.raises(Fenced):
            act()


def test_of_two_recoveries_at_once_one_wins(owner: TestStore, cold: MemoryStorage, tmp_path: Path) -> None:
    with recovered(tmp_path / "first", cold) as first:
        first.store.append("s", b"efgh")  # begun, and nothing more: the owner is another one by now

    def act() -> None:
        with recovered(tmp_path / "fast", cold) as fast:
            fast.store.append("s", b"efgh")
            fast.store.offload()

    with pytest.raises(Fenced, match="another recovery"), recovered(tmp_path / "slow", racing(cold, act, 1)):
        pass
    with recovered(tmp_path / "later", cold) as later:
        assert later.store.read("s") == b"abcdefgh"


@pytest.fixture
def directory_owner(tmp_path: Path) -> Iterator[TestStore]:
    with open_test_store(tmp_path / "owner", cold=DirectoryStorage.create(tmp_path / "cold")) as store:
        store.append("s", b"abcd")
        store.offload()
        yield store


RECOVERIES: dict[str, Callable[[Path, Place], object]] = {
    "journal": lambda path, place: recover_store(path, place, quiet),
    "objects": lambda path, place: recover_from_objects(path, place, quiet, lambda _: None),
}


@pytest.mark.parametrize("source", RECOVERIES)
def test_work_on_this_disk_that_fails_takes_nothing(
    directory_owner: TestStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    def full(_: object) -> None:
        raise StorageFull("the disk is full")

    monkeypatch.setattr(store_directory, "create_files", full)
    before = journal_of(directory_owner)
    with pytest.raises(StorageFull):
        RECOVERIES[source](tmp_path / "new", Place.in_directory(tmp_path / "cold"))
    assert not (tmp_path / "new").exists()
    assert journal_of(directory_owner) == before
    directory_owner.append("s", b"efgh")
    directory_owner.offload()


def journal_of(store: TestStore) -> dict[str, bytes]:
    return {name: data for name, data in objects(store.cold).items() if name.startswith(JOURNAL_PREFIX)}


def test_an_owner_that_writes_while_its_objects_are_read_is_told_of(directory_owner: TestStore, tmp_path: Path) -> None:
    place = Place.in_directory(tmp_path / "cold")

    def write_once(_: Progress) -> None:
        if directory_owner.segment("s").length == 4:
            directory_owner.append("s", b"efgh")
            directory_owner.offload()

    found = recover_from_objects(tmp_path / "new", place, write_once, lambda _: None)
    assert "another host used the bucket, and can now only read it" in found.warnings[0]
    with pytest.raises(Fenced):
        directory_owner.append("s", b"ijkl"), directory_owner.offload()
    again = recover_from_objects(tmp_path / "again", place, quiet, lambda _: None)
    assert not [warning for warning in again.warnings if "alive" in warning]
    assert [one.length for one in again.rebuilt] == [8]
