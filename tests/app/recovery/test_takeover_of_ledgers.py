"""A takeover uses the rows of entries that the replica has: it reads no copy of them in the bucket again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.app.recovery.standing_by import Hosts, hosts_in
from tierfs.app.recovery.promote import promote
from tierfs.app.standby_orders import take_over_now
from tierfs.app.store import Store
from tierfs.base.bytes.progress import unseen
from tierfs.engine.metadata import directories, entries
from tierfs.engine.metadata.records import ObjectRecord
from tierfs.engine.segments.ledgers import make
from tierfs.tiering.ledgers.entry_rows import EntryRows

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
