"""Which change of the journal names each cold object: its local copy goes, and it is trusted, from then on."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.ledgers import new_ledger
from tests.ledgers import offload as offload_ledger
from tests.stores import LOCATION, TestStore, open_test_store
from tests.tiering.batch_writes import Driver
from tierfs.config import OffloadSettings
from tierfs.metadata import records_pb2 as pb
from tierfs.metadata.tables import OBJECTS
from tierfs.metadata.transaction import WriteTransaction
from tierfs.tiering.repack import Repack
from tierfs.types import Tier

POLICY = {"chunk_bytes": "65536", "object_bytes": "1600000"}


def write(store: TestStore) -> None:
    for number in range(20):
        store.append(f"s{number:02d}", os.urandom(3000), seal=True)


def offload(store: TestStore) -> None:
    store.append("s", os.urandom(200_000), seal=True)
    store.offload("s")


def pack(store: TestStore) -> None:
    write(store)
    store.offload()


def consolidate(store: TestStore) -> None:
    for _ in range(3):
        store.append("s", os.urandom(200_000))
        store.offload("s")
        store.evict("s")
    store.engine.seal("s")
    store.consolidate("s")


def repack(store: TestStore) -> None:
    pack(store)
    store.evict()
    for number in range(2, 20):
        store.engine.delete(f"s{number:02d}", recursive=False, cold_due_ms=0)
    work = store.cold_work()
    work.publish()
    repacker = Repack(store.metadata, store.files, work.tools.cold, store.settings)
    while repacker.step() is not None:
        pass


def batch(store: TestStore) -> None:
    Driver(store).write({f"out/{number}": b"abc" * number for number in range(1, 4)})


def ledger(store: TestStore) -> None:
    offload_ledger(store, new_ledger(store, [b"entry"] * 10))


def _objects(change: pb.Change) -> set[int]:
    """The objects that a change brings to the journal."""
    if change.HasField("pack_link"):
        return {change.pack_link.object.id}
    return {item.id for item in change.cold_link.objects}


@pytest.mark.parametrize("verb", [offload, pack, consolidate, repack, batch, ledger])
def test_an_object_counts_as_journaled_from_the_change_that_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: Callable[[TestStore], None]
) -> None:
    queued: dict[int, set[int]] = {}
    add = WriteTransaction.add_to_outbox

    def noted(txn: WriteTransaction, data: bytes) -> int:
        sequence = add(txn, data)
        queued[sequence] = _objects(pb.Change.FromString(data))
        return sequence

    monkeypatch.setattr(WriteTransaction, "add_to_outbox", noted)
    settings = OffloadSettings(relocate_min_bytes=1000)
    with open_test_store(tmp_path / "store", policy=POLICY, settings=settings) as store:
        verb(store)
        with store.metadata.read() as txn:
            cold = [holder for _, holder in txn.scan(OBJECTS) if holder.tier is Tier.COLD]
    assert cold
    for holder in cold:
        assert holder.location_id == LOCATION
        assert holder.id in queued[holder.linked_sequence]
