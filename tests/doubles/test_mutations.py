"""Mutations: the same for a seed, each another than the original now and then, and encodable."""

from __future__ import annotations

from tests.doubles.mutations import edits, mutations
from tierfs.metadata import records_pb2 as pb

SEGMENT = pb.SegmentRecord(version=1, id=7, name="s", length=9, local=pb.TierState(count=1, bytes=9))
LINK = pb.ColdLink(segment_id=7, chunks=[pb.ChunkRecord(start_offset=0, length=9, object_id=3)])
POLICY = pb.PolicyRecord(target_id=7, settings={"chunk_bytes": "4"})
ENTRY = pb.JournalEntry(slot=1, changes=[pb.Change(segment=SEGMENT), pb.Change(cold_link=LINK)])


def test_a_seed_gives_the_same_mutations_and_a_smaller_count_the_first_of_them() -> None:
    data = bytes(range(200))
    assert list(mutations(data, 5, 20)) == list(mutations(data, 5, 100))[:20]
    assert list(mutations(data, 5, 20)) != list(mutations(data, 6, 20))
    first = [edited.SerializeToString(deterministic=True) for edited in edits(ENTRY, 5, 20)]
    assert first == [edited.SerializeToString(deterministic=True) for edited in edits(ENTRY, 5, 100)][:20]


def test_even_nothing_and_a_single_byte_are_mutated() -> None:
    assert len({data for whole in (b"", b"x") for data in mutations(whole, 1, 200)}) > 50


def test_edits_reach_every_depth_and_bring_messages_of_another_one() -> None:
    stray = pb.Change(policy=POLICY)
    edited = list(edits(ENTRY, 1, 3000, also=(stray,)))
    kinds = {change.WhichOneof("body") for entry in edited for change in entry.changes}
    assert "policy" in kinds
    assert {chunk.length for entry in edited for change in entry.changes for chunk in change.cold_link.chunks} >= {
        0,
        2**64 - 1,
        8,
        10,
    }
    assert any("precious" in change.segment.name for entry in edited for change in entry.changes)
    assert {len(entry.changes) for entry in edited} >= {1, 2, 3}
    assert ENTRY.changes[0].segment == SEGMENT, "the original stays as it is"
