"""The linked list: every edit against a model that is a sorted list."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierfs.errors import DataLoss
from tierfs.metadata import chain
from tierfs.metadata.records import ChunkRecord, TierState
from tierfs.types import ObjectId


def chunk(start: int, length: int, object_id: int = 0, object_offset: int = 0) -> ChunkRecord:
    return ChunkRecord(
        start_offset=start, length=length, object_id=ObjectId(object_id or start + 1), object_offset=object_offset
    )


class Chain:
    """A chain in memory, edited only through chain.py."""

    def __init__(self) -> None:
        self.state = TierState()
        self.records: dict[int, ChunkRecord] = {}

    def apply(self, edit: chain.ChainEdit) -> None:
        for record in edit.put:
            record.check()
            self.records[record.start_offset] = record
        for start in edit.remove:
            del self.records[start]
        self.state = edit.state
        self.check()

    def insert(self, new: ChunkRecord) -> chain.ChainEdit:
        before = [key for key in self.records if key <= new.start_offset]
        behind = [key for key in self.records if key >= new.start_offset]
        edit = chain.insert(
            self.state,
            new,
            previous=self.records[max(before)] if before else None,
            following=self.records[min(behind)] if behind else None,
        )
        self.apply(edit)
        return edit

    def remove(self, starts: list[int]) -> None:
        before = [key for key in self.records if key < starts[0]]
        behind = [key for key in self.records if key > starts[-1]]
        self.apply(
            chain.remove(
                self.state,
                [self.records[start] for start in starts],
                previous=self.records[max(before)] if before else None,
                following=self.records[min(behind)] if behind else None,
            )
        )

    def check(self) -> None:
        found = [self.records[key] for key in sorted(self.records)]
        assert self.state.count == len(found)
        assert self.state.bytes == sum(record.length for record in found)
        if found:
            assert (self.state.first_chunk, self.state.last_chunk) == (found[0].start_offset, found[-1].start_offset)
            assert found[-1].next == 0
        for one, other in pairwise(found):
            assert one.next == other.start_offset


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(0, 3)), min_size=1, max_size=12), st.data())
def test_inserts_in_any_order_and_removals_keep_the_list_sound(
    gaps: list[tuple[int, int]], data: st.DataObject
) -> None:
    position, chunks = 0, []
    for length, gap in gaps:
        position += gap
        chunks.append(chunk(position, length))
        position += length
    tested = Chain()
    for new in data.draw(st.permutations(chunks)):
        tested.insert(new)
    while tested.records:
        starts = sorted(tested.records)
        first = data.draw(st.integers(0, len(starts) - 1))
        last = data.draw(st.integers(first, len(starts) - 1))
        tested.remove(starts[first : last + 1])
    assert tested.state == TierState()


def test_a_chunk_that_continues_its_object_merges() -> None:
    tested = Chain()
    tested.insert(chunk(0, 4, object_id=7))
    edit = tested.insert(chunk(4, 4, object_id=7, object_offset=4))
    assert edit.merged
    assert [record.length for record in tested.records.values()] == [8]


def test_overlaps_are_damage() -> None:
    tested = Chain()
    tested.insert(chunk(0, 4))
    with pytest.raises(DataLoss, match="overlap"):
        tested.insert(chunk(3, 4))
    with pytest.raises(DataLoss, match="overlap"):
        tested.insert(chunk(0, 4))


def test_only_the_last_chunk_grows() -> None:
    tested = Chain()
    tested.insert(chunk(0, 4))
    tested.apply(chain.grow_last(tested.state, tested.records[0], 3))
    assert tested.state.bytes == 7
    tested.insert(chunk(7, 1))
    with pytest.raises(DataLoss, match="not the last"):
        chain.grow_last(tested.state, tested.records[0], 1)
