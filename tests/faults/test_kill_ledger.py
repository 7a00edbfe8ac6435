"""kill -9 while ledgers are offloaded: none is incomplete, none is lost, and no garbage remains."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import verbs
from tests.faults.test_kill import MAX_LIFE_S, ROUNDS, Victim, s3_store_path, store_path
from tests.ledger import independent
from tierfs.app import store as app
from tierfs.journal.publish import read_small
from tierfs.metadata import chains, directories, entries
from tierfs.metadata.tables import OBJECTS
from tierfs.segments.ledgers import below, make
from tierfs.tiering.ledgers.copies import companions, ledger_objects
from tierfs.types import Tier

__all__ = ["s3_store_path", "store_path"]

TOPIC = "logs/s"
"""The managed ledger that the victim offloads."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def entries_of(seed: int) -> list[bytes]:
    """Some 600 KB in entries of very different lengths."""
    chosen = random.Random(seed)
    return [chosen.randbytes(chosen.choice([0, 5, 1000, 3000])) for _ in range(600)]


def add_ledger(store: app.Store, seed: int) -> str:
    with store.metadata.write() as txn:
        name = make(txn, TOPIC)
    writer = store.engine.open_ledger(name)
    writer.append_entries(entries_of(seed))
    store.engine.close_writer(writer)
    store.engine.seal(name)
    return name


def check(store: app.Store, name: str, seed: int) -> None:
    """Check that the bytes exist, and that the context describes the objects correctly."""
    pieces: list[bytes] = []
    verbs.cat(store, name, None, None, None, lambda data: pieces.append(bytes(data)))
    assert b"".join(pieces) == b"".join(entries_of(seed))
    with store.metadata.read() as txn:
        segment = directories.segment_by_name(txn, name)
        context = entries.find(txn, segment.id).offload
        assert context.complete == (segment.cold.count == 1)


def check_objects(store: app.Store, name: str, seed: int) -> None:
    """Check that Pulsar would read the ledger."""
    with store.metadata.read() as txn:
        segment = directories.segment_by_name(txn, name)
        (chunk,) = chains.chunks(txn, segment.id, Tier.COLD)
        holder = chains.object_of(txn, chunk)
    storage = store.storage_of(holder.location_id)
    index, data = (read_small(storage, key) for key in (holder.index_name, holder.name))
    assert independent.decode_ledger(index, data) == entries_of(seed)


def lives() -> Iterator[tuple[int, float]]:
    chosen = random.Random(11)
    for seed in range(ROUNDS):
        yield seed, chosen.random() * MAX_LIFE_S


@pytest.mark.parametrize("tier", ["store_path", pytest.param("s3_store_path", marks=pytest.mark.s3)])
def test_a_killed_offload_of_ledgers(tier: str, request: pytest.FixtureRequest) -> None:
    path: Path = request.getfixturevalue(tier)
    names: list[str] = []
    for seed, life_s in lives():
        with app.open_store(path) as store:
            names.append(add_ledger(store, seed))
        Victim("offload", path, seed).kill_after(life_s)
        with app.open_store(path) as store:
            check(store, names[seed], seed)
    with app.open_store(path) as store:
        verbs.offload(store, TOPIC)
        check_no_ledger_orphans(store)
        verbs.evict(store, TOPIC)
        for seed, name in enumerate(names):
            check(store, name, seed)
            check_objects(store, name, seed)


def check_no_ledger_orphans(store: app.Store) -> None:
    """As of the objects of ledgers."""
    assert verbs.settle(store) is None
    with store.metadata.read() as txn:
        data = {holder.name for _, holder in txn.scan(OBJECTS) if holder.segment_id}
        expected = data | companions(txn).keys()
        assert len(data) == len(list(below(txn, TOPIC)))
        location_id = txn.store.cold_location_id
    assert {item.name for item in ledger_objects(store.storage_of(location_id))} == expected
