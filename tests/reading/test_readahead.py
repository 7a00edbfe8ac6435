"""Read-ahead as arithmetic: sessions, windows and shares, without threads, clocks or bytes."""

from __future__ import annotations

import itertools
import random

import pytest

from tierfs.base.system.metrics import NullMetrics
from tierfs.base.words.types import CRC_BLOCK_BYTES, MIB, ByteRange, LocationId
from tierfs.engine.chunkstore.link import Link, Links
from tierfs.engine.chunkstore.memory import MemoryStorage
from tierfs.engine.chunkstore.resilient import ResilientStorage
from tierfs.reading.readahead import MOST_SPANS_AHEAD, FairShare, ReadSession, Sessions, Share

BUDGET_BYTES = 256 * MIB
MAX_WINDOW_BYTES = 32 * MIB
FAR_WINDOW_BYTES = 128 * MIB
STREAMS = 4
BLOCK = CRC_BLOCK_BYTES
GIB = 1024 * MIB
FAR_S = 0.1
"""Time to a first byte."""

ALONE = Share(MAX_WINDOW_BYTES, STREAMS)


class Clock:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now_s = 0.0


class File:
    """One segment that is read, with the read-ahead that follows."""

    def __init__(
        self,
        length_bytes: int = GIB,
        shares: FairShare | None = None,
        clock: Clock | None = None,
        shrink: float = 1.0,
    ) -> None:
        self.length_bytes = length_bytes
        self.shrink = shrink
        self.shares = shares or FairShare(BUDGET_BYTES, MAX_WINDOW_BYTES, Links(STREAMS))
        self.clock = clock or Clock()
        self.sessions = Sessions(self.shares)
        self.plans: list[ByteRange] = []

    def read(self, offset: int, size_bytes: int = BLOCK) -> ReadSession:
        """One read; returns the session it belongs to."""
        wanted = ByteRange(offset, min(offset + size_bytes, self.length_bytes))
        session = self.sessions.of(wanted, 0)
        if not session.proven:
            session.note(wanted)
            return session
        share = self.shares.of(session, self.clock.now_s, self.shrink)
        plan = session.plan(wanted, share, self.length_bytes)
        if plan is not None:
            self.plans.append(plan)
        return session

    def read_on(self, start: int, end: int, size_bytes: int = BLOCK) -> ReadSession:
        """Reads one after the other; returns the session of the last one."""
        for offset in range(start, end, size_bytes):
            session = self.read(offset, min(size_bytes, end - offset))
        return session

    @property
    def proven(self) -> int:
        """Number of proven sessions."""
        return len(list(self.sessions))


def test_a_session_is_proven_at_the_beginning_of_the_file_and_elsewhere_by_reading_on() -> None:
    file = File()
    assert file.read(0).proven
    assert file.plans == [ByteRange(0, MIB)]
    file.plans.clear()
    session = file.read(10 * MIB)
    assert file.read_on(10 * MIB + BLOCK, 11 * MIB) is session
    assert not session.proven, "1 MiB may be one large read, cut by the kernel"
    assert file.read(11 * MIB) is session
    assert session.proven
    assert file.plans[0].start == 11 * MIB, "nothing is asked for twice"


def test_the_window_doubles_up_to_the_share() -> None:
    file = File()
    windows = []
    session = file.read(0)
    for offset in range(BLOCK, 512 * MIB, BLOCK):
        windows.append(session.window_bytes)
        assert file.read(offset) is session
        assert session.ahead - offset <= MAX_WINDOW_BYTES + session.range_bytes // 2
    assert [window for window, _ in itertools.groupby(windows)] == [2**power * MIB for power in range(6)]


@pytest.mark.parametrize("size_bytes", [4096, BLOCK, 300_001, MIB])
@pytest.mark.parametrize("length_bytes", [1, 3 * MIB, 50 * MIB + 12_345])
def test_plans_cover_the_file_once_in_whole_ranges(size_bytes: int, length_bytes: int) -> None:
    file = File(length_bytes)
    at = 0
    for offset in range(0, length_bytes, size_bytes):
        file.plans.clear()
        session = file.read(offset, size_bytes)
        assert session.range_bytes.bit_count() == 1
        assert MIB <= session.range_bytes <= 16 * MIB
        for plan in file.plans:
            assert plan.start == at, "neither a gap nor a second time"
            assert plan.end == length_bytes or plan.length_bytes % session.range_bytes == 0
            at = plan.end
        assert at >= min(offset + size_bytes, length_bytes), "what is wanted now was asked for"
    assert at == length_bytes


def far_links(streams: int) -> Links:
    """Links of which one takes so many streams."""
    link = Link()
    link.answered(FAR_S)
    links = Links(streams)
    links.add(LocationId(1), ResilientStorage(MemoryStorage(), metrics=NullMetrics(), link=link))
    assert links.streams == streams, "a far link takes more"
    return links


