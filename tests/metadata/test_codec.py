"""Records on disk: golden bytes, unknown fields that survive, versions and damage that are refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tierfs.errors import DataLoss
from tierfs.metadata import records_pb2 as pb
from tierfs.metadata.records import ChunkRecord, ObjectRecord, SegmentRecord, TierState
from tierfs.metadata.tables import CHUNKS, OBJECTS, SEGMENTS
from tierfs.types import DirectoryId, Inode, LocationId, ObjectId, SegmentId, SegmentStatus, Tier

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

GOLDEN = {
    "segment": (
        SEGMENTS,
        SEGMENT,
        "080110071801220377656228083801500c580260036a08080410081802200872041801200c78e8078001d00f8801b8179001b817",
    ),
    "chunk": (CHUNKS, CHUNK, "08011004180420082809"),
    "object": (OBJECTS, OBJECT, "08011009180120012a016e300c3a016548015505000000"),
}


@pytest.mark.parametrize("kind", GOLDEN)
def test_golden_bytes(kind: str) -> None:
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
