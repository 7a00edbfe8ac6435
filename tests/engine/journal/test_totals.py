"""Lengths that a bucket claims: their sums are bounded as each of them is, and none of them is walked."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.app.recovery.recovering import recovered
from tests.app.recovery.test_follow import follower, following
from tests.engine.journal.replaying import forge
from tests.stores import TestStore, open_test_store, quiet
from tests.upkeep.check.looking import scrubber
from tierfs.base.bytes.progress import Meter
from tierfs.base.words.errors import DataLoss
from tierfs.base.words.types import AttemptId, ByteRange, ChunkState, SegmentId
from tierfs.engine.chunkstore.protocol import BufferSource
from tierfs.engine.metadata import records_pb2 as pb
from tierfs.engine.metadata.untrusted import MAX_OBJECT_BYTES
from tierfs.tiering.objects import object_name
from tierfs.upkeep.check.scrub.verify import DeepCheck, Verifier

MOST = 2**63 - 1
ID = 1 << 20
"""Of the first record that is made up; above all that the store gave out."""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[TestStore]:
    with open_test_store(tmp_path / "store") as opened:
        opened.cold_work().publish()
        yield opened


def segment(number: int, length: int) -> pb.Change:
    return pb.Change(
        segment=pb.SegmentRecord(version=1, id=number, parent_id=1, name=f"s{number}", inode=number + 1, length=length)
    )


def object_of(number: int) -> str:
    """The name of the object of a segment."""
    return object_name("s", SegmentId(number), ByteRange(0, 1), 1, AttemptId("0" * 32), 0)


def link(number: int, chunk: pb.ChunkRecord, length: int = 0, *runs: pb.ChecksumRun) -> pb.Change:
    held = [
        pb.ObjectRecord(
            version=1,
            id=chunk.object_id,
            tier=1,
            location_id=1,
            name=object_of(number),
            length=length,
            etag="e",
        )
    ]
    for run in runs:
        run.object_id = chunk.object_id
    message = pb.ColdLink(segment_id=number, chunks=[chunk], objects=held if chunk.object_id else [], checksums=runs)
    return pb.Change(cold_link=message)


@pytest.mark.parametrize(
    ("lengths", "accepted"),
    [
        ([MOST], True),
        ([MOST - 1, 1], True),
        ([2**62, 2**62 - 1], True),
        ([2**62, 2**62], False),
        ([MOST, 1], False),
        ([MOST, MOST, MOST], False),
        ([0, MOST, 0], True),
    ],
)
def test_lengths_that_overflow_together_are_refused_by_slot(
    store: TestStore, tmp_path: Path, lengths: list[int], accepted: bool
) -> None:
    with following(store, tmp_path / "replica") as replica:
        name = forge(store, *(segment(ID + 10 * index, length) for index, length in enumerate(lengths)))
        if accepted:
            assert follower(replica).refresh().entries == 1
            with recovered(tmp_path / "again", store.cold):
                return
        with pytest.raises(DataLoss, match=f"^{name}: .*more bytes than possible"):
            follower(replica).refresh()
        with pytest.raises(DataLoss, match=name), recovered(tmp_path / "again", store.cold):
            pass
        with replica.metadata.read() as txn:
            assert txn.sums is not None
            assert txn.sums.bytes == 0


def test_lengths_of_one_slot_count_with_those_of_earlier_ones(store: TestStore, tmp_path: Path) -> None:
    store.append("s", b"12345678")
    store.offload()
    with following(store, tmp_path / "replica") as replica:
        name = forge(store, segment(ID, MOST))
        with pytest.raises(DataLoss, match=name):
            follower(replica).refresh()


@pytest.mark.parametrize("length", [MAX_OBJECT_BYTES + 1, 2**61, 2**64 - 1])
def test_an_object_that_no_server_stores_is_refused(store: TestStore, tmp_path: Path, length: int) -> None:
    chunk = pb.ChunkRecord(version=1, length=8, object_id=ID + 1)
    name = forge(store, segment(ID, 8), link(ID, chunk, length))
    with pytest.raises(DataLoss, match=name), recovered(tmp_path / "again", store.cold):
        pass


RUN = pb.ChecksumRun(version=1, crcs=bytes(4 * 256))
CLAIMS = {
    "without checksums": [(pb.ChunkRecord(version=1, length=MAX_OBJECT_BYTES, object_id=ID + 1), ())],
    "with checksums at both ends": [
        (
            pb.ChunkRecord(version=1, length=MAX_OBJECT_BYTES, object_id=ID + 1),
            (RUN, pb.ChecksumRun(version=1, crcs=bytes(4), start=MAX_OBJECT_BYTES - 2**17)),
        )
    ],
    "lost": [(pb.ChunkRecord(version=1, length=MOST, state=ChunkState.LOST), ())],
    "lost and without checksums": [
        (pb.ChunkRecord(version=1, length=MAX_OBJECT_BYTES, object_id=ID + 1), ()),
        (pb.ChunkRecord(version=1, start_offset=2**60, length=2**60, state=ChunkState.LOST), ()),
    ],
}


@pytest.mark.parametrize("claim", CLAIMS)
def test_claimed_bytes_are_not_walked(store: TestStore, tmp_path: Path, claim: str) -> None:
    end = max(chunk.start_offset + chunk.length for chunk, _ in CLAIMS[claim])
    links = [link(ID, chunk, MAX_OBJECT_BYTES, *runs) for chunk, runs in CLAIMS[claim]]
    forge(store, segment(ID, end), *links)
    store.cold.put(object_of(ID), BufferSource(b"x" * 300_000))
    with following(store, tmp_path / "replica") as replica:
        scrubbing = scrubber(replica)
        found = list(DeepCheck(replica.metadata, scrubbing, Meter(quiet)).run())
        assert bool(found) == (claim != "lost")
        verifier = Verifier(replica.metadata, scrubber(replica), Meter(quiet), marks=False)
        name = f"s{ID}"
        verified = list(verifier.run([(name, replica.segment(name).id, replica.segment(name).range)]))
        assert not any(result.ok for result in verified)


def test_what_a_short_object_lacks_is_not_asked_for(store: TestStore, tmp_path: Path) -> None:
    runs = [pb.ChecksumRun(version=1, crcs=bytes(4 * 256), start=index * 2**25) for index in range(200)]
    length = 200 * 2**25
    forge(
        store, segment(ID, length), link(ID, pb.ChunkRecord(version=1, length=length, object_id=ID + 1), length, *runs)
    )
    store.cold.put(object_of(ID), BufferSource(b"x" * 300_000))
    with following(store, tmp_path / "replica") as replica:
        reads = 0
        asked = store.cold.read_into

        def count(name: str, *given: object, **more: object) -> None:
            nonlocal reads
            reads += name == object_of(ID)
            asked(name, *given, **more)  # type: ignore[arg-type]

        store.cold.read_into = count  # type: ignore[method-assign]
        found = list(DeepCheck(replica.metadata, scrubber(replica), Meter(quiet)).run())
    assert sum(finding.range.length_bytes for finding in found if finding.range) == length
    assert reads < 200, "one for each 4 MiB that are claimed would be 1,600"
