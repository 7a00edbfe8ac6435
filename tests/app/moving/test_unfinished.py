"""A place that a move has not filled yet says so, from the first object on until the move has ended there."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.app.moving.test_left import pending, scripted
from tests.app.moving.test_move import NAMES, filled, require_clean
from tests.app.moving.test_switch import switch
from tests.commands import Done, new_store, tierfs
from tests.doubles.scripted_storage import ScriptedStorage
from tests.stores import KeptOpen, TestStore
from tierfs.base.words.errors import PermissionDenied, Unavailable, WrongColdTier
from tierfs.engine.chunkstore.protocol import BufferSource
from tierfs.engine.journal import left
from tierfs.engine.journal.left import Left
from tierfs.engine.journal.names import MOVING_NAME

__all__ = ["scripted"]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return filled(new_store(tmp_path))


@pytest.fixture
def nas(store: Path, tmp_path: Path) -> Path:
    """A place that lacks objects, after a move that ended with an error; its journal is whole."""
    directory = tmp_path / "nas"
    directory.mkdir()
    (directory / "packs").write_bytes(b"in the way")
    done = tierfs("move", "--to", directory, store=store, check=False)
    assert done.code, done
    (directory / "packs").unlink()
    assert list((directory / "journal").glob("0*"))
    return directory


def require_refused(done: Done, origin: Path, *said: str) -> None:
    assert (done.code, "has not finished" in done.err) == (12, True), done
    for text in (str(origin), *said):
        assert text in done.err, done


def test_nothing_takes_a_place_that_a_move_has_not_filled(store: Path, nas: Path, tmp_path: Path) -> None:
    origin, again = tmp_path / "cold", tmp_path / "again"
    for words in (("recover",), ("recover", "--from-objects", "--yes"), ("replica",)):
        done = tierfs(*words, "--cold-dir", nas, store=again, check=False)
        require_refused(done, origin, f"tierfs {words[0]} --cold-dir")
        assert not again.exists()
    require_refused(tierfs("config", f"cold.url={nas}", store=store, check=False), origin, "tierfs move --to")
    tierfs("-q", "move", "--to", nas, store=store)
    assert not (nas / MOVING_NAME).exists()
    require_clean(store)
    tierfs("-q", "replica", "--cold-dir", nas, store=tmp_path / "replica")
    tierfs("-q", "recover", "--cold-dir", nas, store=again)
    require_clean(again)


@pytest.mark.parametrize("words", [("recover",), ("recover", "--from-objects", "--yes")])
def test_what_is_there_is_recovered_if_the_other_place_is_lost(
    store: Path, nas: Path, tmp_path: Path, words: tuple[str, ...]
) -> None:
    if "--from-objects" in words:
        shutil.copytree(tmp_path / "cold/packs", nas / "packs")
    shutil.rmtree(tmp_path / "cold")
    tierfs("-q", *words, "--left-place", "--cold-dir", nas, store=tmp_path / "again", check=False)
    assert not (nas / MOVING_NAME).exists()
    if "--from-objects" not in words:
        assert sorted(tierfs("ls", "-R", store=tmp_path / "again").out.split())
    tierfs("-q", "append", "new", store=tmp_path / "again", stdin=b"new")
    tierfs("-q", "offload", store=tmp_path / "again")
    tierfs("-q", "replica", "--cold-dir", nas, store=tmp_path / "replica")


def test_the_note_names_the_place_that_is_moved_and_no_secret(nas: Path, tmp_path: Path) -> None:
    fields = json.loads((nas / MOVING_NAME).read_text())
    assert fields["url"] == f"file:{tmp_path / 'cold'}"
    assert set(fields) == {"tierfs", "store", "url", "endpoint_url", "host", "moved"}


def test_a_place_inside_the_present_one_gets_no_note(store: Path, tmp_path: Path) -> None:
    inside = tmp_path / "cold/inside"
    inside.mkdir()
    assert tierfs("move", "--to", inside, store=store, check=False).code
    assert not [path for path in inside.rglob("*") if path.is_file()]


def test_a_note_of_a_move_that_was_given_up_is_not_moved_on(store: Path, nas: Path, tmp_path: Path) -> None:
    (tmp_path / "third").mkdir()
    told = (nas / MOVING_NAME).read_text().replace(str(tmp_path / "cold"), str(tmp_path / "an earlier place"))
    (tmp_path / "cold" / MOVING_NAME).write_text(told)
    tierfs("-q", "move", "--to", tmp_path / "third", store=store)
    assert not (tmp_path / "third" / MOVING_NAME).exists()
    assert "journal/moving" not in tierfs("check", "--read", store=store).out
    assert tierfs("cat", NAMES[0], store=store).out


# The end of a switch, on storages that follow a script


def begun(target: ScriptedStorage) -> None:
    left.begin_moving(target, Left(0, "5" * 32, "memory:", "", "host", 1))


def is_unfinished(target: ScriptedStorage) -> bool:
    return left.moving(target.inner) is not None


def test_the_note_stays_until_the_journal_there_names_the_place(scripted: TestStore, target: ScriptedStorage) -> None:
    begun(target)
    target.fail("put", Unavailable("away"), of="journal/0")
    with pytest.raises(Unavailable):
        switch(scripted)
    assert is_unfinished(target)
    switch(scripted)
    assert not is_unfinished(target)


def test_a_note_that_could_not_be_removed_is_removed_by_the_next_holder(
    scripted: TestStore, cold: ScriptedStorage, target: ScriptedStorage
) -> None:
    begun(target)
    target.fail("delete", Unavailable("away"), on=range(1, 3), of=MOVING_NAME)
    switch(scripted)
    assert (is_unfinished(target), pending(scripted)) == (True, True)
    scripted.cold, scripted.elsewhere = KeptOpen(target), cold
    scripted.settle()
    assert (is_unfinished(target), pending(scripted)) == (True, True), "the place did not answer again"
    scripted.settle()
    assert (is_unfinished(target), pending(scripted)) == (False, False)


def test_a_note_where_nothing_may_be_deleted_says_nothing_in_the_end(
    scripted: TestStore, target: ScriptedStorage
) -> None:
    begun(target)
    target.fail("delete", PermissionDenied("no"), on=range(1, 100))
    switch(scripted)
    assert not is_unfinished(target)
    left.require_moved(target, "")
    assert target.inner.stat(MOVING_NAME)


@pytest.mark.parametrize("data", [b"", b"{", b"\xff" * 9000, b"[]", b'{"url": 5}'])
def test_a_damaged_note_counts(target: ScriptedStorage, data: bytes) -> None:
    target.put(MOVING_NAME, BufferSource(data))
    with pytest.raises(WrongColdTier, match="another place, which is not readable in its damaged note"):
        left.require_moved(target, "{option}")


def test_a_place_without_a_note_is_whole(target: ScriptedStorage) -> None:
    left.require_moved(target, "{option}")
    left.end_moving(target)
    begun(target)
    begun(target)
    flipped = is_unfinished(target)
    left.end_moving(target)
    left.end_moving(target)
    assert (flipped, is_unfinished(target)) == (True, False)