def test_a_window_of_many_spans_is_filled_up_once_half_of_them_are_passed() -> None:
    file = File()
    session = file.read_on(0, 4 * MIB)
    begins = session.position
    session.ends_ahead.extend(range(begins + 1, begins + 1 + MOST_SPANS_AHEAD))
    planned = len(file.plans)
    session.passed(begins + MOST_SPANS_AHEAD // 2 - 1)
    file.read_on(begins, session.ahead)
    assert len(file.plans) == planned
    session.passed(begins + MOST_SPANS_AHEAD // 2)
    file.read(session.position)
    assert len(file.plans) == planned + 1
    session.passed(begins + MOST_SPANS_AHEAD)
    assert not session.ends_ahead


def test_far_from_the_server_a_session_elsewhere_is_proven_by_its_second_request() -> None:
    file, other = (File(shares=FairShare(BUDGET_BYTES, FAR_WINDOW_BYTES, far_links(16))) for _ in range(2))
    assert not file.read(10 * MIB, BLOCK // 2).proven
    assert file.read(10 * MIB + BLOCK // 2).proven
    assert file.plans == [ByteRange(10 * MIB + BLOCK // 2, 11 * MIB + BLOCK // 2)]
    other.read(10 * MIB, MIB)
    session = other.read(11 * MIB, BLOCK // 2)
    assert (session.proven, session.window_bytes) == (True, MIB), "one large read does not open its window further"
    assert other.read(11 * MIB + BLOCK // 2, 2 * BLOCK).window_bytes > MIB


def test_far_from_the_server_a_window_opens_in_three_steps() -> None:
    """Each size is paid for with a wait."""
    file = File(shares=FairShare(BUDGET_BYTES, FAR_WINDOW_BYTES, far_links(16)))
    windows = []
    for offset in range(0, 200 * MIB, MIB):
        session = file.read(offset, MIB)
        windows.append(session.window_bytes // MIB)
        assert session.ahead - offset <= FAR_WINDOW_BYTES + session.range_bytes
    assert [window for window, _ in itertools.groupby(windows)] == [16, 96]


@pytest.mark.parametrize(
    ("streams", "readers", "range_mib"), [(16, 1, 4), (32, 1, 4), (16, 4, 4), (32, 4, 4), (8, 1, 4)]
)
def test_far_from_the_server_every_stream_has_a_range(streams: int, readers: int, range_mib: int) -> None:
    shares = FairShare(BUDGET_BYTES, FAR_WINDOW_BYTES, far_links(streams))
    files = [File(shares=shares) for _ in range(readers)]
    ahead = []
    for offset in range(0, 100 * MIB, MIB):
        sessions = [file.read(offset, MIB) for file in files]
        ahead.append(sum(session.ahead - offset for session in sessions))
    assert {session.range_bytes for session in sessions} == {range_mib * MIB}
    assert max(ahead) >= streams * range_mib * MIB
    assert max(ahead) <= BUDGET_BYTES // 2 + readers * range_mib * MIB, "memory is shared, however long the link"


@pytest.mark.parametrize(
    ("streams", "shrink", "ranges", "range_mib"), [(32, 1.5, 20, 4), (32, 7.0, 8, 8), (16, 100.0, 4, 8)]
)
def test_far_from_the_server_compressed_bytes_need_fewer_and_longer_ranges(
    streams: int, shrink: float, ranges: int, range_mib: int
) -> None:
    """A stream carries more plain bytes in its time; the window opens with as many stored ones."""
    file = File(shares=FairShare(BUDGET_BYTES, FAR_WINDOW_BYTES, far_links(streams)), shrink=shrink)
    windows = {file.read(offset, MIB).window_bytes // MIB for offset in range(0, 300 * MIB, MIB)}
    session = file.read(300 * MIB, MIB)
    assert session.range_bytes == range_mib * MIB
    assert session.window_bytes // session.range_bytes >= ranges
    assert min(windows) == min(max(windows), int(16 * shrink))
    assert session.ahead - 300 * MIB <= FAR_WINDOW_BYTES + session.range_bytes


def test_a_random_reader_is_asked_for_nothing_more_for_ever() -> None:
    file = File(100 * GIB)
    chosen = random.Random(3)
    for _ in range(5000):
        file.read(chosen.randrange(1, file.length_bytes), chosen.choice([1, 4096, BLOCK, MIB]))
    assert file.plans == []
    assert file.proven == 0
    assert file.shares.sessions == 0, "it takes no share from those who read on"


@pytest.mark.parametrize("distance_bytes", [5 * MIB, 20 * MIB, 300 * MIB])
def test_interleaved_readers_of_one_file_keep_their_sessions(distance_bytes: int) -> None:
    file = File()
    for offset in range(0, 4 * MIB, BLOCK):  # the second may begin in the window of the first
        first, second = file.read(offset), file.read(offset + distance_bytes)
    assert first is not second
    for offset in range(4 * MIB, 150 * MIB, BLOCK):
        assert file.read(offset) is first
        assert file.read(offset + distance_bytes) is second
    assert file.proven == 2


def test_requests_out_of_order_do_not_break_a_run() -> None:
    """The kernel sends 1 MiB requests of one reader swapped."""
    file = File()
    session = file.read_on(0, 4 * MIB)
    for pair in range(4, 60, 2):
        assert file.read((pair + 1) * MIB, MIB) is session
        assert file.read(pair * MIB, MIB) is session
    assert file.proven == 1
    assert session.window_bytes == MAX_WINDOW_BYTES
    at = 0
    for plan in file.plans:
        assert plan.start == at
        at = plan.end


@pytest.mark.parametrize(
    ("jump_bytes", "near"), [*((jump, True) for jump in (-MIB, -1, 1, MIB)), (-5 * MIB, False), (200 * MIB, False)]
)
def test_small_seeks_keep_the_session_and_far_ones_begin_anew(jump_bytes: int, near: bool) -> None:
    file = File()
    session = file.read_on(0, 20 * MIB)
    assert (file.read(20 * MIB + jump_bytes) is session) is near
    if near:
        window_bytes = session.window_bytes
        assert file.read_on(20 * MIB + jump_bytes + BLOCK, 22 * MIB) is session
        assert session.window_bytes >= window_bytes


def test_a_jump_ahead_within_the_window_goes_on_from_there() -> None:
    file = File()
    session = file.read_on(0, 40 * MIB)
    target = session.ahead - BLOCK
    file.plans.clear()
    assert file.read(target) is session
    assert file.plans[0].start == target + BLOCK


@pytest.mark.parametrize(("count", "window_mib"), [(1, 32), (2, 32), (4, 32), (16, 8), (64, 2), (200, 2)])
def test_sessions_share_the_memory(count: int, window_mib: int) -> None:
    shares = FairShare(BUDGET_BYTES, MAX_WINDOW_BYTES, Links(STREAMS))
    sessions = [ReadSession(0, 0, 0) for _ in range(count)]
    for session in sessions:
        shares.of(session, 0.0)
    share = shares.of(sessions[0], 1.0)
    assert share.window_bytes == window_mib * MIB
    assert share.ranges_per_window == max(1, STREAMS // count)


def test_64_sessions_keep_within_their_windows() -> None:
    shares = FairShare(BUDGET_BYTES, MAX_WINDOW_BYTES, Links(STREAMS))
    files = [File(shares=shares) for _ in range(64)]
    for offset in range(0, 30 * MIB, 2 * BLOCK):
        asked = 0
        for file in files:
            session = file.read(offset, 2 * BLOCK)
            asked += session.ahead - offset
        if offset > 10 * MIB:  # windows that opened while there were fewer are read through
            assert {file.read(offset, 2 * BLOCK).window_bytes for file in files} == {2 * MIB}
            assert asked <= BUDGET_BYTES


def test_an_idle_session_gives_its_share_back() -> None:
    clock = Clock()
    shares = FairShare(BUDGET_BYTES, MAX_WINDOW_BYTES, Links(STREAMS))
    busy, idle = File(shares=shares, clock=clock), [File(shares=shares, clock=clock) for _ in range(15)]
    for file in idle:
        file.read(0)
    busy.read(0)
    assert shares.sessions == 16
    clock.now_s = 10.0
    busy.read(BLOCK)
    assert shares.sessions == 16
    clock.now_s = 10.5
    session = busy.read(2 * BLOCK)
    assert shares.sessions == 1
    assert shares.of(session, clock.now_s) == ALONE
    idle[0].read(BLOCK)
    assert shares.sessions == 2, "it has one again when it goes on"


def test_a_closed_file_leaves_at_once() -> None:
    shares = FairShare(BUDGET_BYTES, MAX_WINDOW_BYTES, Links(STREAMS))
    files = [File(shares=shares) for _ in range(3)]
    for file in files:
        file.read(0)
        file.read_on(50 * MIB, 52 * MIB)
    assert shares.sessions == 6
    files[0].sessions.close()
    assert files[0].proven == 0
    assert shares.sessions == 4


def test_sessions_beyond_the_limit_leave_their_share() -> None:
    file = File(100 * GIB)
    for number in range(100):
        file.read_on(number * GIB, number * GIB + 2 * MIB, MIB // 2)
    assert file.proven == 64
    assert file.shares.sessions == 64


def test_a_file_that_grows_is_followed_to_its_new_end() -> None:
    file = File(MIB)
    session = file.read_on(0, MIB)
    assert session.ahead == MIB
    for _ in range(10):
        file.plans.clear()
        before, file.length_bytes = file.length_bytes, file.length_bytes + 1000
        assert file.read(before, 1000) is session
        assert file.plans == [ByteRange(before, before + 1000)]
