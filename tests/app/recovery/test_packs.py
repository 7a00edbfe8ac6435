"""Packs in the journal: recovery, checkpoints, replicas, and what a hostile journal says of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine.journal.replaying import empty_copy, view
from tests.engine.journal.test_hostile import apply, chunk, holder, run, segment
from tests.stores import open_test_store
from tierfs.base.options.config import OffloadSettings
from tierfs.base.words.errors import DataLoss
from tierfs.engine.metadata import records_pb2 as pb
from tierfs.engine.metadata.tables import OBJECTS

PACKING = {"chunk_bytes": "1048576", "object_bytes": "160000"}
"""Smaller runs are packed."""


def test_a_checkpoint_names_a_pack_once(tmp_path: Path) -> None:
    """Each of its segments would bring its checksums along: 2 KiB for each file of 4 KiB."""
    with open_test_store(tmp_path / "store", policy=PACKING, settings=OffloadSettings(checkpoint_entries=1)) as store:
        for number in range(20):
            store.append(f"s{number}", bytes(100), seal=True)
        store.offload()
        from tierfs.engine.metadata import changes

        with store.metadata.read() as txn:
            links = [change.cold_link for change in changes.state_changes(txn) if change.HasField("cold_link")]
        assert len(links) == 20
        assert [len(one.objects) for one in links] == [1] + [0] * 19


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
