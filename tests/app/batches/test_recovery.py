"""Distributed writes and the loss of the disk: a batch comes back as a whole or not at all, and once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.app.batches.batch_writes import Driver, committed, contents, marked, upload, uploads
from tests.app.recovery.recovering import lose_journal, recovered
from tests.app.recovery.test_from_objects import rebuilt
from tests.app.recovery.test_recover import checkpoint, copy_of, damage
from tests.doubles.scripted_storage import ALWAYS, ScriptedStorage
from tests.stores import TestStore, open_test_store
from tests.upkeep.holder.holding import set_policy
from tierfs.app.batches import commit as batch_commit
from tierfs.base.words.errors import Unavailable
from tierfs.engine.chunkstore.memory import MemoryStorage
from tierfs.engine.chunkstore.protocol import BufferSource
from tierfs.engine.journal import batch_markers, publish
from tierfs.engine.journal.batch_markers import parse_name
from tierfs.engine.journal.names import JOURNAL_PREFIX
from tierfs.engine.journal.objects import read_parsed
from tierfs.engine.metadata import frames
from tierfs.engine.metadata.batch_records import BatchState

BATCH = {f"out/{number}": b"%d" % number * 10 for number in range(5)}


def prefixes(cold: MemoryStorage) -> Iterator[MemoryStorage]:
    """The bucket as it was after each entry of its journal, all uploads being there."""
    slots = [one.name for one in cold.list(JOURNAL_PREFIX)]
    for count in range(1, len(slots) + 1):
        copy = copy_of(cold)
        for name in slots[count:]:
            copy.delete(name)
        yield copy


@pytest.mark.parametrize(("changes", "compression"), [(1, "off"), (4, "off"), (1, "zstd")])
def test_a_journal_that_ends_inside_a_batch_holds_nothing_of_it(
    store: TestStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: int, compression: str
) -> None:
    set_policy(store, compression=compression)
    monkeypatch.setattr(publish, "_ENTRY_CHANGES", changes)
    driver = Driver(store)
    driver.write({"before": b"0123456789"})
    driver.write(BATCH, version=2)
    store.settle()
    seen = []
    for number, cold in enumerate(prefixes(store.cold)):  # type: ignore[arg-type]
        with recovered(tmp_path / f"new{number}", cold) as found:
            seen.append(frozenset(contents(found.store)))
            assert {state for _, _, state in committed(found.store)} <= {BatchState.COMMITTED}
            again = Driver(found.store)
            again.write({"before": b"0123456789"})
            again.write(BATCH, version=2)
            assert contents(found.store) == {"before": b"0123456789", **BATCH}
    assert len(seen) > 3
    assert set(seen) <= {frozenset(), frozenset({"before"}), frozenset({"before", *BATCH})}
    assert len(set(seen)) == 3


def test_objects_of_a_batch_that_was_taken_away_are_collected(
    store: TestStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publish, "_ENTRY_CHANGES", 4)
    Driver(store).write(BATCH)
    store.settle()
    slots = [one.name for one in store.cold.list(JOURNAL_PREFIX)]
    store.cold.delete(slots[-1])
    with recovered(tmp_path / "new", store.cold) as found:
        found.store.clock.advance(24 * 3600)
        found.store.cold_work().collect_all(grace_s=0)
        found.store.clock.advance(24 * 3600)
        found.store.cold_work().collect_all(grace_s=0)
        assert uploads(found.store) == set()


def without_journal(store: TestStore) -> MemoryStorage:
    cold = copy_of(store.cold)
    lose_journal(cold)
    return cold


@pytest.mark.parametrize("compression", ["off", "zstd"])
@pytest.mark.parametrize("consolidated", [False, True])
def test_manifests_tell_batches_when_the_journal_is_lost_too(
    store: TestStore, tmp_path: Path, consolidated: bool, compression: str
) -> None:
    set_policy(store, compression=compression)
    driver = Driver(store)
    driver.write({"out/a": b"0123456789" * 4, "out/b": b"xyz"})
    driver.write({"out/c": b"later"}, version=2)
    ids = {name: store.segment(name).id for name in contents(store)}
    if consolidated:
        set_policy(store, object_bytes="1000", compression=compression)
        store.consolidate()
        store.settle()
        store.clock.advance(24 * 3600)
        store.settle()
        assert len(uploads(store)) == 2 + 2, "one object is below segments/ by now; two, and the manifests, are not"
    store.settle()
    late = upload(store, driver.begin(), 0, "out/d", b"never committed")
    with rebuilt(tmp_path / "new", without_journal(store)) as found:
        assert contents(found.store) == {"out/a": b"0123456789" * 4, "out/b": b"xyz", "out/c": b"later"}
        assert {name: found.store.segment(name).id for name in ids} == ids
        assert found.left == {one.name: "no known commit refers to it" for one in late.objects}
        assert Driver(found.store).write({"out/e": b"again"}, version=2).repeated
        assert not Driver(found.store).write({"out/e": b"new"}, version=3).repeated


@pytest.mark.parametrize("lie", ["length", "bytes", "table"])
def test_a_compressed_upload_that_contradicts_its_manifest_or_itself_is_left_out(
    store: TestStore, tmp_path: Path, lie: str
) -> None:
    set_policy(store, compression="zstd", object_bytes="1000")
    Driver(store).write({"out/good": b"0123456789" * 4})
    good, before = uploads(store), {one.name for one in store.cold.list("uploads/")}
    Driver(store).write({"out/bad": b"abcdefghij" * 4}, version=2)
    store.settle()
    (bad,) = (name for name in uploads(store) - good if name.endswith(".zst"))
    cold = without_journal(store)
    (name,) = (one.name for one in cold.list("uploads/") if one.name.endswith(bad))
    if lie == "length":
        (told,) = (one.name for one in cold.list("uploads/") if "manifest" in one.name and one.name not in before)
        manifest = read_parsed(cold, told, frames.parse_batch_manifest)
        manifest.segments[0].objects[0].length += 1
        cold.delete(told)
        cold.put(told, BufferSource(frames.frame(manifest)))
    else:
        damage(cold, name, 12 if lie == "bytes" else -1)
    with rebuilt(tmp_path / "new", cold) as found:
        assert contents(found.store)["out/good"] == b"0123456789" * 4
        assert "out/bad" not in contents(found.store)
        assert list(found.left) == [name]


def uncommitted(store: TestStore, segments: dict[str, bytes], version: int) -> set[str]:
    """A job that dies between its manifest and its commit, an hour before everything else; return its objects."""
    driver = Driver(store)
    plan = driver.begin()
    uploaded = driver.upload(plan, segments)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch_commit, "commit", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            driver.commit(plan, uploaded, version)
    store.clock.advance(3600)
    return {made.name for segment in uploaded for made in segment.objects}


@pytest.mark.parametrize("consolidated", [False, True])
def test_a_job_that_was_never_committed_is_listed_and_not_linked(
    store: TestStore, tmp_path: Path, *, consolidated: bool
) -> None:
    """Neither in place of the committed one nor beside it."""
    lost = uncommitted(store, {"out/lost": b"0123456789" * 2}, 1)
    Driver(store).write({"out/a": b"abcdefghij" * 4}, 1)
    others = uncommitted(store, {"out/never": b"x" * 20}, 2)
    if consolidated:
        set_policy(store, object_bytes="1000")
        store.consolidate()
        store.clock.advance(3600)
    store.settle()
    store.settle()
    with rebuilt(tmp_path / "new", without_journal(store)) as found:
        assert contents(found.store) == {"out/a": b"abcdefghij" * 4}
        assert found.left.keys() == lost | others
        assert all("has no commit marker" in why for why in found.left.values())
        assert Driver(found.store).write({"out/again": b"1"}, 1).repeated
        assert not Driver(found.store).write({"out/b": b"2"}, 2).repeated


def test_of_two_marked_jobs_of_one_version_that_of_the_newer_owner_counts(store: TestStore, tmp_path: Path) -> None:
    """An owner that was superseded by a recovery without a journal may mark a commit of its own late."""
    Driver(store).write({"out/a": b"0123456789"}, 1)
    store.settle()
    cold = without_journal(store)
    for one in list(cold.list("uploads/")):
        cold.delete(one.name)
    store.append("kept", b"1")
    store.offload()
    for one in list(store.cold.list("segments/")):
        cold.put(one.name, BufferSource(b"1"), metadata=dict(store.cold.stat(one.name).metadata))
    with rebuilt(tmp_path / "second", cold) as second:
        second.store.clock.advance(1)  # of one owner's jobs the older one would count
        Driver(second.store).write({"out/b": b"abcdefghij"}, 1)
        second.store.settle()
        both = without_journal(second.store)
    for one in list(store.cold.list("uploads/")):
        buffer = bytearray(one.length_bytes)
        store.cold.read_into(one.name, 0, memoryview(buffer))
        both.put(one.name, BufferSource(bytes(buffer)))
    with rebuilt(tmp_path / "third", both) as third:
        assert set(contents(third.store)) == {"kept", "out/b"}
        assert list(third.left.values()).count("version 1 was also committed by another job") == 2


def test_versions_are_known_when_their_data_and_manifests_are_gone(store: TestStore, tmp_path: Path) -> None:
    for version in (3, 4, 9):
        Driver(store).write({f"out/{version}": b"0123456789"}, version)
    store.settle()
    store.engine.delete("out", recursive=True, cold_due_ms=0)
    store.append("kept", b"1")
    store.offload()
    store.settle()
    assert (uploads(store), marked(store)) == (set(), [9])
    with rebuilt(tmp_path / "new", without_journal(store)) as found:
        assert contents(found.store) == {"kept": b"1"}
        for version in (3, 4, 9):
            assert Driver(found.store).write({"out/a": b"1"}, version).repeated
        assert not Driver(found.store).write({"out/b": b"1"}, 5).repeated


@pytest.mark.parametrize("kind", ["committed-", "manifest-"])
def test_a_damaged_marker_still_marks_its_job_and_a_damaged_manifest_leaves_it_aside(
    store: TestStore, tmp_path: Path, kind: str
) -> None:
    Driver(store).write({"out/a": b"0123456789"})
    store.settle()
    cold = without_journal(store)
    (harmed,) = (one.name for one in cold.list("uploads/") if kind in one.name)
    damage(cold, harmed)
    with rebuilt(tmp_path / "new", cold) as found:
        assert contents(found.store) == ({"out/a": b"0123456789"} if kind == "committed-" else {})
        assert "its checksum differs" in found.left.pop(harmed)
        assert set(found.left.values()) == (set() if kind == "committed-" else {"no known commit refers to it"})
        assert Driver(found.store).write({"out/b": b"1"}).repeated


def test_what_the_journal_names_is_marked_before_anything_relies_on_it(tmp_path: Path) -> None:
    """A marker that cannot be put leaves the commit unpublished; the next publication, or owner, puts it."""
    cold = ScriptedStorage()
    with open_test_store(tmp_path / "store", cold=cold) as store:
        Driver(store).write({"out/a": b"0123456789"})
        cold.fail("put", Unavailable("no answer"), of="uploads/", on=ALWAYS)
        for _ in range(2):
            with store.holding() as work, pytest.raises(Unavailable):
                work.publish()
        with store.metadata.read() as txn:
            journal = txn.store.journal
            assert journal.published_sequence < txn.store.next_outbox - 1
        assert marked(store) == []
        copy = copy_of(cold)
        cold.behave()
        store.settle()
        assert marked(store) == [1]
    with recovered(tmp_path / "new", copy) as found:
        assert (contents(found.store), marked(found.store)) == ({"out/a": b"0123456789"}, [1])


def test_a_recovery_that_dies_before_its_markers_leaves_them_to_the_next(
    store: TestStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint(store)
    Driver(store).write(BATCH)
    store.settle()
    cold = copy_of(store.cold)
    for one in list(cold.list("uploads/")):
        if parse_name(one.name):
            cold.delete(one.name)
    with monkeypatch.context() as patch:
        patch.setattr(batch_markers, "put_all", lambda *_, **__: (_ for _ in ()).throw(Unavailable("no answer")))
        with pytest.raises(Unavailable), recovered(tmp_path / "dies", cold):
            pass
    with recovered(tmp_path / "next", cold) as found:
        assert (contents(found.store), marked(found.store)) == (BATCH, [1])
