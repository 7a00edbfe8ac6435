"""A place that the cold tier was moved from says so to whoever meets it, and to nobody once it is used again."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from tests.app.moving.test_move import NAMES, filled, require_clean, text_of
from tests.app.moving.test_switch import place_of, switch
from tests.commands import Done, new_store, tierfs
from tests.doubles.scripted_storage import ALWAYS, Held, ScriptedStorage
from tests.faults.two_owners import opened_copy
from tests.stores import KeptOpen, TestStore, open_test_store
from tierfs.base.words.errors import Conflict, Fenced, TierfsError, Unavailable, WrongColdTier
from tierfs.engine.journal import left, publish
from tierfs.engine.journal.left import Left
from tierfs.engine.journal.names import MOVING_NAME, left_name, left_slot
from tierfs.engine.journal.publish import Publisher
from tierfs.engine.journal.reader import list_journal
from tierfs.engine.metadata.journal_state import NOWHERE
from tierfs.engine.metadata.store import MetadataStore
from tierfs.tiering.relocate import record_place


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return filled(new_store(tmp_path))


@pytest.fixture
def before(store: Path, tmp_path: Path) -> Path:
    """A copy of the store's directory from before the move, with a replica beside it; then it moves."""
    shutil.copytree(store, tmp_path / "copy")
    tierfs("-q", "replica", "--cold-dir", tmp_path / "cold", store=tmp_path / "replica")
    move(store, tmp_path / "nas")
    return tmp_path / "copy"


def move(store: Path, to: Path) -> None:
    to.mkdir(exist_ok=True)
    tierfs("-q", "move", "--to", to, store=store)


def notes(place: Path) -> list[str]:
    return sorted(path.name for path in (place / "journal").glob("moved-*"))


def require_refused(done: Done, to: Path, code: int, *said: str) -> None:
    assert done.code == code, done
    assert "was moved to" in done.err, done
    for text in (str(to), *said):
        assert text in done.err, done


def test_the_note_names_the_new_place_and_no_secret(before: Path, tmp_path: Path) -> None:
    (name,) = notes(tmp_path / "cold")
    fields = json.loads((tmp_path / "cold" / "journal" / name).read_text())
    assert fields["url"] == f"file:{tmp_path / 'nas'}"
    assert set(fields) == {"tierfs", "store", "url", "endpoint_url", "host", "moved"}
    assert notes(tmp_path / "nas") == []


def test_recover_from_a_place_that_was_left_is_refused_with_the_new_one(before: Path, tmp_path: Path) -> None:
    cold, nas = tmp_path / "cold", tmp_path / "nas"
    for words in (("recover",), ("recover", "--from-objects", "--yes")):
        done = tierfs(*words, "--cold-dir", cold, store=tmp_path / "again", check=False)
        require_refused(done, nas, 12, "tierfs recover --cold-dir", "--left-place")
    shutil.rmtree(nas)
    tierfs("-q", "recover", "--left-place", "--cold-dir", cold, store=tmp_path / "again")
    require_clean(tmp_path / "again")
    tierfs("-q", "append", "more", store=tmp_path / "again", stdin=b"more")
    tierfs("-q", "offload", store=tmp_path / "again")
    tierfs("-q", "replica", "--cold-dir", cold, store=tmp_path / "follows")  # the note is void: the store went on here


def test_a_replica_of_a_place_that_was_left_says_so_and_follows_the_new_one(
    store: Path, before: Path, tmp_path: Path
) -> None:
    replica, nas = tmp_path / "replica", tmp_path / "nas"
    done = tierfs("replica", "--refresh", store=replica, check=False)
    require_refused(done, nas, 12, "tierfs config cold.url=")
    assert tierfs("cat", NAMES[0], store=replica).out.encode() == text_of(NAMES[0])
    done = tierfs("replica", "--cold-dir", tmp_path / "cold", store=tmp_path / "second", check=False)
    require_refused(done, nas, 12, "tierfs replica --cold-dir")
    tierfs("-q", "append", "later", store=store, stdin=b"later")
    tierfs("-q", "offload", store=store)
    tierfs("-q", "config", f"cold.url={nas}", store=replica)
    tierfs("-q", "replica", "--refresh", store=replica)
    assert tierfs("cat", "later", store=replica).out == "later"


