"""A takeover uses the rows of entries that the replica has: it reads no copy of them in the bucket again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest

from tests.app.recovery.standing_by import Hosts, hosts_in
from tierfs.app import thaw
from tierfs.app.recovery.promote import promote
from tierfs.app.standby_orders import take_over_now
from tierfs.app.store import Store
from tierfs.app.unrestored import Restoring
from tierfs.base.bytes.progress import unseen
from tierfs.base.system.metrics import NullMetrics
from tierfs.base.words.errors import Archived
from tierfs.base.words.types import Tier
from tierfs.engine.chunkstore.protocol import ChunkStorage, ThawSpeed
from tierfs.engine.chunkstore.wrappers import Wrapped
from tierfs.engine.metadata import chains, directories, entries
from tierfs.engine.metadata.records import ObjectRecord
from tierfs.engine.segments.ledgers import make
from tierfs.tiering.ledgers.entry_rows import EntryRows

T = TypeVar("T")

PAYLOADS = [bytes([number]) * number for number in range(1, 100)]


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    with hosts_in(tmp_path) as hosts:
        yield hosts


def offloaded(store: Store) -> str:
    with store.metadata.write() as txn:
        name = make(txn, "topic")
    writer = store.engine.open_ledger(name)
    writer.append_entries(PAYLOADS)
    store.engine.close_writer(writer)
    store.engine.seal(name)
    store.cold_work().offload("", unseen)
    return name


def lengths(store: Store, name: str) -> list[int]:
    with store.metadata.read() as txn:
        segment_id = directories.segment_by_name(txn, name).id
        return [length for run in entries.runs(txn, segment_id) for length in run.lengths]


@pytest.mark.parametrize("lacking", [False, True])
def test_only_rows_that_the_replica_lacks_are_read_again(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch, lacking: bool
) -> None:
    names = [offloaded(hosts.owner.store) for _ in range(2)]
    standby = hosts.standby()
    if lacking:
        with standby.store.metadata.write_replayed() as txn:
            entries.remove(txn, directories.segment_by_name(txn, names[0]).id)
    read: list[int] = []
    put = EntryRows._put_those_of

    def note(rows: EntryRows, record: ObjectRecord) -> None:
        read.append(record.segment_id)
        put(rows, record)

    monkeypatch.setattr(EntryRows, "_put_those_of", note)
    take_over_now(standby.store)
    assert len(read) == lacking
    assert [lengths(standby.store, name) for name in names] == [list(map(len, PAYLOADS))] * 2


def test_rows_of_other_objects_are_not_taken(hosts: Hosts) -> None:
    """The ledger was offloaded again since the replica's last look."""
    name, owner = offloaded(hosts.owner.store), hosts.owner.store
    standby = hosts.standby().store
    with standby.metadata.write_replayed() as txn:
        segment_id = directories.segment_by_name(txn, name).id
        (run,) = entries.runs(txn, segment_id)
        entries.put(txn, segment_id, replace(run, lengths=run.lengths[::-1]))
    with owner.metadata.read() as txn:
        uuid = entries.find(txn, segment_id).offload.uuid
    assert uuid is not None
    owner.cold_work().ledgers.delete_offloaded(segment_id, uuid)
    owner.cold_work().offload("", unseen)
    promote(standby.metadata, hosts.place, "a takeover")
    assert lengths(standby, name) == list(map(len, PAYLOADS))


class Frozen(Wrapped):
    """A bucket whose rule has moved some objects into a class that must be restored first."""

    frozen: frozenset[str] = frozenset()

    def _call(self, verb: str, name: str, function: Callable[[], T]) -> T:
        if verb == "read" and name in self.frozen:
            raise Archived(f"{name} is in the archive", remedy="run: tierfs thaw --wait PATH")
        return function()


def objects_of(store: Store, name: str) -> set[str]:
    """The object of a ledger, its index, and the copy of its entries."""
    with store.metadata.read() as txn:
        segment_id = directories.segment_by_name(txn, name).id
        (record,) = (chains.object_of(txn, chunk) for chunk in chains.chunks(txn, segment_id, Tier.COLD))
    return {record.name, record.index_name, record.entries_name}


def test_a_ledger_that_must_be_thawed_first_holds_up_no_recovery(hosts: Hosts, expected_warnings: list[str]) -> None:
    """There is no store yet whose `thaw` could bring it back."""
    names = [offloaded(hosts.owner.store) for _ in range(2)]
    store = hosts.standby().store
    with store.metadata.write_replayed() as txn:
        for name in names:
            entries.remove(txn, directories.segment_by_name(txn, name).id)
    with closing(hosts.place.shared(NullMetrics())) as storage:
        bucket = Frozen(storage)
        bucket.frozen = frozenset(objects_of(store, names[0]))
        expected_warnings.append("entries of ledger")
        (told,) = EntryRows(store.metadata, bucket, store.metadata.write_replayed).restore_all()
    assert told.startswith(f"ledger {names[0]} cannot be read, its entries are unknown: ")
    assert told.endswith(f"; first tierfs thaw --wait {names[0]}, then tierfs check --repair")
    assert [lengths(store, name) for name in names] == [[], list(map(len, PAYLOADS))]


def test_thaw_requests_what_lies_beside_a_ledger(hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    """A recovery and an export read it, too; the ledger is back with the last of its objects."""
    name, store = offloaded(hosts.owner.store), hosts.owner.store
    ready = dict.fromkeys(objects_of(store, name), 9)
    ready[next(each for each in ready if each.endswith("-index"))] = 0

    def state_of(_: ChunkStorage, looked: str, days: int, __: ThawSpeed) -> Restoring:
        return Restoring("GLACIER", was_requested=True, until_ms=ready[looked])

    monkeypatch.setattr(thaw, "state_of", state_of)
    done = thaw.Thawing(store, [name]).look(days=1)
    assert (done.objects, done.requested, done.ready) == (1, 1, 0)
    ready = dict.fromkeys(ready, 9)
    assert thaw.Thawing(store, [name]).look(days=1).is_ready
