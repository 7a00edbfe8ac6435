"""What a person removes can be restored for as long as policy says, after any crash and on any disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.app.recovery.recovering import recovered
from tests.engine.journal.replaying import check_every_step
from tests.stores import TestStore
from tests.upkeep.check.looking import findings
from tierfs.base.words.errors import AlreadyExists, DataLoss, InvalidRequest, NotDirectory, NotFound, TierfsError
from tierfs.engine.metadata import directories, policies, untrusted
from tierfs.engine.metadata.record_parts import NOT_REMOVED
from tierfs.engine.metadata.tables import CHUNKS, DIRECTORIES, DIRENTS, SEGMENTS
from tierfs.engine.segments import trash
from tierfs.engine.segments.delete import Deletion
from tierfs.tiering.garbage import clock_acceptance
from tierfs.upkeep.check.findings import Kind, Severity
from tierfs.upkeep.holder.local_only import local_only
from tierfs.upkeep.holder.status import StoreStatus, store_status

DAY_S = 86_400


@pytest.fixture(autouse=True)
def sound(store: TestStore) -> Iterator[None]:
    yield
    # A recovery of the bucket by a test takes it over, and a fenced writer leaves bytes that nothing names.
    found = [one for one in findings(store) if one.severity is not Severity.NOTE and one.kind is not Kind.JOURNAL]
    assert found == []


def remove(store: TestStore, path: str, *, recursive: bool = False) -> Deletion:
    due_ms = store.clock.now_ms()
    return store.engine.delete(path, recursive=recursive, cold_due_ms=due_ms, to_trash=True)


def restore(store: TestStore, path: str, *, to: str = "", removal_id: int | None = None) -> str:
    return trash.restore(store.metadata, path, to=to, removal_id=removal_id)[0]


def in_trash(store: TestStore) -> list[str]:
    with store.metadata.read() as txn:
        return [each.removal.path for each in trash.removed(txn)]


def listed(store: TestStore) -> list[str]:
    with store.metadata.read() as txn:
        return [name for name, _ in directories.segments_at(txn, "")]


def set_policy(store: TestStore, path: str, **settings: str) -> None:
    with store.metadata.write() as txn:
        policies.change(txn, path, put_settings=settings)


def cold(store: TestStore) -> None:
    store.append("d/a", b"cold", seal=True)
    store.offload()
    store.evict()


def both(store: TestStore) -> None:
    store.append("d/a", b"cold")
    store.offload()
    store.append("d/a", b"local")


def packed(store: TestStore) -> None:
    for name in "abcd":
        store.append(f"d/{name}", name.encode() * 3, seal=True)
    store.offload()
    store.evict()
    store.engine.delete("d/b", recursive=False, cold_due_ms=store.clock.now_ms())


def reshaped(store: TestStore) -> None:
    store.append("d/a", b"12345")
    store.append("b", b"67890", seal=True)
    store.offload()
    store.engine.concat("d/a", "b")
    store.engine.truncate("d/a", 3, cold_due_ms=store.clock.now_ms())


def many(store: TestStore) -> None:
    for number in range(30):
        store.append(f"d/{number % 3}/{number}", b"x")
    store.append("d/a", b"")
    set_policy(store, "d/1", chunk_bytes="3")


@pytest.mark.parametrize("path", ["d/a", "d"])
@pytest.mark.parametrize("make", [cold, both, packed, reshaped, many])
def test_a_removed_segment_comes_back_with_both_tiers(
    store: TestStore, make: Callable[[TestStore], None], path: str
) -> None:
    make(store)
    held = listed(store)
    before = {name: (store.segment(name).start_offset, store.read(name)) for name in held}
    uncovered = sum(store.segment(name).uncovered_bytes for name in gone_of(held, path))
    files, commits = set(store.files.names()), store.metadata.last_transaction_id()
    done = remove(store, path, recursive=path == "d")
    assert store.metadata.last_transaction_id() == commits + 1
    gone = gone_of(held, path)
    assert (done.segments, done.uncovered_bytes) == (len(gone), uncovered)
    assert done.bytes == sum(len(data) - start for start, data in (before[name] for name in gone))
    assert done.trash_due_ms == store.clock.now_ms() + DAY_S * 1000
    store.settle()
    store.consolidate()
    assert listed(store) == [name for name in held if name not in gone]
    with pytest.raises(NotFound):
        store.read("d/a")
    assert in_trash(store) == [path]
    assert set(store.files.names()) == files
    commits = store.metadata.last_transaction_id()
    assert restore(store, path) == path
    assert store.metadata.last_transaction_id() == commits + 1
    assert in_trash(store) == []
    assert {name: (store.segment(name).start_offset, store.read(name)) for name in listed(store)} == before
    with store.metadata.read() as txn:
        chunk_bytes = policies.effective(txn, directories.segment_by_name(txn, held[-1])).chunk_bytes
    assert chunk_bytes == (3 if make is many and held[-1].startswith("d/1") else 4)
    store.engine.unseal("d/a")
    store.append("d/a", b"!")
    assert store.read("d/a")[before["d/a"][0] :] == before["d/a"][1][before["d/a"][0] :] + b"!"


def gone_of(names: list[str], path: str) -> list[str]:
    return [name for name in names if name == path or name.startswith(f"{path}/")]


def test_a_removal_ends_when_it_is_due_and_not_before(store: TestStore) -> None:
    store.append("d/a", b"cold")
    store.offload()
    remove(store, "d/a")
    remove(store, "d", recursive=True)
    store.clock.advance(DAY_S - 1)
    store.settle()
    assert sorted(in_trash(store)) == ["d", "d/a"]
    store.clock.advance(1)
    store.settle()
    assert in_trash(store) == []
    with store.metadata.read() as txn:
        assert [txn.count(table.name) for table in (SEGMENTS, DIRECTORIES, DIRENTS, CHUNKS)] == [0, 1, 0, 0]
    assert list(store.files.names()) == []
    with pytest.raises(NotFound):
        restore(store, "d/a")
    store.clock.advance(store.settings.grace_s + 1)
    store.settle()
    assert list(store.cold.list("segments/")) == []


@pytest.mark.parametrize("clock_s", [DAY_S * 400, -DAY_S * 400])
def test_the_trash_outlives_a_clock_that_jumps(store: TestStore, expected_warnings: list[str], clock_s: int) -> None:
    expected_warnings.append("the wall clock is not trusted")
    store.append("a", b"1")
    store.server_time_ms = store.clock.now_ms()
    remove(store, "a")
    store.clock.jump(clock_s)
    store.settle()
    assert in_trash(store) == ["a"]
    assert restore(store, "a") == "a"


def test_a_removal_from_the_future_is_due_a_day_after_the_clock_is_accepted(store: TestStore) -> None:
    store.clock.jump(DAY_S * 400)
    store.append("a", b"1")
    remove(store, "a")
    store.clock.jump(-DAY_S * 400)
    assert clock_acceptance.accept(store.metadata, grace_s=0).deletions == 1
    with store.metadata.read() as txn:
        assert directories.next_due_ms(txn) == store.clock.now_ms() + DAY_S * 1000
    assert findings(store) == []


@pytest.mark.parametrize("age", ["0", "1", "3600"])
def test_the_nearest_policy_at_the_removal_sets_the_time(store: TestStore, age: str) -> None:
    store.append("d/e/a", b"1")
    store.append("d/b", b"2")
    set_policy(store, "", trash_age="5")
    set_policy(store, "d/e", trash_age=age)
    assert remove(store, "d/b").trash_due_ms == store.clock.now_ms() + 5000
    due_ms = remove(store, "d/e", recursive=True).trash_due_ms
    assert due_ms == (store.clock.now_ms() + int(age) * 1000 if age != "0" else 0)
    assert in_trash(store) == {"0": ["d/b"], "1": ["d/e", "d/b"], "3600": ["d/b", "d/e"]}[age]


@pytest.mark.parametrize("clock_s", [1, 0, -60])
def test_a_taken_name_needs_another_one_and_of_several_removals_the_newest_comes_first(
    store: TestStore, clock_s: int
) -> None:
    for data in (b"1", b"2"):
        store.append("d/a", data)
        remove(store, "d/a")
        store.clock.jump(clock_s)
    store.append("d/a", b"3", seal=True)
    store.offload()
    store.evict()
    with pytest.raises(AlreadyExists) as refused:
        restore(store, "d/a")
    assert "--as" in str(refused.value.remedy)
    with store.metadata.read() as txn:
        oldest = min(each.id for each in trash.removed(txn))
    with pytest.raises(NotFound):
        restore(store, "d/a", removal_id=oldest + 100)
    assert restore(store, "d/a", to="x/new") == "x/new"
    assert restore(store, "d/a", to="old", removal_id=oldest) == "old"
    assert [store.read(name) for name in ("old", "x/new", "d/a")] == [b"1", b"2", b"3"]


@pytest.mark.parametrize(
    ("path", "to", "error"),
    [
        ("d/e/a", "", InvalidRequest),
        ("dd", "", NotFound),
        ("b", ".tierfs-trash-000000000000001-1", InvalidRequest),
        ("b", ".tierfs-removed-1", InvalidRequest),
        ("b", ".tierfs", InvalidRequest),
        ("b", ".tierfs/x", InvalidRequest),
        ("b", "f/a/below", NotDirectory),
    ],
)
def test_what_cannot_be_restored_stays(store: TestStore, path: str, to: str, error: type[TierfsError]) -> None:
    for name in ("d/e/a", "b", "f/a"):
        store.append(name, b"1")
    remove(store, "d", recursive=True)
    remove(store, "b")
    with pytest.raises(error) as refused:
        restore(store, path, to=to)
    assert refused.value.remedy == ("tierfs restore d" if path == "d/e/a" else refused.value.remedy)
    assert sorted(in_trash(store)) == ["b", "d"]


def test_a_longer_name_of_a_directory_keeps_every_name_below_it_possible(store: TestStore) -> None:
    store.append(f"d/{'x' * 250}/{'y' * 250}/{'z' * 250}", b"1")
    remove(store, "d", recursive=True)
    with pytest.raises(InvalidRequest):
        restore(store, "d", to="e" * 48)
    assert restore(store, "d", to="e" * 47)


def test_an_open_writer_is_refused_and_its_segment_takes_no_byte_in_the_trash(store: TestStore) -> None:
    alone, below = store.engine.open_writer("a"), store.engine.open_writer("d/b")
    for writer in (alone, below):
        writer.append(b"1")
        writer.append(b"2")
    remove(store, "a")
    remove(store, "d", recursive=True)
    for writer in (alone, below):
        with pytest.raises(NotFound):
            writer.append(b"lost")
    assert restore(store, "a") == "a"
    assert restore(store, "d") == "d"
    assert (store.read("a"), store.read("d/b")) == (b"12", b"12")
    below.append(b"3")
    assert store.read("d/b") == b"123"


def test_what_is_in_the_trash_is_not_offloaded_nor_sealed_nor_expired(store: TestStore) -> None:
    store.append("d/cold", b"12345")
    store.offload()
    store.append("d/local", b"12345")
    set_policy(store, "d", seal_age="1", retention_age="1", offload_after="0", chunk_age="1")
    remove(store, "d", recursive=True)
    store.clock.advance(3600)
    with store.holding() as work:
        work.end_lifetimes()
        work.publish()
    store.offload()
    restore(store, "d")
    local = store.segment("d/local")
    assert (local.sealed, local.cold.count, local.length) == (False, 0, 5)
    assert store.read("d/cold") == b"12345"


def status(store: TestStore) -> StoreStatus:
    return store_status(store.metadata, store.files, store.paths.holder, store.path, allowed="")


@pytest.mark.parametrize("checkpoint", [False, True])
def test_every_step_of_the_journal_is_a_sound_store_and_the_trash_can_be_recovered(
    store: TestStore, tmp_path: Path, checkpoint: bool
) -> None:
    for name in ("a", "d/b", "d/e/c", "f"):
        store.append(name, name.encode(), seal=True)
    store.offload()
    store.append("d/local", b"not cold")
    remove(store, "a")
    remove(store, "d", recursive=True)
    remove(store, "f")
    restore(store, "f", to="g")
    store.append("a", b"new")
    store.offload("a")
    store.settle()
    if checkpoint:
        with store.holding() as work:
            work.checkpointer.checkpoint()
    else:
        check_every_step(store, tmp_path / "copy")
    with recovered(tmp_path / "recovered", store.cold) as found:
        assert bool(found.checkpoint_slot) is checkpoint
        assert sorted(in_trash(found.store)) == ["a", "d"]
        assert restore(found.store, "a", to="old") == "old"
        restore(found.store, "d")
        contents = {name: found.store.read(name) for name in listed(found.store)}
        assert contents == {"a": b"new", "old": b"a", "d/b": b"d/b", "d/e/c": b"d/e/c", "d/local": b"", "g": b"f"}
        assert findings(found.store) == []


@pytest.mark.parametrize("wrong", ["due_ms", "path", "name", "bytes"])
def test_an_impossible_removal_in_a_journal_is_refused(store: TestStore, wrong: str) -> None:
    store.append("a", b"1")
    remove(store, "a")
    with store.metadata.read() as txn:
        ((_, segment),) = txn.scan(SEGMENTS)
    untrusted.check_segment(segment)
    removal = segment.removal
    broken = {
        "due_ms": replace(segment, removal=replace(removal, due_ms=removal.due_ms + 1)),
        "path": replace(segment, removal=replace(removal, path="../a")),
        "name": replace(segment, name="a"),
        "bytes": replace(segment, removal=replace(removal, bytes=2**60)),
    }[wrong]
    with pytest.raises(DataLoss):
        untrusted.check_segment(broken)


def test_make_room_takes_copies_of_the_trash_first(store: TestStore, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("kept", "younger", "older", "local"):
        store.append(name, b"12345", seal=True)
        if name != "local":
            store.offload()
    for name in ("local", "older", "younger"):
        remove(store, name)
        store.clock.advance(1)
    missing = iter([1, 1, 0, 0])
    monkeypatch.setattr("tierfs.upkeep.holder.work.missing_bytes", lambda *_: next(missing, 0))
    with store.holding() as work:
        assert work.make_room("kept") == 5
    assert (status(store).trash.local_bytes, status(store).trash.cold_bytes) == (10, 10)
    for name in ("local", "older", "younger"):
        restore(store, name)
    held = {name: store.segment(name).local.bytes for name in ("kept", "younger", "older", "local")}
    assert held == {"kept": 5, "younger": 5, "older": 0, "local": 5}
    assert store.read("older") == b"12345"
    assert findings(store) == []


def test_check_reports_a_name_in_the_trash_that_is_not_its_records(store: TestStore) -> None:
    store.append("d/a", b"1")
    remove(store, "d/a")
    with store.metadata.read() as txn:
        ((key, right),) = txn.scan(SEGMENTS)
        assert list(local_only(txn)) == []
    for wrong in (replace(right.removal, due_ms=right.removal.due_ms + 1), NOT_REMOVED):
        with store.metadata.write() as txn:
            txn.put(SEGMENTS, key, replace(right, removal=wrong))
        assert [(one.kind, one.severity) for one in findings(store)] == [(Kind.RECORD, Severity.DAMAGE)]
    with store.metadata.write() as txn:
        txn.put(SEGMENTS, key, right)
