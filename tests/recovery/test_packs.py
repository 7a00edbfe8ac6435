"""Packs in the journal: recovery, checkpoints, replicas, and what a hostile journal says of them."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.journal.replaying import check_store, empty_copy, view
from tests.journal.test_hostile import apply, chunk, holder, run, segment
from tests.recovery.recovering import recovered
from tests.recovery.test_follow import follower, following, shown
from tests.stores import TestStore, open_test_store
from tierfs.config import OffloadSettings
from tierfs.errors import DataLoss
from tierfs.metadata import records_pb2 as pb
from tierfs.metadata.records import ObjectRecord
from tierfs.metadata.tables import OBJECTS
from tierfs.types import Tier

PACKING = {"chunk_bytes": "1048576", "object_bytes": "160000"}
"""Smaller runs are packed."""


def grow(store: TestStore, seed: int) -> dict[str, bytes]:
    """Segments that come, grow, shrink, move and go; what is left of them is cold."""
    chance, data = random.Random(seed), dict[str, bytes]()
    for turn in range(4):
        for number in range(10):
            name = f"d{number % 2}/s{number}"
            part = chance.randbytes(chance.randint(1, 3000))
            store.append(name, part)
            data[name] = data.get(name, b"") + part
        store.offload()
        if turn == 1:
            store.engine.delete("d0/s4", recursive=False, cold_due_ms=0)
            del data["d0/s4"]
            store.engine.truncate("d1/s5", len(data["d1/s5"]) // 2, cold_due_ms=0)
            store.offload()
    store.engine.seal("d1/s7")
    store.offload()
    store.engine.concat("d0/s2", "d1/s7")
    data["d0/s2"] += data.pop("d1/s7")
    store.offload()
    return data


def readable(store: TestStore, name: str) -> bytes:
    """Return the readable bytes of a segment, from the cold tier alone."""
    return store.read(name, Tier.COLD)[store.segment(name).start_offset :]


def cold_objects(store: TestStore) -> list[ObjectRecord]:
    with store.metadata.read() as txn:
        return [one for _, one in txn.scan(OBJECTS) if one.tier is Tier.COLD]


@pytest.mark.parametrize("checkpoint_entries", [1, 3, 1000])
def test_all_comes_back_from_the_journal(tmp_path: Path, checkpoint_entries: int) -> None:
    settings = OffloadSettings(checkpoint_entries=checkpoint_entries)
    with open_test_store(tmp_path / "store", policy=PACKING, settings=settings) as store:
        data = grow(store, 1)
        cut = {name: content[store.segment(name).start_offset :] for name, content in data.items()}
        before = {(one.name, one.references, one.packed) for one in cold_objects(store)}
        assert any(one.packed > 1 for one in cold_objects(store))
        with recovered(tmp_path / "new", store.cold) as new:
            for name, content in cut.items():
                assert readable(new.store, name) == content
            assert not any(one.cut_bytes or one.lost for one in new.losses.values())
            assert {(one.name, one.references, one.packed) for one in cold_objects(new.store)} == before


def test_a_checkpoint_names_a_pack_once(tmp_path: Path) -> None:
    """Each of its segments would bring its checksums along: 2 KiB for each file of 4 KiB."""
    with open_test_store(tmp_path / "store", policy=PACKING, settings=OffloadSettings(checkpoint_entries=1)) as store:
        for number in range(20):
            store.append(f"s{number}", bytes(100), seal=True)
        store.offload()
        from tierfs.metadata import changes

        with store.metadata.read() as txn:
            links = [change.cold_link for change in changes.state_changes(txn) if change.HasField("cold_link")]
        assert len(links) == 20
        assert [len(one.objects) for one in links] == [1] + [0] * 19


@pytest.mark.parametrize("seed", range(2))
def test_a_replica_follows(tmp_path: Path, seed: int) -> None:
    with open_test_store(tmp_path / "owner", policy=PACKING) as owner:
        owner.cold_work().publish()
        with following(owner, tmp_path / "replica") as replica:
            data = grow(owner, seed)
            follower(replica).refresh()
            for name, content in data.items():
                assert readable(replica, name) == content[owner.segment(name).start_offset :]
            with replica.metadata.read() as txn:
                check_store(txn)
            assert shown(replica).keys() == data.keys()


def pack_link(*links: pb.ColdLink, **fields: object) -> pb.Change:
    record = holder(name=f"packs/{20:020d}-e1-{'a' * 32}-c00000000", **fields)
    segments = [segment(one.segment_id, f"s{one.segment_id}").segment for one in links]
    return pb.Change(pack_link=pb.PackLink(object=record, checksums=[run()], segments=segments, links=links))


def link(number: int, *chunks: pb.ChunkRecord) -> pb.ColdLink:
    return pb.ColdLink(segment_id=number, chunks=chunks)


def test_a_pack_link_twice_counts_once(tmp_path: Path) -> None:
    change = pack_link(link(10, chunk(0, 4)), link(30, chunk(0, 4, object_offset=4)))
    with empty_copy(tmp_path / "copy", "5" * 32) as metadata:
        apply(metadata, change)
        with metadata.read() as txn:
            once = view(txn)
        apply(metadata, change)
        with metadata.read() as txn:
            assert view(txn) == once
            (found,) = [one for _, one in txn.scan(OBJECTS)]
            assert found.references == 2


@pytest.mark.parametrize(
    "change",
    [
        pack_link(link(10, chunk(0, 4)), link(30, chunk(0, 5, object_offset=4))),
        pack_link(link(10, chunk(0, 4)), link(30, chunk(0, 4, number=21))),
        pack_link(link(10, chunk(0, 4)), link(10, chunk(2, 4, object_offset=4))),
        pack_link(link(10)),
        pack_link(link(10, chunk(0, 4)), location_id=7),
        pb.Change(pack_link=pb.PackLink(object=holder(), links=[link(10, chunk(0, 4))])),
        pb.Change(pack_link=pb.PackLink()),
    ],
)
def test_what_cannot_be_is_refused(tmp_path: Path, change: pb.Change) -> None:
    with empty_copy(tmp_path / "copy", "5" * 32) as metadata, pytest.raises(DataLoss):
        apply(metadata, change)