def test_a_copy_of_the_store_from_before_is_read_only(store: Path, before: Path, tmp_path: Path) -> None:
    nas = tmp_path / "nas"
    assert "was moved to" in tierfs("doctor", store=before, check=False).out
    require_refused(tierfs("offload", store=before, check=False), nas, 6)
    require_refused(tierfs("append", "b", store=before, stdin=b"lost", check=False), nas, 6)
    assert str(nas) in tierfs("status", store=before).out
    assert tierfs("cat", NAMES[0], store=before).out.encode() == text_of(NAMES[0])
    require_clean(store)


def test_a_place_that_is_used_again_is_not_called_left(store: Path, before: Path, tmp_path: Path) -> None:
    cold, nas = tmp_path / "cold", tmp_path / "nas"
    tierfs("-q", "append", "later", store=store, stdin=b"later")
    tierfs("-q", "offload", store=store)
    shutil.copytree(store, tmp_path / "copy2")
    move(store, cold)
    require_clean(store)
    assert tierfs("doctor", "--json", store=store, check=False).out.count("was moved to") == 0
    tierfs("-q", "replica", "--refresh", store=tmp_path / "replica")
    assert tierfs("cat", "later", store=tmp_path / "replica").out == "later"
    require_refused(tierfs("offload", store=tmp_path / "copy2", check=False), cold, 6)
    tierfs("-q", "recover", "--cold-dir", cold, store=tmp_path / "again")
    require_clean(tmp_path / "again")
    done = tierfs("recover", "--cold-dir", nas, store=tmp_path / "third", check=False)
    require_refused(done, cold, 12)


def test_moved_back_and_forth_each_place_names_the_other_once_it_is_left(store: Path, tmp_path: Path) -> None:
    places = [tmp_path / "cold", tmp_path / "nas"]
    for number in range(1, 5):
        to, origin = places[number % 2], places[(number + 1) % 2]
        move(store, to)
        require_clean(store)
        done = tierfs("recover", "--cold-dir", origin, store=tmp_path / "again", check=False)
        require_refused(done, to, 12)
    assert [len(notes(place)) for place in places] == [2, 2]
    assert tierfs("gc", store=store).out.count("moved-") == 0


def test_an_address_that_was_left_is_not_taken_again_and_says_why(store: Path, before: Path, tmp_path: Path) -> None:
    done = tierfs("config", f"cold.url={tmp_path / 'cold'}", store=store, check=False)
    assert done.code == 12, done
    assert "its store was moved to" in done.err, done


def config(store: Path, to: Path) -> None:
    tierfs("-q", "config", f"cold.url={to}", store=store)
    tierfs("-q", "offload", store=store)  # whatever holds the store next tells of it


def test_a_place_that_was_copied_by_other_means_is_left_too(store: Path, tmp_path: Path) -> None:
    cold, nas = tmp_path / "cold", tmp_path / "nas"
    shutil.copytree(cold, nas)
    config(store, nas)
    assert (len(notes(cold)), len(notes(nas))) == (1, 0)
    require_refused(tierfs("recover", "--cold-dir", cold, store=tmp_path / "again", check=False), nas, 12)
    require_clean(store)


@pytest.mark.parametrize("how", ["renamed", "link", "link that is taken away", "empty"])
def test_a_place_under_another_name_is_not_left(store: Path, tmp_path: Path, how: str) -> None:
    cold, other = tmp_path / "cold", tmp_path / "other"
    if how == "renamed":
        cold.rename(other)
    elif how == "empty":  # the mount point of a disk that is mounted elsewhere now
        cold.rename(other)
        cold.mkdir()
    else:
        other.symlink_to(cold)
    config(store, other)
    assert notes(other) == []
    assert how != "empty" or list(cold.rglob("*")) == []
    if how == "link that is taken away":
        config(store, cold)
    require_clean(store)


def test_a_mount_point_without_its_disk_gets_no_note(store: Path, tmp_path: Path) -> None:
    cold, nas = tmp_path / "cold", tmp_path / "nas"
    shutil.copytree(cold, nas)
    tierfs("-q", "config", f"cold.url={nas}", store=store)
    cold.rename(tmp_path / "away")
    cold.mkdir()
    done = tierfs("offload", store=store, check=False)
    assert (done.code, "has no note of the new place" in done.err) == (0, True), done
    assert list(cold.rglob("*")) == []
    require_clean(store)


