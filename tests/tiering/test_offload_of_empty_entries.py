"""A closed ledger whose entries are all empty has objects as any other has, although no chunk refers to them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.app.recovery.recovering import lose_journal, recovered
from tests.app.recovery.test_follow import following
from tests.app.recovery.test_from_objects import rebuilt
from tests.doubles.scripted_storage import ScriptedStorage, When
from tests.engine.journal.replaying import forge
from tests.engine.ledger import independent
from tests.ledgers import ROOMY, ledger_names, new_ledger, offloader, record, written
from tests.stores import IN_MEMORY, TestStore, quiet
from tests.tiering.test_ledger_offload import HOUR_MS, UID
from tests.upkeep.check.looking import cold_findings, findings
from tests.upkeep.check.test_mender import mended
from tierfs.app.recovery.replica import Follower
from tierfs.base.words.errors import InvalidRequest, NotFound, Unavailable
from tierfs.base.words.types import SegmentId
from tierfs.engine.journal.objects import read_small
from tierfs.engine.metadata import empty_ledgers, entries
from tierfs.engine.metadata import records_pb2 as pb
from tierfs.engine.metadata.tables import INTENTS
from tierfs.engine.segments import positions
from tierfs.engine.segments.positions import OffloadState
from tierfs.tiering.backup.segment import dump_segment
from tierfs.tiering.planner import Planner
from tierfs.tiering.snapshot import Snapshots
from tierfs.upkeep.check.findings import Kind, Mend

POLICY = ROOMY

THREE = [b"", b"", b""]


def closed(store: TestStore) -> str:
    name = new_ledger(store, THREE, "t")
    store.cold_work().publish()
    return name


def is_named(store: TestStore, name: str) -> bool:
    return len(ledger_names(store)) == 2 and record(store, name).offload.complete


def planned(store: TestStore) -> Callable[[], int]:
    """How many objects the holder would make, kept current as the holder does."""
    snapshots = Snapshots(store.metadata, planner := Planner())

    def count() -> int:
        snapshots.refresh()
        return len(planner.offloads)

    return count


def test_a_ledger_of_empty_entries_becomes_pulsars_objects(store: TestStore) -> None:
    name = closed(store)
    assert (store.offload().bytes, is_named(store, name)) == (0, True)
    assert written(store, name) == THREE
    index = independent.decode_index(read_small(store.cold, ledger_names(store)[1]))
    assert index.rows == [(0, 1, 0)]
    attempt = record(store, name).offload.uuid
    store.offload()
    assert record(store, name).offload.uuid == attempt, "once more does nothing"
    assert findings(store) == cold_findings(store) == []


def test_the_holder_finds_it(store: TestStore) -> None:
    count, name = planned(store), new_ledger(store, THREE, "t", close=False)
    assert count() == 0, "it is open"
    store.engine.seal(name)
    new_ledger(store, [], "t")
    assert count() == planned(store)() == 1, "not the one without an entry"
    store.offload()
    assert count() == planned(store)() == 0


def test_a_prefix_takes_it(store: TestStore) -> None:
    name, without = closed(store), new_ledger(store, [], "t")
    with store.metadata.read() as txn:
        assert positions.status(txn, "t", held=True).next_to_offload == f"{int(name[2:])}:0"
    done = store.cold_work().offload_prefix("t", None, quiet)
    assert (done.ledgers, done.already_cold) == (1, 0)
    assert store.cold_work().offload_prefix("t", None, quiet).already_cold == 1
    with store.metadata.read() as txn:
        status = positions.status(txn, "t", held=True)
    assert status.next_to_offload is None
    assert [(one.offload, one.local_deleted) for one in status.ledgers] == [
        (OffloadState.COMPLETE, True),
        (OffloadState.NONE, False),
    ]
    with pytest.raises(InvalidRequest, match="has no entries: there is nothing to offload"):
        offloader(store).offload(store.segment(without).id, UID)


@pytest.mark.parametrize("put", [1, 2])
@pytest.mark.parametrize("error", [Unavailable("away"), KeyboardInterrupt()])
def test_a_failed_attempt_leaves_nothing(
    store: TestStore, storage: ScriptedStorage, put: int, error: BaseException
) -> None:
    name = closed(store)
    storage.fail("put", error, on=put, when=When.AFTER)
    with pytest.raises(type(error)):
        offloader(store).offload(store.segment(name).id, UID)
    store.cold_work().resolve_crashed()
    store.settle()
    assert (ledger_names(store), record(store, name).offload.complete) == ([], False)
    store.offload()
    assert is_named(store, name)
    with store.metadata.read() as txn:
        assert txn.count(INTENTS.name) == 0


def test_garbage_collection_keeps_its_objects_until_it_is_deleted(store: TestStore) -> None:
    name = closed(store)
    store.offload()
    store.clock.advance(48 * 3600)
    store.collect(grace_s=0)
    assert is_named(store, name)
    store.engine.delete(name, recursive=False, cold_due_ms=store.clock.now_ms() + HOUR_MS)
    store.settle()
    assert len(ledger_names(store)) == 2
    store.clock.advance(2 * 3600)
    store.settle()
    assert ledger_names(store) == []


def test_the_offload_of_empty_entries_can_be_taken_back(store: TestStore) -> None:
    name = closed(store)
    store.offload()
    uuid = record(store, name).offload.uuid
    assert uuid is not None
    with pytest.raises(NotFound):
        offloader(store).delete_offloaded(store.segment(name).id, UID)
    offloader(store).delete_offloaded(store.segment(name).id, uuid)
    store.settle()
    assert (ledger_names(store), record(store, name).offload.uuid) == ([], None)


@pytest.mark.parametrize("gone", [0, 1])
def test_a_check_misses_an_object_and_has_it_made_again(store: TestStore, gone: int) -> None:
    name = closed(store)
    store.offload()
    store.cold.delete(ledger_names(store)[gone])
    (found,) = cold_findings(store)
    assert (found.kind, found.subject, found.mend) == (Kind.OBJECT_MISSING, name, Mend.OFFLOAD_AGAIN)
    assert [done.left for done in mended(store, [found])] == [None]
    store.offload()
    store.settle()
    assert is_named(store, name)
    assert cold_findings(store) == []


def test_recovered_stores_and_replicas_know_it(store: TestStore, tmp_path: Path) -> None:
    store.cold_work().publish()
    with following(store, tmp_path / "replica") as replica:
        name = closed(store)
        store.offload()
        Follower(replica.metadata, store.cold, IN_MEMORY).refresh()
        with recovered(tmp_path / "new", store.cold) as found:
            for reader in (replica, found.store):
                assert is_named(reader, name)
                with reader.metadata.read() as txn:
                    assert entries.count(txn, reader.segment(name).id) == len(THREE)
                assert findings(reader) == []
            assert planned(found.store)() == 0
            found.store.engine.delete(name, recursive=False, cold_due_ms=0)
            found.store.settle()
            assert ledger_names(found.store) == []


def test_a_ledger_of_empty_entries_is_rebuilt_from_its_objects(store: TestStore, tmp_path: Path) -> None:
    name = closed(store)
    store.offload()
    lose_journal(store.cold)
    with rebuilt(tmp_path / "new", store.cold) as found:
        assert written(found.store, name) == THREE
        assert planned(found.store)() == 0
        assert cold_findings(found.store)[1:] == findings(found.store) == []
        with found.store.metadata.read() as txn:
            assert empty_ledgers.own_names(entries.find(txn, found.store.segment(name).id))


def test_a_dump_is_offloaded_again(store: TestStore) -> None:
    name = closed(store)
    store.offload()
    dump_segment(store.metadata, store.cold, name)
    store.engine.delete(name, recursive=False, cold_due_ms=0)
    store.settle()
    with store.holding() as work:
        work.load_segment(name, accept_loss=False, report=quiet)
    assert not record(store, name).offload.complete
    store.offload()
    assert is_named(store, name)
    assert written(store, name) == THREE


def test_a_claim_of_many_entries_uploads_nothing(store: TestStore, tmp_path: Path) -> None:
    """Any writer to the bucket can choose the number."""
    store.cold_work().publish()
    segment = pb.SegmentRecord(version=1, id=900, parent_id=1, name="claimed", inode=901, kind=1, status=1)
    ledger = pb.LedgerRecord(version=1, ledger_id=1, segment_id=900, entries=empty_ledgers.MOST_OFFLOADED + 1)
    forge(store, pb.Change(segment=segment), pb.Change(ledger=ledger))
    with recovered(tmp_path / "new", store.cold) as found:
        assert planned(found.store)() == 0
        with pytest.raises(InvalidRequest, match="too many empty entries"):
            offloader(found.store).offload(SegmentId(900), UID)
