"""The limit of a stream's batch is spread: parallel logs advance side by side, and everything that waits advances."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tierfs.base.words.types import ByteRange, SegmentId
from tierfs.pipeline.reader.line_format import LineFormat, Separator
from tierfs.pipeline.reader.record_ends import ByteEnds, LineEnds
from tierfs.pipeline.reader.stream_batch import stretches
from tierfs.pipeline.reader.stream_plan import Cut, ListedSegment, StreamOffset, advance
from tierfs.pipeline.reader.stream_shares import Limits, Rounds, advance_fairly

START = StreamOffset("s", "lines")
DAY_S, WATERMARK_S = 86_400, 600


@dataclass
class Logs:
    """Logs whose lines begin with their time, in the order of births, read in batches of a limit."""

    data: dict[int, bytes] = field(default_factory=dict)
    facts: dict[int, dict[str, object]] = field(default_factory=dict)
    offset: StreamOffset = START
    rounds: Rounds = field(default_factory=Rounds)
    watermark_s: int = WATERMARK_S
    newest_s: int = -1
    late: int = 0
    looked: int = 0
    read_of: dict[int, int] = field(default_factory=dict)

    def day(self, birth: int, every_s: int, from_s: int = 0, width: int = 12, until_s: int = DAY_S) -> None:
        self.data[birth] = b"".join(b"%0*d\n" % (width, at) for at in range(from_s, until_s, every_s))

    def listed(self) -> list[ListedSegment]:
        return [
            replace(
                ListedSegment(SegmentId(birth), birth, str(birth), True, 0, len(data), len(data)),
                **self.facts.get(birth, {}),  # type: ignore[arg-type]
            )
            for birth, data in self.data.items()
        ]

    def read(self, one: ListedSegment, span: ByteRange) -> bytes:
        self.looked += 1
        return self.data[one.segment_id][span.start : span.end]

    def batch(self, limits: Limits) -> dict[int, bytes]:
        """The next batch's bytes; lines older than the newest of earlier batches by the watermark are late."""
        cutter = LineEnds(LineFormat(Separator()), self.read, {})
        end = advance_fairly(self.offset, self.listed(), cutter, limits, self.rounds)
        found: dict[int, bytes] = {}
        for one in stretches(self.offset, end, self.listed()):
            data = self.data[one.listed.birth][one.start : one.end]
            found[one.listed.birth] = found.get(one.listed.birth, b"") + data
        before_s, self.offset = self.newest_s, StreamOffset.of(end.as_json())
        for birth, data in found.items():
            times = [int(line) for line in data.split()]
            self.late += sum(at < before_s - self.watermark_s for at in times)
            self.newest_s = max(self.newest_s, *times)
            self.read_of[birth] = self.read_of.get(birth, 0) + len(data)
        return found

    def batches(self, limits: Limits) -> Iterator[dict[int, bytes]]:
        while found := self.batch(limits):
            yield found

    def assert_whole(self) -> None:
        assert self.read_of == {birth: len(data) for birth, data in self.data.items() if data}
        assert self.offset.bytes == sum(map(len, self.data.values()))


RATES = {"equal": (240, 240, 240), "unequal": (180, 480, 1440), "other order": (1440, 180, 480)}
LIMITS = [
    *(Limits(size) for size in (1, 13, 14, 38, 39, 40, 100, 1000, 4096, 1 << 20)),
    *(Limits(segments=number) for number in (1, 2, 3, 4)),
    Limits(1000, 1),
]


@pytest.mark.parametrize("rates", RATES.values(), ids=RATES)
@pytest.mark.parametrize("limits", LIMITS, ids=str)
def test_no_line_of_parallel_logs_is_late(limits: Limits, rates: tuple[int, ...]) -> None:
    logs = Logs()
    for birth, every_s in enumerate(rates, 1):
        logs.day(birth, every_s)
    first = logs.batch(limits)
    assert set(first) == {1, 2, 3} or 0 < (limits.size_bytes or 0) < 13, "each has a line in the first batch"
    for found in (first, *logs.batches(limits)):
        assert limits.size_bytes is None or sum(map(len, found.values())) <= limits.size_bytes + 3 * 13
    logs.assert_whole()
    assert logs.late == 0