# The steps of a switch, on storages that follow a script


@pytest.fixture
def scripted(tmp_path: Path, cold: ScriptedStorage, target: ScriptedStorage) -> Iterator[TestStore]:
    with open_test_store(tmp_path / "scripted", cold=cold) as opened:
        opened.elsewhere = target
        opened.append("s", b"some bytes", seal=True)
        opened.offload()
        yield opened


def pending(store: TestStore) -> bool:
    with store.metadata.read() as txn:
        return txn.store.journal.left != NOWHERE


def noted(storage: ScriptedStorage) -> list[str]:
    return [stored.name for stored in storage.inner.list("journal/moved-")]


@pytest.mark.parametrize("refuses", ["journal at the new place", "note"])
def test_a_note_that_could_not_be_put_is_put_by_the_next_holder(
    scripted: TestStore, cold: ScriptedStorage, target: ScriptedStorage, refuses: str
) -> None:
    away = Unavailable("away")

    def refuse() -> None:
        if refuses == "note":
            cold.fail("put", away, of="journal/moved-")
        else:
            target.fail("put", away, of="journal/")

    target.do("list", refuse, of="journal/")
    switch(scripted)
    assert place_of(scripted).url == "memory:elsewhere"
    assert (noted(cold), pending(scripted)) == ([], True)
    scripted.cold, scripted.elsewhere = KeptOpen(target), cold
    scripted.settle()
    assert (len(noted(cold)), pending(scripted)) == (1, False)


def test_no_note_is_put_before_the_journal_at_the_new_place_names_it(
    scripted: TestStore, cold: ScriptedStorage, target: ScriptedStorage
) -> None:
    target.do("list", lambda: target.fail("put", Unavailable("away"), on=ALWAYS, of="journal/"), of="journal/")
    switch(scripted)
    scripted.cold, scripted.elsewhere = KeptOpen(target), cold
    with pytest.raises(Unavailable):
        scripted.settle()
    assert (noted(cold), pending(scripted)) == ([], True)


def test_a_place_that_is_left_beside_a_holder_that_tells_of_another_waits_for_its_note(
    scripted: TestStore, cold: ScriptedStorage, target: ScriptedStorage
) -> None:
    def leave() -> None:  # as `config cold.url=` does
        place = place_of(scripted)
        with scripted.metadata.write() as txn:
            record_place(txn, replace(place, url="memory:third"))
            journal = txn.store.journal
            waiting = left.place_left(place, journal.newest_slot, txn.now_ms)
            txn.update_store(journal=replace(journal, left=waiting))

    cold.fail("put", Unavailable("away"), of="journal/moved-")
    switch(scripted)
    scripted.cold, scripted.elsewhere = KeptOpen(target), cold
    target.do("delete", leave, of=MOVING_NAME)
    with scripted.holding():
        pass
    (name,) = noted(cold)
    slot = left_slot(name)
    assert slot is not None
    assert left.read(cold, slot).url == "memory:elsewhere"
    with scripted.metadata.read() as txn:
        assert txn.store.journal.left.url == "memory:elsewhere"


def test_a_place_that_is_gone_is_asked_once(
    scripted: TestStore, cold: ScriptedStorage, target: ScriptedStorage, expected_warnings: list[str]
) -> None:
    expected_warnings.append("has no note of the new place")
    cold.fail("put", Unavailable("away"), on=range(1, 1000), of="journal/moved-")
    switch(scripted)
    scripted.cold, scripted.elsewhere = KeptOpen(target), cold
    scripted.settle()
    assert (noted(cold), pending(scripted)) == ([], False)


def test_no_process_puts_a_slot_behind_the_note(scripted: TestStore, cold: ScriptedStorage) -> None:
    late = Publisher(scripted.metadata, cold)
    late.require_ownership()  # which holds for a moment
    switch(scripted)
    slots = {stored.name for stored in cold.inner.list("journal/")}
    scripted.append("later", b"later", seal=True)
    with pytest.raises(Conflict, match="the address of the cold tier has changed"):
        late.publish()
    with pytest.raises(Conflict, match="the address of the cold tier has changed"):
        late.require_ownership()
    assert {stored.name for stored in cold.inner.list("journal/")} == slots
    with scripted.metadata.read() as txn:
        assert not txn.store.journal.fenced_by_epoch


