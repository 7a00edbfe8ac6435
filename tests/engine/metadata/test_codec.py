"""Records on disk: golden bytes, unknown fields that survive, versions and damage that are refused."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierfs.base.bytes.byte_times import ByteTimes
from tierfs.base.words.errors import DataLoss
from tierfs.base.words.types import DirectoryId, Inode, LocationId, ObjectId, SegmentId, SegmentStatus, Tier
from tierfs.engine.metadata import chain
from tierfs.engine.metadata import records_pb2 as pb
from tierfs.engine.metadata.append_key_record import AppendKeyRecord
from tierfs.engine.metadata.followed_range import FollowedRange
from tierfs.engine.metadata.records import ChunkRecord, ObjectRecord, SegmentRecord, TierState
from tierfs.engine.metadata.tables import APPEND_KEYS, CHUNKS, FOLLOWED, OBJECTS, SEGMENTS

SEGMENT = SegmentRecord(
    id=SegmentId(7),
    parent_id=DirectoryId(1),
    name="web",
    inode=Inode(8),
    status=SegmentStatus.SEALED,
    length=12,
    writer_epoch=2,
    generation=3,
    local=TierState(first_chunk=4, last_chunk=8, count=2, bytes=8),
    cold=TierState(first_chunk=0, last_chunk=0, count=1, bytes=12),
    created_ms=1000,
    modified_ms=2000,
    changed_ms=3000,
    sealed_ms=3000,
)

CHUNK = ChunkRecord(start_offset=4, length=4, next=8, object_id=ObjectId(9))

OBJECT = ObjectRecord(
    id=ObjectId(9), tier=Tier.COLD, location_id=LocationId(1), name="n", length=12, etag="e", references=1, crc32c=5
)

APPEND_KEY = AppendKeyRecord(segment_id=SegmentId(7), start=4, end=12, crc32c=5, seal=True, committed_ms=2000)

FOLLOWED_RANGE = FollowedRange(
    path=b"/l", device=3, inode=4, file_start=1, file_end=12, segment_start=20, head_length=8, head_crc32c=5, gap="g"
)

GOLDEN = {
    "segment": (
        SEGMENTS,
        SEGMENT,
        "080110071801220377656228083801500c580260036a08080410081802200872041801200c78e8078001d00f8801b8179001b817",
    ),
    "chunk": (CHUNKS, CHUNK, "08011004180420082809"),
    "append key": (APPEND_KEYS, APPEND_KEY, "080110071804200c2d05000000300138d00f"),
    "followed range": (FOLLOWED, FOLLOWED_RANGE, "080112022f6c180320042801300c381440084d05000000720167"),
    "object": (OBJECTS, OBJECT, "08011009180120012a016e300c3a016548015505000000"),
    "object with times": (
        OBJECTS,
        replace(OBJECT, times=ByteTimes(ends=(4, 12), first_ms=(0, 1000), written_ms=(900, 2000))),
        "08011009180120012a016e300c3a016548015505000000da050f0a02040c120300e8071a048407d00f",
    ),
}


@pytest.mark.parametrize("kind", GOLDEN)
def test_records_have_their_golden_bytes(kind: str) -> None:
    table, record, golden = GOLDEN[kind]
    assert table.codec.encode(record).hex() == golden
    assert table.codec.decode(bytes.fromhex(golden)) == record


def test_fields_of_a_newer_version_survive_a_rewrite() -> None:
    unknown = b"\xfa\x3f\x05hello"  # field 1023, a string
    stored = SEGMENTS.codec.encode(SEGMENT) + unknown
    changed = replace(SEGMENTS.codec.decode(stored), length=20)
    rewritten = SEGMENTS.codec.encode(changed)
    assert unknown in rewritten
    assert SEGMENTS.codec.decode(rewritten).length == 20


def test_a_nested_record_can_shrink_to_nothing() -> None:
    stored = SEGMENTS.codec.encode(SEGMENT)
    emptied = replace(SEGMENTS.codec.decode(stored), local=TierState())
    assert SEGMENTS.codec.decode(SEGMENTS.codec.encode(emptied)).local == TierState()


def test_an_unknown_crc_is_not_zero() -> None:
    unknown = OBJECTS.codec.decode(OBJECTS.codec.encode(replace(OBJECT, crc32c=None)))
    zero = OBJECTS.codec.decode(OBJECTS.codec.encode(replace(OBJECT, crc32c=0)))
    assert (unknown.crc32c, zero.crc32c) == (None, 0)


def test_damage_and_newer_versions_are_refused() -> None:
    with pytest.raises(DataLoss, match="cannot be decoded"):
        SEGMENTS.codec.decode(b"\xff\xff\xff")
    with pytest.raises(DataLoss, match="format version 9"):
        CHUNKS.codec.decode(pb.ChunkRecord(version=9, length=1, object_id=1).SerializeToString())
    with pytest.raises(DataLoss, match="SegmentStatus 77"):
        SEGMENTS.codec.decode(pb.SegmentRecord(version=1, status=77).SerializeToString())


@pytest.mark.parametrize(
    "broken",
    [
        replace(SEGMENT, start_offset=13),
        replace(SEGMENT, local=TierState(bytes=1)),
        replace(SEGMENT, active=True),
        replace(CHUNK, length=0),
        replace(CHUNK, next=5),
        replace(CHUNK, object_id=0),
        replace(OBJECT, etag=""),
    ],
    ids=lambda record: type(record).__name__,
)
def test_broken_invariants_are_never_written(broken: SegmentRecord | ChunkRecord | ObjectRecord) -> None:
    tables = {SegmentRecord: SEGMENTS, ChunkRecord: CHUNKS, ObjectRecord: OBJECTS}
    with pytest.raises(DataLoss, match="metadata is damaged"):
        tables[type(broken)].codec.encode(broken)  # type: ignore[arg-type]


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
