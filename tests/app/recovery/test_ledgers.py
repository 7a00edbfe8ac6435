"""Cold ledgers survive what segments survive: the host lost, replicas, copied buckets, dumps, damage beside them."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from tests.app.recovery.recovering import lose_journal, recovered
from tests.app.recovery.test_follow import following
from tests.app.recovery.test_from_objects import rebuilt
from tests.app.recovery.test_recover import checkpoint, damage
from tests.copied import copy_tier
from tests.doubles.scripted_storage import ScriptedStorage
from tests.engine.journal.replaying import forge
from tests.ledgers import ROOMY, cold_bytes, cold_entries, ledger_names, new_ledger, offload, record, written
from tests.stores import IN_MEMORY, TestStore
from tests.upkeep.check.looking import cold_findings, findings
from tests.upkeep.check.test_mender import mended
from tierfs.app.recovery.replica import Follower
from tierfs.base.words.errors import DataLoss, Unavailable
from tierfs.base.words.types import SegmentId
from tierfs.engine.chunkstore.protocol import BufferSource
from tierfs.engine.journal import store_mark
from tierfs.engine.journal.objects import read_small
from tierfs.engine.metadata import directories, entries, entries_object, frames
from tierfs.engine.metadata import records_pb2 as pb
from tierfs.tiering.ledgers.entry_rows import EntryRows
from tierfs.upkeep.check.findings import Kind, Mend
from tierfs.upkeep.check.repair.copies import Mended

PAYLOADS = [bytes([index % 251]) * (index % 300) for index in range(100)]

POLICY = ROOMY


def repaired(store: TestStore, kind: Kind) -> list[Mended]:
    """Repair findings of one kind, as `check --repair` does."""
    return mended(store, [one for one in (*findings(store), *cold_findings(store)) if one.kind is kind])


def test_a_ledger_of_empty_entries_comes_back_without_an_object(store: TestStore, tmp_path: Path) -> None:
    store.cold_work().publish()
    with following(store, tmp_path / "replica") as replica:
        name = new_ledger(store, [b""] * 5000)
        store.settle()
        Follower(replica.metadata, store.cold, IN_MEMORY).refresh()
        with recovered(tmp_path / "new", store.cold) as found:
            for reader in (replica, found.store):
                with reader.metadata.read() as txn:
                    assert entries.count(txn, reader.segment(name).id) == 5000
                assert findings(reader) == []


@pytest.mark.parametrize("count", [0, 1, 4095, 4096, 4097, 1 << 24, entries.MOST_EMPTY_ENTRIES])
def test_a_claim_of_empty_entries_writes_nothing(store: TestStore, tmp_path: Path, count: int) -> None:
    store.cold_work().publish()
    with following(store, tmp_path / "replica") as replica:
        segment = pb.SegmentRecord(version=1, id=900, parent_id=1, name="claimed", inode=901, kind=1, status=1)
        ledger = pb.LedgerRecord(version=1, ledger_id=1, segment_id=900, entries=count)
        name = forge(store, pb.Change(segment=segment), pb.Change(ledger=ledger))
        assert store.cold.stat(name).length_bytes < 200
        size_bytes = (replica.path / "metadata" / "data.mdb").stat().st_size
        Follower(replica.metadata, store.cold, IN_MEMORY).refresh()
        assert (replica.path / "metadata" / "data.mdb").stat().st_size - size_bytes < 200_000
        with replica.metadata.read() as txn:
            assert entries.count(txn, SegmentId(900)) == count
            assert entries.end(txn, SegmentId(900)) == 0
            if count <= 1 << 24:
                assert sum(len(run.lengths) for run in entries.runs(txn, SegmentId(900))) == count
            last = list(entries.placed(txn, SegmentId(900), max(0, count - 2), count))
            assert [entry.entry_id for entry in last] == list(range(max(0, count - 2), count))
        assert findings(replica) == []


def test_more_empty_entries_than_a_ledger_can_have_are_unknown(
    store: TestStore, tmp_path: Path, expected_warnings: list[str]
) -> None:
    expected_warnings.append("exceed the limit of a ledger")
    segment = pb.SegmentRecord(version=1, id=900, parent_id=1, name="claimed", inode=901, kind=1, status=1)
    ledger = pb.LedgerRecord(version=1, ledger_id=1, segment_id=900, entries=entries.MOST_EMPTY_ENTRIES + 1)
    store.cold_work().publish()
    forge(store, pb.Change(segment=segment), pb.Change(ledger=ledger))
    with recovered(tmp_path / "new", store.cold) as found:
        assert "exceed the limit of a ledger" in found.warnings[-1]
        with found.store.metadata.read() as txn:
            assert (entries.count(txn, SegmentId(900)), txn.count(b"entries")) == (0, 0)


def test_a_replica_shows_no_ledger_without_its_entries(store: TestStore, tmp_path: Path) -> None:
    cold = store.cold = ScriptedStorage(store.cold)
    store.cold_work().publish()
    with following(store, tmp_path / "replica") as replica:
        follower = Follower(replica.metadata, cold, IN_MEMORY)
        name = new_ledger(store, PAYLOADS)
        offload(store, name)
        cold.fail("stat", Unavailable("away"))
        with pytest.raises(Unavailable):
            follower.refresh()
        with replica.metadata.read() as txn:
            assert directories.find(txn, name) is None or not replica.segment(name).length
        follower.refresh()
        assert cold_entries(replica, name) == PAYLOADS


def test_a_replica_that_starts_over_has_all_entries(store: TestStore, tmp_path: Path) -> None:
    store.cold_work().publish()
    with following(store, tmp_path / "replica") as replica:
        follower = Follower(replica.metadata, store.cold, IN_MEMORY)
        names = [new_ledger(store, PAYLOADS) for _ in range(2)]
        for name in names:
            offload(store, name)
            checkpoint(store)
        for slot in list(store.cold.list("journal/0"))[:-1]:
            store.cold.delete(slot.name)
        assert follower.refresh().started_over
        assert [cold_entries(replica, name) for name in names] == [PAYLOADS, PAYLOADS]


@pytest.mark.parametrize("with_index", [False, True])
@pytest.mark.parametrize("gone", [False, True])
def test_without_a_good_copy_the_object_is_read(store: TestStore, tmp_path: Path, gone: bool, with_index: bool) -> None:
    name = new_ledger(store, PAYLOADS)
    offload(store, name)
    spoil_copy(store, name, gone=gone)
    if not with_index:
        store.cold.delete(ledger_names(store)[1])
    with recovered(tmp_path / "new", store.cold) as found:
        assert cold_entries(found.store, name) == PAYLOADS
        assert findings(found.store) == []


@pytest.mark.parametrize(("of", "at"), [("data", 20), ("index", 20), ("index", -1)])
def test_a_wrong_byte_on_the_wire_costs_no_ledger(store: TestStore, tmp_path: Path, of: str, at: int) -> None:
    name = new_ledger(store, PAYLOADS)
    offload(store, name)
    data, index = ledger_names(store)
    cold = ScriptedStorage(store.cold)
    cold.damage(at, of=index if of == "index" else data, on=2)
    with rebuilt(tmp_path / "new", cold) as found:
        assert found.left == {}
        assert cold_entries(found.store, name) == PAYLOADS


def test_a_ledger_of_which_nothing_is_left_costs_no_other(
    store: TestStore, tmp_path: Path, expected_warnings: list[str]
) -> None:
    expected_warnings.append("entries of ledger topic/.*: not found")
    bad, good = new_ledger(store, PAYLOADS), new_ledger(store, PAYLOADS)
    offload(store, bad)
    spoil_copy(store, bad, gone=True)
    for key in ledger_names(store):
        store.cold.delete(key)
    offload(store, good)
    with following(store, tmp_path / "replica") as replica:
        failed = EntryRows(replica.metadata, store.cold, replica.metadata.write_replayed).restore_all()
        assert len(failed) == 1
        assert f"ledger {bad} cannot be read" in failed[0]
        assert cold_entries(replica, good) == PAYLOADS
        with pytest.raises(DataLoss):
            cold_bytes(replica, bad)


def spoil_copy(store: TestStore, name: str, *, gone: bool) -> None:
    (copy,) = (one.name for one in store.cold.list(f"ledgers/entries-{store.segment(name).id}-"))
    if gone:
        store.cold.delete(copy)
    else:
        damage(store.cold, copy)


def test_objects_beside_a_ledger_are_written_again(store: TestStore) -> None:
    name = new_ledger(store, PAYLOADS)
    offload(store, name)
    before = {key: written(store, name) for key in ledger_names(store)}
    store.cold.delete(ledger_names(store)[1])
    (copy,) = (one.name for one in store.cold.list("ledgers/"))
    store.cold.delete(copy)
    assert {one.kind for one in cold_findings(store)} == {Kind.COMPANION}
    assert {one.left for one in repaired(store, Kind.COMPANION)} == {None}
    assert cold_findings(store) == []
    assert {key: written(store, name) for key in ledger_names(store)} == before


def test_lost_rows_are_taken_from_their_copy(store: TestStore) -> None:
    name = new_ledger(store, PAYLOADS)
    offload(store, name)
    store.evict()
    with store.metadata.write() as txn:
        entries.remove(txn, store.segment(name).id)
    (finding,) = findings(store)
    assert (finding.kind, finding.mend) == (Kind.ENTRIES, Mend.RESTORE_ENTRIES)
    assert [one.left for one in repaired(store, Kind.ENTRIES)] == [None]
    assert cold_entries(store, name) == PAYLOADS


def test_another_ledgers_copy_is_refused(store: TestStore) -> None:
    names = [new_ledger(store, PAYLOADS) for _ in range(2)]
    with store.metadata.read() as txn:
        first, second = (store.segment(name).id for name in names)
        data = entries_object.encode(store.metadata.store_id, first, entries.runs(txn, first))
    assert list(entries_object.decode(io.BytesIO(data), "copy", first))
    with pytest.raises(DataLoss, match=f"is of ledger {first}, not {second}"):
        list(entries_object.decode(io.BytesIO(data), "copy", second))


def test_orphans_of_ours_are_found_and_those_of_a_pulsar_are_not(store: TestStore) -> None:
    name = new_ledger(store, PAYLOADS)
    offload(store, name)
    key = ledger_names(store)[0]
    ours, theirs = f"{'a' * 8}{key[8:]}", f"{'b' * 8}{key[8:]}"
    for orphan, said in ((ours, dict(store.cold.stat(key).metadata)), (theirs, {})):
        store.cold.put(orphan, BufferSource(b"x"), metadata=said)
    store.clock.advance(2 * 3600)
    found = store.cold_work().orphans(grace_s=3600)
    assert [one.name for one in found] == [ours]


def mark(store: TestStore) -> None:
    with store.metadata.read() as txn:
        store_mark.write_mark(store.cold, store_mark.mark_of(txn.store))


@pytest.mark.parametrize("copied", [False, True])
def test_ledgers_come_back_from_their_objects_with_or_without_user_metadata(
    store: TestStore, tmp_path: Path, copied: bool
) -> None:
    name, second = new_ledger(store, PAYLOADS, "public/ü"), new_ledger(store, [b"x"] * 5000, "t")
    uuid = offload(store, name)
    offload(store, second)
    if copied:
        mark(store)
        copy_tier(store.cold)
    lose_journal(store.cold)
    with rebuilt(tmp_path / "new", store.cold) as found:
        assert found.left == {}
        assert set(found.rebuilt) == {name, second}
        assert cold_entries(found.store, name) == PAYLOADS
        assert record(found.store, name).offload.uuid == uuid
        assert findings(found.store) == []


@pytest.mark.parametrize("harm", ["copy gone", "copy of another store", "copy of an adopted ledger", "copy damaged"])
def test_a_ledger_that_nothing_proves_to_be_ours_is_listed(store: TestStore, tmp_path: Path, harm: str) -> None:
    name = new_ledger(store, PAYLOADS)
    offload(store, name)
    mark(store)
    lose_journal(store.cold)
    (copy,) = (item.name for item in store.cold.list("ledgers/"))
    part = entries_object.first_part(io.BytesIO(read_small(store.cold, copy)), copy)
    if harm == "copy of another store":
        part.store_id = "f" * 32
    elif harm == "copy of an adopted ledger":
        part.ClearField("path")
    store.cold.delete(copy)
    if harm != "copy gone":
        data = frames.frame(part) if harm != "copy damaged" else b"TFSJ" + b"\xff" * 30
        store.cold.put(copy, BufferSource(data))
    copy_tier(store.cold)
    with rebuilt(tmp_path / "new", store.cold) as found:
        assert (set(found.rebuilt), set(found.left)) == (set(), {ledger_names(store)[0]})
        said = copy if harm == "copy damaged" else "no sign that this store wrote it"
        assert said in found.left[ledger_names(store)[0]]


def test_of_two_attempts_the_whole_one_comes_back(store: TestStore, tmp_path: Path) -> None:
    name = new_ledger(store, PAYLOADS)
    offload(store, name)
    data, _ = ledger_names(store)
    half = f"{'a' * 8}{data[8:]}"
    store.cold.put(half, BufferSource(b"x"), metadata=dict(store.cold.stat(data).metadata))
    lose_journal(store.cold)
    with rebuilt(tmp_path / "new", store.cold) as found:
        assert cold_entries(found.store, name) == PAYLOADS
        assert found.left == {half: "not offloaded: its index object is missing"}


def test_a_pulsars_ledgers_are_left_alone(store: TestStore, tmp_path: Path) -> None:
    name = new_ledger(store, PAYLOADS)
    offload(store, name)
    for key in ledger_names(store):
        data, said = read_small(store.cold, key), dict(store.cold.stat(key).metadata)
        theirs = {word: value for word, value in said.items() if word not in ("store", "epoch", "attempt", "name")}
        store.cold.put(f"{'b' * 8}{key[8:]}", BufferSource(data), metadata=theirs)
    lose_journal(store.cold)
    with rebuilt(tmp_path / "new", store.cold) as found:
        assert set(found.rebuilt) == {name}
        theirs = [key for key in ledger_names(store) if key.startswith("b" * 8) and not key.endswith("-index")]
        assert list(found.left) == theirs
        assert "tierfs adopt --as pulsar" in found.left[theirs[0]]