def test_an_entry_that_is_announced_does_not_make_the_note_void(
    scripted: TestStore, cold: ScriptedStorage, target: ScriptedStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process that announced it sends it when the note is there."""
    monkeypatch.setattr(publish, "TURN_S", 0.0)
    late = threading.Thread(target=suppressed(Publisher(scripted.metadata, cold).publish))
    held: list[Held] = []

    def announce() -> None:
        scripted.append("announced", b"abc")
        held.append(cold.hold("put", of="journal/"))
        late.start()
        held[0].wait_begun()

    target.do("list", announce, of="journal/")
    switch(scripted)
    held[0].go_on()
    late.join(60)
    assert len(noted(cold)) == 1
    assert list_journal(cold).is_left


def suppressed(work: Callable[[], object]) -> Callable[[], None]:
    def run() -> None:
        with suppress(TierfsError):
            work()

    return run


def test_a_late_process_of_the_store_itself_does_not_fence_it(scripted: TestStore, cold: ScriptedStorage) -> None:
    """It listed the place after the note, and its look at the records is from before."""
    from tierfs.engine.journal.publish import fenced_by, look_for_other

    with scripted.metadata.read() as txn:
        record = txn.store
    switch(scripted)
    other = look_for_other(cold, record)
    assert other is not None
    with pytest.raises(Conflict, match="the address of the cold tier has changed"):
        fenced_by(scripted.metadata, cold, other)
    with scripted.metadata.read() as txn:
        assert not txn.store.journal.fenced_by_epoch


def test_a_copy_of_the_records_meets_the_note(scripted: TestStore, cold: ScriptedStorage, tmp_path: Path) -> None:
    with opened_copy(scripted, tmp_path / "copy") as copy:
        switch(scripted)
        copy.append("s2", b"abc", seal=True)
        with pytest.raises(Fenced, match="was moved to memory:elsewhere"):
            copy.offload()


def test_records_of_before_that_were_put_back_meet_the_note(
    scripted: TestStore, cold: ScriptedStorage, tmp_path: Path
) -> None:
    from tests.faults.two_owners import copy_metadata

    copy_metadata(scripted.path / "metadata", tmp_path / "older")
    scripted.append("s2", b"abc", seal=True)
    scripted.offload()
    switch(scripted)
    metadata = MetadataStore(tmp_path / "older", scripted.clock)
    try:
        with pytest.raises(Fenced, match="was moved to"):
            Publisher(metadata, cold).require_ownership()
    finally:
        metadata.close()


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"[]", b"\xff", b"x" * 100_000, b'{"store": 1}', b'{"moved": "9999999999"}', b"[" * 5000]
)
def test_a_damaged_note_counts_as_a_note(data: bytes) -> None:
    from tierfs.engine.chunkstore.memory import MemoryStorage
    from tierfs.engine.chunkstore.protocol import BufferSource

    storage = MemoryStorage()
    storage.put(left_name(3), BufferSource(data))
    assert left.read(storage, 3) == Left(3)
    error = left.error(storage, 3, "do: tierfs recover {option}")
    assert isinstance(error, WrongColdTier)
    assert "damaged note" in str(error)
    assert "--bucket ..." in str(error.remedy)


def test_a_note_is_put_once() -> None:
    from tierfs.base.words.errors import AlreadyExists
    from tierfs.engine.chunkstore.memory import MemoryStorage

    storage = MemoryStorage()
    note = Left(3, "a" * 32, "s3://b/p", "https://s3.example", "host", 1_700_000_000_000)
    left.put(storage, note)
    left.put(storage, note)
    assert left.read(storage, 3) == note
    assert note.option == "--bucket s3://b/p --endpoint-url https://s3.example"
    assert note.setting == "cold.url=s3://b/p cold.endpoint_url=https://s3.example"
    with pytest.raises(AlreadyExists):
        left.put(storage, Left(3, "b" * 32, "s3://b/p"))
