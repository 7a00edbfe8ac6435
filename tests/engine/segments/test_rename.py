"""Renames: one commit, after which all that was below the old name is below the new one, open or not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.app.recovery.recovering import recovered
from tests.engine.journal.replaying import check_every_step
from tests.engine.segments.test_streams import members
from tests.engine.segments.test_trash import listed
from tests.stores import TestStore
from tests.upkeep.check.looking import cold_findings, findings
from tierfs.base.words.errors import AlreadyExists, InvalidRequest, NotDirectory, NotFound
from tierfs.base.words.types import ROOT_DIRECTORY, ByteRange
from tierfs.engine.metadata import append_keys, directories, policies
from tierfs.engine.metadata.append_keys import AppendKey
from tierfs.engine.segments import ledgers, rename, trash
from tierfs.engine.segments.managed_ledger import ManagedLedgerWriter
from tierfs.engine.segments.rename import Renamed
from tierfs.engine.segments.writer import PlannedAppend, SegmentWriter, append_all


@pytest.fixture(autouse=True)
def clean(store: TestStore) -> Iterator[None]:
    """After each test the store has nothing to repair."""
    yield
    assert findings(store) == []


def moved(store: TestStore, source: str, target: str) -> Renamed:
    return rename.rename(store.metadata, source, target)


def put_policy(store: TestStore, name: str, **settings: str) -> None:
    with store.metadata.write() as txn:
        entry = directories.must_find(txn, name)
        policies.put(txn, entry.id or ROOT_DIRECTORY, settings)


def keyed(writer: SegmentWriter, text: str) -> ByteRange:
    (done,) = append_all([PlannedAppend(writer, text.encode(), key=AppendKey(text, 1, len(text), False))])
    assert isinstance(done, ByteRange)
    return done


def test_a_renamed_segment_keeps_bytes_of_both_tiers_and_its_policy(store: TestStore) -> None:
    store.append("d/s", b"cold")
    put_policy(store, "d/s", trash_age="77")
    store.offload()
    store.evict()
    store.append("d/s", b"local")
    before = store.segment("d/s")
    assert moved(store, "d/s", "new/deep/t") == Renamed("d/s", "new/deep/t", 1)
    assert store.read("new/deep/t") == b"coldlocal"
    assert (store.segment("new/deep/t").id, store.segment("new/deep/t").inode) == (before.id, before.inode)
    assert list(members(store)) == ["new/deep/t"]
    with store.metadata.read() as txn:
        assert policies.at(txn, "new/deep/t").values.trash_age_s == 77
        assert directories.exists(txn, "d")
    store.offload()
    assert cold_findings(store) == []


def test_a_rename_into_a_directory_keeps_the_name(store: TestStore) -> None:
    store.append("a/s", b"x")
    store.append("b/t", b"y")
    assert moved(store, "a/s", "b").target == "b/s"
    assert moved(store, "b", "a").target == "a/b"
    assert list(members(store)) == ["a/b/s", "a/b/t"]


@pytest.mark.parametrize(
    ("source", "target", "error", "match"),
    [
        ("d/s", "d/other", AlreadyExists, "d/other exists"),
        ("d/s", "taken", AlreadyExists, "taken/s exists"),
        ("d", "d/inner", InvalidRequest, "cannot be moved into itself, to d/inner"),
        ("d", "d/s/x", InvalidRequest, "into itself"),
        ("d", "d", InvalidRequest, "has this name already"),
        ("d/s", "d/s", InvalidRequest, "has this name already"),
        ("d/s", "d", InvalidRequest, "has this name already|d/s exists"),
        ("", "x", InvalidRequest, "whole store"),
        ("no", "x", NotFound, "no"),
        ("d/s", "d/other/x", NotDirectory, "d/other"),
        ("d", "n" * 300, InvalidRequest, "at most"),
        ("d", "x/" * 399 + "x", InvalidRequest, "at most"),
        ("d/s", ".tierfs-trash-1-1", InvalidRequest, "tierfs"),
        ("t/LEDGER", "x", InvalidRequest, "ledger of a managed ledger"),
    ],
)
def test_a_rename_that_is_refused_changes_nothing(
    store: TestStore, source: str, target: str, error: type[Exception], match: str
) -> None:
    for name in ("d/s", "d/other", "taken/s/below"):
        store.append(name, b"x")
    ledger = ManagedLedgerWriter(store.engine, "t")
    name = ledger.add([b"entry"]).segment
    ledger.close()
    with store.metadata.read() as txn:
        before = txn.store.next_outbox
    with pytest.raises(error, match=match):
        moved(store, name if source == "t/LEDGER" else source, target)
    with store.metadata.read() as txn:
        assert txn.store.next_outbox == before


def test_a_directory_whose_new_name_makes_one_below_too_long_stays(store: TestStore) -> None:
    store.append("d/" + "/".join(["n" * 150] * 5), b"x")
    with pytest.raises(InvalidRequest, match="at most"):
        moved(store, "d", "d" * 60)
    moved(store, "d", "e")
    assert list(members(store)) == ["e/" + "/".join(["n" * 150] * 5)]


def test_policies_that_contradict_each_other_at_the_new_name_are_refused(store: TestStore) -> None:
    store.append("d/s", b"x")
    store.append("e/t", b"x")
    put_policy(store, "d/s", retention_age="3600")
    put_policy(store, "e", offload_after="7200")
    with pytest.raises(InvalidRequest, match="retention_age"):
        moved(store, "d/s", "e")
    assert store.read("d/s") == b"x"


def test_an_open_writer_appends_to_the_renamed_segment(store: TestStore) -> None:
    put_policy(store, "", chunk_bytes="65536", object_bytes="65536")  # appends that grow a chunk take a short way
    writer = store.engine.open_writer("d/s")
    assert keyed(writer, "one") == ByteRange(0, 3)
    moved(store, "d/s", "e/t")
    assert keyed(writer, "two") == ByteRange(3, 6)
    assert keyed(writer, "six") == ByteRange(6, 9)
    moved(store, "e", "f")
    assert keyed(writer, "ten") == ByteRange(9, 12)
    store.engine.close_writer(writer)
    assert store.read("f/t") == b"onetwosixten"
    with store.metadata.read() as txn:
        made = {text: append_keys.find(txn, "f/t", text) for text in ("one", "two", "six", "ten")}
    # A key is one of a name. Appends after the rename are found by the new one, so a repeated one is not made twice.
    assert {text: None if row is None else row.start for text, row in made.items()} == {
        "one": None,
        "two": 3,
        "six": 6,
        "ten": 9,
    }


def test_a_stream_is_renamed_whole_and_goes_on(store: TestStore) -> None:
    put_policy(store, "", seal_bytes="4", chunk_bytes="4", object_bytes="4")
    writer = store.engine.open_writer("d/s")
    for part in (b"aaaa", b"bbbb", b"c"):
        writer.append(part)
    assert moved(store, "d/s", "e/web").segments == 3
    assert members(store) == {
        "e/web": (0, 4, "SEALED_BY_POLICY"),
        "e/web.4": (4, 8, "SEALED_BY_POLICY"),
        "e/web.8": (8, 9, "OPEN"),
    }
    writer.append(b"ccc")
    writer.append(b"dddd")
    store.engine.close_writer(writer)
    store.append("e/web", b"e")
    assert list(members(store)) == ["e/web", "e/web.12", "e/web.16", "e/web.4", "e/web.8"]
    assert {store.segment(name).stream for name in members(store)} == {"web"}


def test_a_part_of_a_stream_is_not_renamed_alone(store: TestStore) -> None:
    put_policy(store, "", seal_bytes="4")
    store.append("s", b"aaaa", b"bbbb", b"c")
    with pytest.raises(InvalidRequest, match=r"s\.4 is a part of the stream s") as refused:
        moved(store, "s.4", "x")
    assert refused.value.remedy == "move the first segment: s"
    store.append("t.4", b"")
    store.append("x.8", b"taken")
    with pytest.raises(AlreadyExists):
        moved(store, "s", "x")
    assert list(members(store)) == ["s", "s.4", "s.8", "t.4", "x.8"]


def test_an_open_managed_ledger_goes_on_in_its_renamed_directory(store: TestStore) -> None:
    managed = ManagedLedgerWriter(store.engine, "topics/t")
    managed.add([b"one"])
    moved(store, "topics", "renamed")
    managed.add([b"two"])
    managed.roll()
    managed.add([b"three"])
    managed.close()
    with store.metadata.read() as txn:
        assert not directories.exists(txn, "topics")
        assert len([*ledgers.below(txn, "renamed/t")]) == 2


def test_what_is_in_the_trash_keeps_its_name(store: TestStore) -> None:
    store.append("d/s", b"old")
    store.append("d/kept", b"x")
    store.engine.delete("d/s", recursive=False, cold_due_ms=0, to_trash=True)
    moved(store, "d", "e")
    with store.metadata.read() as txn:
        assert [removed.removal.path for removed in trash.removed(txn)] == ["d/s"]
    trash.restore(store.metadata, "d/s")
    assert list(members(store)) == ["d/s", "e/kept"]


@pytest.mark.parametrize("checkpoint", [False, True])
def test_every_step_of_a_journal_with_renames_is_a_sound_store(
    store: TestStore, tmp_path: Path, checkpoint: bool
) -> None:
    put_policy(store, "", seal_bytes="4", chunk_bytes="4", object_bytes="4")
    for name in ("a", "d/b", "d/e/c"):
        store.append(name, name.encode()[:3])
    store.append("s", b"aaaa", b"bbbb", b"c")
    store.offload()
    for source, target in (("a", "d/b.old"), ("d", "x/y"), ("x/y/e", "z"), ("s", "x"), ("x", "w")):
        moved(store, source, target)
    store.offload()
    store.settle()
    if checkpoint:
        with store.holding() as work:
            work.checkpointer.checkpoint()
    else:
        check_every_step(store, tmp_path / "copy")
    with recovered(tmp_path / "recovered", store.cold) as found:
        contents = {name: found.store.read(name) for name in listed(found.store)}
        assert contents == {name: store.read(name) for name in listed(store)}
        assert sorted(contents) == ["w/s", "w/s.4", "w/s.8", "w/y/b", "w/y/b.old", "z/c"]
        assert [found.store.segment(name).stream for name in ("w/s", "w/s.8")] == ["s", "s"]
        assert findings(found.store) == []
