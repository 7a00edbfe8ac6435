"""Planning consolidations: Pravega's layout tables, runs, relocation, and how often a byte is copied."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierfs.base.options.policy import Policy
from tierfs.base.words.types import (
    ByteRange,
    ChunkState,
    Compression,
    LocationId,
    ObjectId,
    PayloadEncoding,
    SegmentId,
    Tier,
)
from tierfs.engine.chunkstore.s3.compose_plan import PartLimits, client_bytes, plan_parts
from tierfs.engine.metadata.layout import PlacedChunk
from tierfs.engine.metadata.records import ChunkRecord, ObjectRecord
from tierfs.tiering.consolidate_plan import (
    ConsolidateAction,
    Eligible,
    JoinLimits,
    RelocateLimits,
    SegmentChunks,
    cuts,
    plan,
)

SEGMENT = SegmentId(7)

HERE, ELSEWHERE = LocationId(1), LocationId(2)

ANY = Eligible(HERE, published_sequence=100, foreign=True)

NO_RELOCATION = RelocateLimits(dead_percent=101, min_bytes=0, max_bytes=1 << 60)

UNLIMITED = JoinLimits(object_bytes=1024, largest_bytes=1024)

MIN, MAX, ROLLING = 10, 20, 30

LIMITED = JoinLimits(object_bytes=ROLLING, largest_bytes=MAX)


def joined(lengths: list[int], limits: JoinLimits) -> list[int]:
    """Lengths of the chunks after every join; chunks longer than the limit end a run."""
    found = SegmentChunks(SEGMENT, ByteRange(0, sum(lengths)), chunks_of(lengths))
    gone = {action.chunks[0].start_offset: action for action in plan(found, ANY, limits, NO_RELOCATION)}
    result, skip_to = [], 0
    for placed in found.chunks:
        start = placed.chunk.start_offset
        if start in gone:
            result.append(gone[start].range.length_bytes)
            skip_to = gone[start].range.end
        elif start >= skip_to:
            result.append(placed.chunk.length)
    return result


def chunks_of(lengths: list[int]) -> tuple[PlacedChunk, ...]:
    found, start = [], 0
    for number, length in enumerate(lengths, 1):
        found.append(placed(number, start, length))
        start += length
    return tuple(found)


def placed(number: int, start: int, length: int, **changes: object) -> PlacedChunk:
    chunk = ChunkRecord(start_offset=start, length=length, object_id=ObjectId(number))
    holder = ObjectRecord(
        id=ObjectId(number),
        tier=Tier.COLD,
        location_id=HERE,
        name=f"o{number}",
        length=length,
        etag="e",
        references=1,
    )
    return PlacedChunk(chunk, replace(holder, **changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("target", "source", "upstream"),
    [
        ([10], [1, 2, 3, 4, 5], [25]),
        ([1, 2, 3, 4, 5], [10], [1, 2, 3, 4, 15]),
        ([1, 2], [3, 4, 5, 6, 7], [1, 27]),
        ([10], [15], [25]),
    ],
)
def test_table_b2_concat_without_limits(target: list[int], source: list[int], upstream: list[int]) -> None:
    """Upstream begins at the target's last chunk, as it defragments on concat only; so the table holds from there
    on. We look at all of the segment, and what is before it joins too."""
    seam = len(target) - 1
    assert target[:seam] + joined([*target[seam:], *source], UNLIMITED) == upstream
    assert joined([*target, *source], UNLIMITED) == [sum(upstream)]


@pytest.mark.parametrize(
    ("lengths", "after"),
    [
        ([1, 21, 21, 21], [1, 21, 21, 21]),
        ([30, 29, 2], [30, 29, 2]),
        ([30, 1, 2, 3, 4], [30, 10]),
        ([10, 1, 1, 1, 3, 1, 1, 3, 1, 3], [25]),
        ([10, 3, 1, 1, 1, 3, 1, 1, 3, 1], [25]),
        ([10, 1, 3, 3, 3, 1, 2, 2], [25]),
        ([10, 5, 5, 5], [25]),
        ([10, 2, 2, 2, 2, 2, 2, 2, 1], [25]),
        ([10, 12, 3], [25]),
        ([10, 13, 2], [25]),
    ],
)
def test_table_b3_limits(lengths: list[int], after: list[int]) -> None:
    assert joined(lengths, LIMITED) == after


@pytest.mark.parametrize(
    ("lengths", "after", "uploaded"),
    [
        ([11, 12], [23], 0),
        ([11, 12, 13], [23, 13], 0),
        ([30, 2, 30, 2, 30, 2, 30], [30, 2, 30, 2, 30, 2, 30], 0),
        ([11, 9, 10], [30], 10),
        ([20, 10, 10], [30, 10], 0),
    ],
)
def test_table_b4_server_side_only(lengths: list[int], after: list[int], uploaded: int) -> None:
    """`uploaded`: bytes through the client where parts must have 10 bytes. A 9 between an 11 and a 10 borrows one."""
    assert joined(lengths, LIMITED) == after
    assert client_bytes_of(lengths, LIMITED) == uploaded


@pytest.mark.parametrize(
    ("lengths", "upstream", "ours", "uploaded"),
    [
        ([10, 20], [10, 20], [30], 0),
        ([11, 12, 5, 13], [23, 5, 13], [28, 13], 0),
    ],
)
def test_table_b4_where_we_differ(lengths: list[int], upstream: list[int], ours: list[int], uploaded: int) -> None:
    """Upstream never appends to a target that is not above the minimum, and stops when a target is above the
    maximum, as it joins one source after another. We make one object of all pieces at once; its last part may be
    short, so that neither moves a byte through the client. docs/design/0008-consolidation.md"""
    assert joined(lengths, LIMITED) == ours != upstream
    assert client_bytes_of(lengths, LIMITED) == uploaded


def client_bytes_of(lengths: list[int], limits: JoinLimits) -> int:
    found = SegmentChunks(SEGMENT, ByteRange(0, sum(lengths)), chunks_of(lengths))
    parts = PartLimits(min_bytes=MIN, max_bytes=1000, upload_bytes=MIN)
    actions = plan(found, ANY, limits, NO_RELOCATION)
    return sum(client_bytes(plan_parts([chunk.length for chunk in action.chunks], parts)) for action in actions)


def test_what_may_not_be_touched_ends_a_run() -> None:
    chunks = list(chunks_of([1] * 16))
    chunks[2] = placed(3, 2, 1, location_id=ELSEWHERE)
    chunks[5] = placed(6, 5, 1, linked_sequence=101)
    chunks[8] = replace(chunks[8], chunk=replace(chunks[8].chunk, state=ChunkState.SUSPECT))
    chunks[11] = replace(chunks[11], object=replace(chunks[11].object, encoding=PayloadEncoding.PULSAR_BLOCK))
    del chunks[14]  # a gap, or a lost extent
    found = SegmentChunks(SEGMENT, ByteRange(0, 16), tuple(chunks))
    assert ranges(plan(found, ANY, UNLIMITED, NO_RELOCATION)) == [(0, 2), (3, 5), (6, 8), (9, 11), (12, 14)]


def test_adopted_objects_are_joined_only_when_asked() -> None:
    chunks = tuple(placed(number + 1, number, 1, foreign=number > 1) for number in range(4))
    found = SegmentChunks(SEGMENT, ByteRange(0, 4), chunks)
    assert ranges(plan(found, ANY, UNLIMITED, NO_RELOCATION)) == [(0, 4)]
    assert ranges(plan(found, replace(ANY, foreign=False), UNLIMITED, NO_RELOCATION)) == [(0, 2)]


def ranges(actions: object) -> list[tuple[int, int]]:
    assert not isinstance(actions, ConsolidateAction)
    return [(action.range.start, action.range.end) for action in actions]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("length", "start", "limits", "relocated"),
    [
        (20, 15, RelocateLimits(80, 16, 1000), False),
        (20, 10, RelocateLimits(80, 16, 1000), False),
        (20, 16, RelocateLimits(80, 16, 1000), True),
        (20, 0, RelocateLimits(80, 16, 1000), False),
        (15, 14, RelocateLimits(80, 16, 1000), False),
        (11, 10, RelocateLimits(80, 1, 10), False),
        (10, 9, RelocateLimits(80, 1, 10), True),
    ],
)
def test_table_b6_relocation(length: int, start: int, limits: RelocateLimits, relocated: bool) -> None:
    found = SegmentChunks(SEGMENT, ByteRange(start, length), chunks_of([length]))
    assert ranges(plan(found, ANY, LIMITED, limits)) == ([(start, length)] if relocated else [])


@pytest.mark.parametrize("changes", [{"references": 2}, {"foreign": True}, {"location_id": ELSEWHERE}])
def test_an_object_that_would_stay_is_not_relocated(changes: dict[str, object]) -> None:
    found = SegmentChunks(SEGMENT, ByteRange(90, 100), (placed(1, 0, 100, **changes),))
    assert ranges(plan(found, ANY, LIMITED, RelocateLimits(80, 1, 1000))) == []


def test_an_object_of_which_little_is_referenced_is_relocated() -> None:
    chunk = replace(placed(1, 0, 100).chunk, length=20, object_offset=40)
    found = SegmentChunks(SEGMENT, ByteRange(0, 20), (PlacedChunk(chunk, placed(1, 0, 100).object),))
    assert ranges(plan(found, ANY, JoinLimits(10, 5), RelocateLimits(80, 1, 1000))) == [(0, 20)]


def test_a_run_of_one_objects_chunks_merges_before_anything_else() -> None:
    one = placed(1, 0, 30, references=3).object
    chunks = [
        PlacedChunk(ChunkRecord(start_offset=at, length=5, object_id=one.id, object_offset=at + 2), one)
        for at in (0, 5, 10)
    ]
    found = SegmentChunks(SEGMENT, ByteRange(0, 17), (*chunks, placed(2, 15, 2)))
    merge, join = plan(found, ANY, UNLIMITED, NO_RELOCATION)
    assert (merge.merges, merge.range) == (True, ByteRange(0, 15))
    assert (join.merges, [chunk.length for chunk in join.chunks]) == (False, [15, 2])


@given(st.lists(st.integers(1, 100), max_size=60), st.integers(10, 200))
def test_what_was_joined_is_not_joined_again(lengths: list[int], object_bytes: int) -> None:
    limits = JoinLimits(object_bytes, (object_bytes - 1) // 2)
    once = joined(lengths, limits)
    assert sum(once) == sum(lengths)
    assert joined(once, limits) == once
    assert all(length <= object_bytes for length in once if length not in lengths)


@given(st.lists(st.integers(1, 40), min_size=1, max_size=400))
def test_a_growing_segment_copies_each_byte_once_per_doubling(lengths: list[int]) -> None:
    """And it never has more than a few small chunks at its end."""
    limits = JoinLimits(object_bytes=1024, largest_bytes=511, fewest=8, doubling=True)
    chain: list[tuple[int, int, int]] = []
    """Length, copies of its bytes so far at most, and the shortest chunk its bytes came in."""
    for length in lengths:
        chain.append((length, 0, length))
        while (after := _consolidated(chain, limits)) != chain:
            chain = after
    assert all(copies <= math.log2(1024 / shortest) for _, copies, shortest in chain)
    assert sum(length <= 511 for length, _, _ in chain) <= 8 * math.log2(1024)


def _consolidated(chain: list[tuple[int, int, int]], limits: JoinLimits) -> list[tuple[int, int, int]]:
    start = max((index + 1 for index, one in enumerate(chain) if one[0] > limits.largest_bytes), default=0)
    found = list(chain)
    for first, end in reversed(list(cuts([one[0] for one in chain[start:]], limits))):
        run = chain[start + first : start + end]
        made = (sum(one[0] for one in run), max(one[1] for one in run) + 1, min(one[2] for one in run))
        found[start + first : start + end] = [made]
    return found


ZSTD = Policy(object_bytes=30, compression=Compression.ZSTD)


def to_compress(found: SegmentChunks, wanted: Policy = ZSTD, join: JoinLimits = LIMITED) -> list[tuple[int, int]]:
    """The ranges that become compressed objects."""
    made = [action for action in plan(found, ANY, join, NO_RELOCATION, wanted) if action.compresses]
    assert not any(action.merges for action in made)
    return ranges(iter(made))


@pytest.mark.parametrize(
    ("lengths", "made"),
    [
        ([5], [(0, 5)]),
        ([29], [(0, 29)]),
        ([300], [(0, 300)]),
        ([29, 2], [(0, 29), (29, 31)]),
        ([20, 10], [(0, 30)]),
        ([20, 11, 19], [(0, 20), (20, 50)]),
        ([1, 300, 1, 1], [(0, 1), (1, 301), (301, 303)]),
    ],
)
def test_plain_chunks_are_compressed_alone_or_as_many_as_fit(lengths: list[int], made: list[tuple[int, int]]) -> None:
    found = SegmentChunks(SEGMENT, ByteRange(0, sum(lengths)), chunks_of(lengths))
    assert to_compress(found) == made
    assert to_compress(found, replace(ZSTD, compression=Compression.OFF)) == []
    assert [action for action in plan(found, ANY, LIMITED, NO_RELOCATION) if action.compresses] == []


@given(st.lists(st.tuples(st.integers(1, 40), st.booleans(), st.booleans()), max_size=40), st.integers(0, 100))
def test_each_plain_chunk_is_compressed_once_and_no_other(pieces: list[tuple[int, bool, bool]], start: int) -> None:
    """Whatever else is joined: no chunk is in two actions."""
    chunks, at = [], 0
    for number, (length, is_plain, is_damaged) in enumerate(pieces, 1):
        encoding = PayloadEncoding.RAW if is_plain else PayloadEncoding.PULSAR_BLOCK
        found = placed(number, at, length, encoding=encoding)
        state = ChunkState.SUSPECT if is_damaged else ChunkState.GOOD
        chunks.append(replace(found, chunk=replace(found.chunk, state=state)))
        at += length
    start = min(start, at)
    cold = SegmentChunks(SEGMENT, ByteRange(start, at), tuple(chunks))
    actions = list(plan(cold, ANY, LIMITED, NO_RELOCATION, ZSTD))
    touched = [chunk.start_offset for action in actions for chunk in action.chunks]
    wanted = [
        each.chunk.start_offset
        for each, (_, is_plain, is_damaged) in zip(chunks, pieces, strict=True)
        if is_plain and not is_damaged and cold.live(each)
    ]
    assert sorted(touched) == wanted
    assert all(action.compresses for action in actions)
    assert all(len(action.chunks) == 1 or action.range.length_bytes <= ZSTD.object_bytes for action in actions)


@pytest.mark.parametrize(
    "changes",
    [
        {"foreign": True},
        {"references": 2},
        {"references": 3, "packed": 3},
        {"encoding": PayloadEncoding.PULSAR_BLOCK},
        {"location_id": ELSEWHERE},
        {"linked_sequence": 101},
    ],
    ids=["adopted", "shared with a clone", "of a pack", "a ledger's", "elsewhere", "not in the journal"],
)
def test_what_is_never_compressed(changes: dict[str, object]) -> None:
    chunks = (placed(1, 0, 10), placed(2, 10, 10, **changes), placed(3, 20, 10))
    found = SegmentChunks(SEGMENT, ByteRange(0, 30), chunks)
    assert to_compress(found) == [(0, 10), (20, 30)]


@pytest.mark.parametrize(("compression", "made"), [("zstd", [(0, 20)]), ("auto", [(0, 10)]), ("off", [])])
def test_auto_leaves_what_was_kept_plain(compression: str, made: list[tuple[int, int]]) -> None:
    found = SegmentChunks(SEGMENT, ByteRange(0, 20), (placed(1, 0, 10), placed(2, 10, 10, kept_plain=True)))
    assert to_compress(found, replace(ZSTD, compression=Compression(compression))) == made


def test_chunks_of_one_object_that_the_segment_has_alone_are_compressed() -> None:
    """As a cut through a chunk leaves them, or a pack of which nothing else is left."""
    one = placed(1, 0, 100, references=2, packed=9).object
    parts = [
        PlacedChunk(ChunkRecord(start_offset=at, length=10, object_id=one.id, object_offset=40 + 3 * at), one)
        for at in (0, 10)
    ]
    assert to_compress(SegmentChunks(SEGMENT, ByteRange(0, 20), tuple(parts))) == [(0, 20)]


def test_neighbours_that_are_compressed_are_not_joined_as_well() -> None:
    found = SegmentChunks(SEGMENT, ByteRange(0, 30), chunks_of([5, 5, 5, 5, 5, 5]))
    (action,) = plan(found, ANY, UNLIMITED, NO_RELOCATION, ZSTD)
    assert (action.compresses, action.range) == (True, ByteRange(0, 30))
