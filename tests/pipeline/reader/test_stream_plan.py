"""Offsets of a stream against a model: random appends, seals, new segments and limits; each record once, in order."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tierfs.base.bytes import joins
from tierfs.base.bytes.joins import Join, Joins
from tierfs.base.words.errors import InvalidRequest
from tierfs.base.words.types import ByteRange, SegmentId
from tierfs.pipeline.reader.line_format import LineFormat, Separator
from tierfs.pipeline.reader.record_ends import LineEnds
from tierfs.pipeline.reader.stream_batch import missing_bytes, stretches
from tierfs.pipeline.reader.stream_losses import reconcile
from tierfs.pipeline.reader.stream_plan import ListedSegment, StreamOffset, advance
from tierfs.pipeline.reader.stream_shares import Limits, Rounds, advance_fairly

STORE = "s"
START = StreamOffset(STORE, "lines")


@dataclass
class World:
    """Segments by id; births are not in the order of ids."""

    data: dict[int, bytes] = field(default_factory=dict)
    births: dict[int, int] = field(default_factory=dict)
    sealed: dict[int, int] = field(default_factory=dict)
    separator: Separator = field(default_factory=Separator)
    ticks: int = 0
    looked: int = 0
    rounds: Rounds = field(default_factory=Rounds)

    def create(self) -> None:
        self.ticks += 1
        segment_id = 1000 - self.ticks
        self.data[segment_id], self.births[segment_id] = b"", self.ticks

    def append(self, index: int, data: bytes) -> None:
        taking = [one for one in self.data if one not in self.sealed]
        if taking:
            self.data[taking[index % len(taking)]] += data

    def seal(self, index: int) -> None:
        taking = [one for one in self.data if one not in self.sealed]
        if taking:
            self.ticks += 1
            self.sealed[taking[index % len(taking)]] = self.ticks

    def listed(self) -> list[ListedSegment]:
        return [
            ListedSegment(SegmentId(one), self.births[one], str(one), one in self.sealed, 0, size, size)
            for one, size in ((one, len(data)) for one, data in self.data.items())
        ]

    def cutter(self) -> LineEnds:
        return LineEnds(LineFormat(self.separator), self.read, {})

    def read(self, one: ListedSegment, span: ByteRange) -> bytes:
        self.looked += span.length_bytes
        return self.data[one.segment_id][span.start : span.end]

    def next(self, start: StreamOffset, limit: int | None) -> StreamOffset:
        offset, lost = reconcile(start, self.listed(), STORE, self.ticks + 1)
        assert (offset, lost) == (start, [])
        if limit is None:
            return advance(start, self.listed(), self.cutter())
        return advance_fairly(start, self.listed(), self.cutter(), Limits(limit), self.rounds)

    def between(self, start: StreamOffset, end: StreamOffset) -> dict[int, bytes]:
        """Return the bytes that a batch reads; all of them exist."""
        found = stretches(start, end, self.listed())
        assert missing_bytes(start, end, found, self.cutter()) == 0
        return {one.listed.segment_id: self.data[one.listed.segment_id][one.start : one.end] for one in found}

    def first_record(self, data: bytes) -> int:
        """Return the length of the first line with its end."""
        pattern = re.escape(self.separator.text) if self.separator.text else b"\r\n|\n|\r"
        found = re.search(pattern, data)
        return found.end() if found else len(data)

    def last_record(self, data: bytes) -> int:
        """Return the length of the last line with its end."""
        pattern = re.escape(self.separator.text) if self.separator.text else b"\r\n|\n|\r"
        ends = [found.end() for found in re.finditer(pattern, data) if found.end() < len(data)]
        return len(data) - max(ends, default=0)

    def whole(self, segment_id: int) -> bytes:
        """Return the bytes of a segment that a complete stream must have read."""
        data = self.data[segment_id]
        return data if segment_id in self.sealed else data[: self.separator.complete_bytes(data, final=False)]

    def ends(self, segment_id: int) -> set[int]:
        """Return the ends of lines, and the beginning of the first."""
        pattern = re.escape(self.separator.text) if self.separator.text else b"\r\n|\n|\r"
        return {0, *(found.end() for found in re.finditer(pattern, self.data[segment_id]))}


@dataclass(frozen=True)
class Do:
    """One thing that happens."""

    what: str
    index: int = 0
    data: bytes = b""
    limit: int | None = None


TEXTS = st.lists(st.sampled_from([b"a", b"bc", b"\n", b"\r", b"\r\n", b"||", b"|"]), max_size=8).map(b"".join)
STEPS = st.one_of(
    st.just(Do("create")),
    st.builds(Do, st.just("append"), st.integers(0, 9), TEXTS),
    st.builds(Do, st.just("seal"), st.integers(0, 9)),
    st.builds(Do, st.just("trigger"), limit=st.one_of(st.none(), st.integers(1, 12))),
)


@settings(max_examples=400, deadline=None)
@given(steps=st.lists(STEPS, max_size=40), separator=st.sampled_from([None, b"\n", b"\r\n", b"||", b"|a"]))
def test_every_line_once(steps: list[Do], separator: bytes | None) -> None:
    world = World(separator=Separator(separator))
    offset, batches, found = START, [], dict[int, bytes]()

    def trigger(limit: int | None) -> bool:
        nonlocal offset
        end = world.next(offset, limit)
        if end == offset:
            return False
        batch = world.between(offset, end)
        if limit is not None:
            sizes = [len(data) for data in batch.values()]
            first = [world.first_record(data) for data in batch.values()]
            last = [world.last_record(data) for data in batch.values()]
            assert sum(sizes) <= limit + sum(last), "more than the record each that crosses its share"
            assert len(sizes) == 1 or max(first, default=0) <= limit, "a longer line is not alone"
        for segment_id, data in batch.items():
            found[segment_id] = found.get(segment_id, b"") + data
        batches.append((offset, end, batch))
        assert end.done >= offset.done
        offset = StreamOffset.of(end.as_json())
        assert offset == end
        return True

    for step in [*steps, Do("trigger")]:
        if step.what == "create":
            world.create()
        elif step.what == "append":
            world.append(step.index, step.data)
        elif step.what == "seal":
            world.seal(step.index)
        else:
            trigger(step.limit)
    while trigger(3):
        pass
    assert {one: data for one, data in found.items() if data} == {
        one: world.whole(one) for one in world.data if world.whole(one)
    }
    assert not any(1000 - birth in world.sealed for birth in offset.open if found), "the offset keeps what is finished"
    for start, end, batch in batches:
        assert all(position in world.ends(1000 - birth) for birth, position in end.open.items()), "a line was cut"
        assert world.between(start, end) == batch, "asked again, a batch is another one"


def listed(
    segment_id: int, length: int, *, sealed: bool = False, start: int = 0, birth: int = 0, unsealed_id: int = 0
) -> ListedSegment:
    one = ListedSegment(SegmentId(segment_id), birth or segment_id, f"n{segment_id}", sealed, start, length, length)
    return replace(one, unsealed_id=unsealed_id)


@pytest.mark.parametrize(
    ("now", "text", "resumed"),
    [
        ([], "segment number 1, read up to 10, was deleted", {}),
        ([listed(1, 20, start=12)], "segment n1 now starts at 12, but was read up to 10", {1: 12}),
        ([listed(1, 7)], "segment n1 now ends at 7, but was read up to 10", {1: 7}),
        (
            [replace(listed(1, 15), recoveries=(5, 6, 8, 9))],
            "segment n1 was read up to 10, and recovered up to 9: the bytes after it were lost",
            {1: 9},
        ),
        ([listed(1, 10), listed(2, 9)], "segment n2 was unsealed after its end was read", {1: 10}),
        (
            [listed(1, 10), replace(listed(2, 6, sealed=True), recoveries=(8, 6))],
            "segment n2 was read to its end, and recovered up to 6: bytes of it were lost",
            {1: 10},
        ),
        # Its time does not count: a clock may be set back, and a recovered store knows another one.
        (
            [listed(1, 10), listed(2, 9, sealed=True, unsealed_id=8)],
            "segment n2 was unsealed, or restored, and sealed again",
            {1: 10},
        ),
        (
            [replace(listed(1, 15), joins=(Join(10, 15, SegmentId(2), 2, 2, 0, "n2", unsealed_id=8),))],
            "segment n2 was unsealed after its end was read, and concatenated to n1",
            {1: 10},
        ),
        (
            [listed(1, 10), replace(listed(2, 9, sealed=True), recoveries=(5, 3, 8, 6))],
            "segment n2 was read to its end, and recovered up to 6: bytes of it were lost",
            {1: 10},
        ),
        (
            [replace(listed(1, 15), joins=(Join(10, 15, SegmentId(2), 2, 2, 0, "n2", recoveries=(8, 4)),))],
            "segment n2 was read to its end, recovered up to 4, and concatenated to n1",
            {1: 10},
        ),
        (
            [replace(listed(3, 25), joins=(Join(10, 25, SegmentId(1), 1, 1, 0, "n1", recoveries=(5, 2, 8, 4)),))],
            "segment n1 was read up to 10, and recovered up to 4",
            {1: 4},
        ),
    ],
)
def test_a_loss_is_told_by_its_kind(now: list[ListedSegment], text: str, resumed: dict[int, int]) -> None:
    start = replace(START, done=2, open={SegmentId(1): 10}, unsealed=7, recovered=7)
    offset, lost = reconcile(start, now, STORE, 3)
    assert len(lost) == 1
    assert lost[0].startswith(text)
    assert offset.open == resumed


def test_what_is_no_loss() -> None:
    """A finished segment may be deleted, cut and concatenated to another; an open one may grow, and be sealed."""
    joins = (
        Join(5, 10, SegmentId(2), 2, 2, 0, "n2", unsealed_id=8, recoveries=(9, 1)),
        Join(10, 30, SegmentId(4), 4, 4, 0, "n4", recoveries=(2, 1, 3, 2)),
    )
    start = replace(START, done=4, open={SegmentId(1): 10}, unsealed=7, recovered=3)
    grown = replace(listed(1, 30, sealed=True, unsealed_id=9), joins=joins, recoveries=(3, 4, 6, 10))
    finished = replace(listed(4, 30, sealed=True), joins=joins[:1])
    cut = replace(listed(3, 50, sealed=True, start=40, unsealed_id=7), recoveries=(3, 50))
    now = [grown, finished, cut, listed(8, 5)]
    assert reconcile(start, now, STORE, 9) == (start, [])


def test_another_store_and_an_older_one() -> None:
    start = replace(START, done=4, open={SegmentId(1): 10}, bytes=70)
    offset, lost = reconcile(start, [], "t", 9)
    assert (offset, len(lost)) == (StreamOffset("t", "lines", bytes=70), 1)
    offset, lost = reconcile(start, [listed(1, 10)], STORE, 4)
    assert (offset.done, len(lost)) == (3, 1)


def test_a_line_over_the_limit() -> None:
    world = World()
    world.create()
    world.append(0, b"x" * 200_000)
    ends = LineEnds(LineFormat(Separator(), max_line_bytes=100_000), world.read, {})
    for limit in (None, 10):
        with pytest.raises(InvalidRequest, match="999: a line at or after byte 0 has more than 100000 bytes"):
            advance_fairly(START, world.listed(), ends, Limits(limit), Rounds())
    assert world.looked < 700_000


@pytest.mark.parametrize("over", [0, 1])
@pytest.mark.parametrize(("separator", "begun"), [(None, b""), (None, b"\r"), (b"\r\n", b"\r"), (b"||", b"|")])
def test_a_line_at_the_limit_waits_for_the_rest_of_its_end(separator: bytes | None, begun: bytes, over: int) -> None:
    world = World(separator=Separator(separator))
    world.create()
    world.append(0, b"x" * (100 + over) + begun)
    ends = LineEnds(LineFormat(world.separator, max_line_bytes=100), world.read, {})
    if over:
        with pytest.raises(InvalidRequest, match="999: a line at or after byte 0 has more than 100 bytes"):
            advance(START, world.listed(), ends)
    else:
        assert advance(START, world.listed(), ends).bytes == 0


def test_little_is_read_to_find_an_end() -> None:
    world = World()
    world.create()
    world.append(0, b"0123456789abcde\n" * 1_000_000 + b"half")
    ends = world.cutter()
    offset = advance(START, world.listed(), ends)
    assert offset.bytes == 16_000_000
    looked = world.looked
    assert looked <= 64 * 1024
    assert advance(offset, world.listed(), ends) == offset
    assert world.looked == looked, "a half written line is read once"


@pytest.mark.parametrize(
    "found", [{}, {"v": 1}, {"v": 2}, {**START.as_json(), "open": {"x": 1}}, {**START.as_json(), "done": -1}]
)
def test_offsets_that_cannot_be_read(found: dict[str, object]) -> None:
    with pytest.raises(InvalidRequest):
        StreamOffset.of(found)


def test_a_checkpoint_of_another_read() -> None:
    with pytest.raises(InvalidRequest, match="reads lines, but this stream reads bytes"):
        START.require_read("bytes")


@pytest.mark.parametrize("count", [0, 1, joins.MAX_JOINS - 1, joins.MAX_JOINS, joins.MAX_JOINS + 1, 200])
def test_joins_are_bounded(count: int) -> None:
    made = [Join(at, at + 1, SegmentId(at + 5), at + 5, at + 5, 0, f"s{at}") for at in range(count)]
    kept = Joins.of(made)
    assert kept.is_sound
    assert len(kept.names) == min(count, joins.MAX_JOINS)
    assert sum(join.end - join.start for join in kept) == count
    assert list(Joins.of(kept)) == list(kept)