LINE_BYTES, HOUR_S = 13, 3600
HOURLY = {1: HOUR_S, 2: HOUR_S // 2, 3: HOUR_S // 4}


@pytest.mark.parametrize("unit", ["bytes", "segments"])
def test_no_line_is_late_at_any_limit_from_one_record_up(unit: str) -> None:
    """Without any watermark; each log's rate is another one, and each limit that makes a difference is tried."""
    records = sum(DAY_S // every_s for every_s in HOURLY.values())
    limits = [Limits(number * LINE_BYTES) for number in range(1, records + 2)]
    for limit in limits if unit == "bytes" else map(Limits, [None] * 4, range(1, 5)):
        logs = Logs(watermark_s=0)
        for birth, every_s in HOURLY.items():
            logs.day(birth, every_s)
        for _ in logs.batches(limit):
            pass
        logs.assert_whole()
        assert logs.late == 0, limit


@settings(max_examples=40, deadline=None)
@given(
    rates=st.lists(st.integers(60, 7200), min_size=2, max_size=5),
    limits=st.builds(
        Limits, st.one_of(st.none(), st.integers(1, 30_000)), st.one_of(st.none(), st.integers(1, 5))
    ).filter(lambda limits: limits.exist),
    restarts=st.sets(st.integers(1, 20), max_size=1),
)
def test_no_line_is_later_than_the_longest_time_between_two(
    rates: list[int], limits: Limits, restarts: set[int]
) -> None:
    """Lines are where their time is in the day but for so long; after another process begins, twice so long."""
    logs = Logs(watermark_s=max(rates) * (1 + len(restarts)))
    for birth, every_s in enumerate(rates, 1):
        logs.day(birth, every_s)
    for number, _ in enumerate(logs.batches(limits), 1):
        if number in restarts:
            logs.rounds = Rounds()
    logs.assert_whole()
    assert logs.late == 0


def test_a_stream_that_begins_anew_goes_on_fairly() -> None:
    logs = Logs()
    for birth in (1, 2, 3):
        logs.day(birth, 60)
    for _ in logs.batches(Limits(130)):
        logs.rounds = Rounds()  # another process
    logs.assert_whole()
    assert logs.late == 0


@pytest.mark.parametrize("grows", [1.0, 1.5, 3.0])
def test_a_segment_that_grows_faster_than_the_limit_starves_no_other(grows: float) -> None:
    logs = Logs({1: b"1\n" * 50_000, 2: b"2\n" * 20, 3: b"3\n" * 20})
    for number in range(60):
        logs.batch(Limits(1000))
        logs.data[1] += b"1\n" * int(500 * grows)
        if number == 30:
            logs.data[4] = b"4\n" * 20
    assert [logs.read_of[birth] for birth in (2, 3, 4)] == [40, 40, 40]
    assert logs.read_of[1] > 30_000


def test_more_segments_than_share_a_batch_take_turns() -> None:
    logs = Logs({birth: b"%d\n" % birth * 100 for birth in range(1, 101)})
    for _ in range(40):
        logs.batch(Limits(50))
        for birth in logs.data:
            logs.data[birth] += b"%d\n" % birth
    assert min(logs.read_of.get(birth, 0) for birth in logs.data) > 0


@pytest.mark.parametrize("limits", [Limits(1), Limits(30), Limits(segments=1), Limits(100, 2)], ids=str)
def test_half_written_lines_keep_no_other_from_its_turn(limits: Limits) -> None:
    """More of them than share a batch, and longer together than its limit; and one before others of a sequence."""
    halves = range(1, 41)
    logs = Logs({birth: b"1234" for birth in halves} | {birth: b"12345\n" * 20 for birth in (50, 51)})
    for birth in halves:
        logs.facts[birth] = {"sealed": False, "length": 1000}
    logs.facts[40] |= {"sequence": "m", "place": 1}
    logs.facts[51] = {"sequence": "m", "place": 2}
    for _ in logs.batches(limits):
        pass
    assert logs.read_of == {50: 120, 51: 120}
    for birth in halves:
        logs.data[birth] += b"5\n"
    for _ in logs.batches(limits):
        pass
    logs.assert_whole()


def test_many_small_segments_are_read_whole_and_nothing_is_looked_up() -> None:
    logs = Logs({birth: b"%04d\n" % birth * 20 for birth in range(1, 3001)})
    assert [len(found) for found in logs.batches(Limits(100_000))] == [1008, 1008, 1016]  # 1000, and a line of others
    assert not logs.offset.open
    assert logs.looked <= 3 * 16


def in_time(began_s: int, ended_s: int) -> dict[str, object]:
    return {"began_ms": began_s * 1000, "ended_ms": ended_s * 1000}


@pytest.mark.parametrize("limits", [Limits(1), Limits(segments=1), Limits(1000)], ids=str)
def test_a_clock_that_was_set_back_stops_no_stream(limits: Limits) -> None:
    """The second member of a sequence, by its times, was begun and ended before the first."""
    logs = Logs({birth: b"12345\n" * 20 for birth in (1, 2, 3)})
    logs.facts[1] = in_time(1000, 1000) | {"sequence": "m", "place": 1}
    logs.facts[2] = in_time(700, 900) | {"sequence": "m", "place": 2}
    logs.facts[3] = in_time(1100, 1100)
    for _ in logs.batches(limits):
        pass
    logs.assert_whole()


def test_logs_of_one_day_after_another_are_read_in_their_order() -> None:
    logs = Logs()
    for day in range(4):
        for host in range(3):
            birth = day * 3 + host + 1
            logs.day(birth, 120, from_s=day * DAY_S, width=12, until_s=(day + 1) * DAY_S)
            logs.facts[birth] = in_time(day * DAY_S, (day + 1) * DAY_S - host * 600)
    for _ in logs.batches(Limits(130)):
        pass
    logs.assert_whole()
    assert logs.late == 0


def test_a_segment_that_is_open_holds_up_none() -> None:
    logs = Logs({1: b"1\n" * 1000, 2: b"2\n" * 1000})
    logs.facts = {1: in_time(0, DAY_S) | {"sealed": False}, 2: in_time(2 * DAY_S, 3 * DAY_S)}
    assert set(logs.batch(Limits(100))) == {1, 2}


@pytest.mark.parametrize("places", [(0, 1, 2), (2, 1, 0)])
def test_members_of_a_sequence_are_read_one_after_the_other(places: tuple[int, ...]) -> None:
    logs = Logs({birth: b"%d\n" % birth * 50 for birth in (1, 2, 3, 4)})
    logs.facts = {birth: {"sequence": "topic", "place": place} for birth, place in zip((1, 2, 3), places, strict=True)}
    order = []
    for found in logs.batches(Limits(20)):
        order += sorted(found.keys() - {4}, key=lambda birth: places[birth - 1])
    expected = sorted((1, 2, 3), key=lambda birth: places[birth - 1])
    assert list(dict.fromkeys(order)) == expected
    assert order == sorted(order, key=expected.index)
    logs.assert_whole()


def test_a_half_written_line_holds_up_no_other() -> None:
    logs = Logs({1: b"half a line", 2: b"2\n" * 50, 3: b"3\n" * 50})
    logs.facts = {1: {"sealed": False}}
    for _ in range(100):
        if logs.offset.bytes == 200:
            break
        logs.batch(Limits(10))
    assert logs.offset.bytes == 200
    assert logs.batch(Limits(10)) == {}


def test_a_line_over_the_limit_is_read_alone_and_keeps_no_other() -> None:
    logs = Logs({1: b"1\n" * 50, 2: b"2" * 999 + b"\n" + b"2\n" * 50, 3: b"3\n" * 50})
    alone = [found for found in logs.batches(Limits(20)) if sum(map(len, found.values())) > 20 + 3 * 2]
    assert [{birth: len(data) for birth, data in found.items()} for found in alone] == [{2: 1000}]
    logs.assert_whole()


class Entries(ByteEnds):
    """Entries of given sizes, some of them empty; positions are of entries."""

    def __init__(self, sizes: dict[int, list[int]]) -> None:
        self.sizes = sizes

    def cut(self, listed: ListedSegment, position: int, budget_bytes: int | None, *, crossing: bool) -> Cut:
        at, size_bytes = position, 0
        for size in self.sizes[listed.birth][position : listed.end]:
            limit = budget_bytes if budget_bytes is not None else size_bytes + size + 1
            if size_bytes >= limit or (size_bytes + size > limit and not crossing):
                return Cut(at, size_bytes, all=False)
            at, size_bytes = at + 1, size_bytes + size
        return Cut(at, size_bytes)

    def size_bytes(self, listed: ListedSegment, start: int, end: int) -> int:
        return sum(self.sizes[listed.birth][start:end])


SIZES = st.dictionaries(st.integers(1, 9), st.lists(st.integers(0, 9), max_size=20), max_size=5)


@settings(max_examples=200, deadline=None)
@given(sizes=SIZES, limit=st.integers(1, 30), segments=st.one_of(st.none(), st.integers(1, 4)))
def test_every_entry_is_read_once_at_any_limit(sizes: dict[int, list[int]], limit: int, segments: int | None) -> None:
    listed = [
        ListedSegment(SegmentId(birth), birth, "", True, 0, len(each), len(each)) for birth, each in sizes.items()
    ]
    offset, rounds, cutter = START, Rounds(), Entries(sizes)
    for _ in range(1 + sum(map(len, sizes.values())) + len(sizes)):
        end = advance_fairly(offset, listed, cutter, Limits(limit, segments), rounds)
        if end == offset:
            break
        parts = stretches(offset, end, listed)
        read = sum(cutter.size_bytes(part.listed, part.start, part.end) for part in parts)
        assert read <= limit + 9 * len(sizes)
        offset = end
    everything = advance(START, listed, cutter)
    assert (offset.done, offset.open, offset.bytes) == (everything.done, everything.open, everything.bytes)


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        (Limits(1), 16),
        (Limits(16 * 65536), 16),
        (Limits(17 * 65536), 17),
        (Limits(1 << 40), 256),
        (Limits(1 << 40, 1), 16),
        (Limits(segments=20), 20),
        (Limits(segments=1000), 256),
    ],
)
def test_how_many_share_a_batch(limits: Limits, expected: int) -> None:
    assert limits.at_once == expected
