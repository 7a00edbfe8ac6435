"""Bounds by time of plain segments after their chunks became one object, moved, or were read from the journal.

Four appends, an hour apart and each in a chunk of its own: in every form that the bytes take, a time lies before the
same append as by the chunks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.app.recovery.recovering import recovered
from tests.doubles.manual_clock import ManualClock
from tests.stores import TestStore, open_test_store
from tests.tiering.backup.test_segment_dump import load, remove
from tests.tiering.test_repack import walk
from tierfs.base.bytes.byte_times import NO_TIMES
from tierfs.base.options.config import OffloadSettings
from tierfs.base.words.types import ROOT_DIRECTORY, Ack, ByteRange, Tier
from tierfs.engine.metadata import chains, policies
from tierfs.engine.metadata.tables import OBJECTS
from tierfs.reading.times import offset_at
from tierfs.tiering.backup.segment import dump_segment
from tierfs.tiering.garbage import clock_acceptance

PART = 1000
HOUR_MS = 3_600_000
POLICY = {"chunk_bytes": "1048576", "object_bytes": "1600000"}
SETTINGS = OffloadSettings(relocate_min_bytes=1000)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[TestStore]:
    with open_test_store(tmp_path / "store", policy=POLICY, settings=SETTINGS) as opened:
        yield opened


def advance(store: TestStore, seconds: float) -> None:
    assert isinstance(store.clock, ManualClock)
    store.clock.advance(seconds)


def four_appends(
    store: TestStore, name: str = "d/s", *, ack: Ack | None = None, after: Callable[[], object] = lambda: None
) -> list[int]:
    """Append four times; return the times."""
    times = []
    for number in range(4):
        advance(store, HOUR_MS // 1000)
        times.append(store.clock.now_ms())
        store.append(name, b"%d" % number * PART, ack=ack)
        store.engine.roll(store.segment(name).id)
        after()
    advance(store, 10 * HOUR_MS // 1000)
    return times


def place(store: TestStore, time_ms: int, name: str = "d/s") -> tuple[int, int]:
    def read(wanted: ByteRange) -> bytes:
        return b"x" * wanted.length_bytes

    found = offset_at(store.metadata, store.segment(name), time_ms, read)
    return found.offset, found.end_offset


def check(store: TestStore, times: list[int], name: str = "d/s", start: int = 0) -> None:
    """Each time lies where its append begins; one after an append where the next begins."""
    assert place(store, times[0] - 1, name)[1] == start, "--until a time before the first append prints nothing"
    for number, time_ms in enumerate(times):
        at = start + number * PART
        assert place(store, time_ms, name) == (at, at)
        assert place(store, time_ms + 1, name) == (at + PART, at + PART)
        assert place(store, time_ms + HOUR_MS // 2, name) == (at + PART, at + PART)


def cold_objects(store: TestStore, name: str = "d/s") -> int:
    with store.metadata.read() as txn:
        cold = chains.chunks(txn, store.segment(name).id, Tier.COLD)
        return len({chains.object_of(txn, chunk).id for chunk in cold})


def gone_from_the_disk(store: TestStore) -> None:
    store.evict(force=True)
    assert not store.segment("d/s").local.count


def one_object(store: TestStore) -> list[int]:
    times = four_appends(store)
    store.offload()
    assert cold_objects(store) == 1
    return times


def consolidated(store: TestStore) -> list[int]:
    times = four_appends(store, after=store.offload)
    assert cold_objects(store) == 4
    store.consolidate()
    assert cold_objects(store) == 1
    return times


def packed(store: TestStore) -> list[int]:
    for number in range(15):
        store.append(f"d/r{number}", b"r" * PART, seal=True)
    times = four_appends(store)
    for number in range(15):
        store.append(f"d/t{number}", b"t" * PART, seal=True)
    store.offload()
    assert len(list(store.cold.list("packs/"))) == 1
    assert cold_objects(store) == 1
    return times


def repacked(store: TestStore) -> list[int]:
    times = packed(store)
    store.evict(force=True)
    for number in range(15):
        for kind in "rt":
            store.engine.delete(f"d/{kind}{number}", recursive=False, cold_due_ms=0)
    store.cold_work().publish()
    walk(store.cold_work().repacker)
    assert len(list(store.cold.list("packs/"))) == 2, "the old one is garbage and not yet deleted"
    return times


def acknowledged_cold(store: TestStore) -> list[int]:
    store.cold_work().publish()
    return four_appends(store, ack=Ack.COLD)


def joined(store: TestStore) -> list[int]:
    times = four_appends(store, "source")
    store.engine.seal("source")
    store.offload()
    store.append("d/s")
    store.engine.concat("d/s", "source")
    return times


FORMS = [one_object, consolidated, packed, repacked, acknowledged_cold, joined]


@pytest.mark.parametrize("form", FORMS)
def test_a_time_lies_where_its_append_begins(
    store: TestStore, tmp_path: Path, form: Callable[[TestStore], list[int]]
) -> None:
    times = form(store)
    check(store, times)
    gone_from_the_disk(store)
    check(store, times)
    store.cold_work().publish()
    with recovered(tmp_path / "recovered", store.cold) as other:
        check(other.store, times)


@pytest.mark.parametrize("form", [one_object, packed])
def test_a_checkpoint_and_a_cut_keep_the_times(
    store: TestStore, tmp_path: Path, form: Callable[[TestStore], list[int]]
) -> None:
    times = form(store)
    gone_from_the_disk(store)
    store.engine.truncate("d/s", 2 * PART, cold_due_ms=store.clock.now_ms())
    check(store, times[2:], start=2 * PART)
    store.cold_work().publish()
    store.cold_work().checkpointer.checkpoint()
    with recovered(tmp_path / "recovered", store.cold) as other:
        check(other.store, times[2:], start=2 * PART)


def test_times_of_local_chunks_are_exact(store: TestStore) -> None:
    check(store, four_appends(store))


def test_a_chunk_of_all_appends_has_both_bounds(store: TestStore) -> None:
    times = []
    writer = store.engine.open_writer("d/s")
    for number in range(4):
        advance(store, HOUR_MS // 1000)
        times.append(store.clock.now_ms())
        writer.append(b"%d" % number * PART)
    store.engine.close_writer(writer)
    store.engine.roll(store.segment("d/s").id)
    advance(store, HOUR_MS // 1000)
    store.append("d/s", b"next chunk")
    for cold in (False, True):
        if cold:
            store.offload()
            store.evict(force=True)
        assert place(store, times[0]) == (0, 0)
        assert place(store, times[0] + 1) == (0, 4 * PART)
        assert place(store, times[-1]) == (0, 4 * PART)
        assert place(store, times[-1] + 1) == (4 * PART, 4 * PART)


def without_times(store: TestStore) -> None:
    """As a version without them wrote the rows."""
    with store.metadata.write() as txn:
        for key, record in list(txn.scan(OBJECTS)):
            txn.put(OBJECTS, key, replace(record, times=NO_TIMES))


def sound(store: TestStore, times: list[int]) -> None:
    """No byte of a time is left out."""
    for number, time_ms in enumerate(times):
        offset, end = place(store, time_ms)
        assert offset <= number * PART
        assert end >= number * PART
        assert place(store, time_ms + 1)[1] >= (number + 1) * PART


def test_rows_of_an_older_version_leave_no_byte_out(store: TestStore) -> None:
    times = four_appends(store)
    without_times(store)
    sound(store, times)
    store.offload()
    sound(store, times)
    gone_from_the_disk(store)
    sound(store, times)
    without_times(store)
    sound(store, times)


def test_a_chunk_that_an_older_version_appended_to(store: TestStore) -> None:
    """It keeps what this one wrote, and knows nothing of it: the bytes behind are those of no stretch."""
    store.append("d/s", b"0" * PART)
    first_ms = store.clock.now_ms()
    with store.metadata.read() as txn:
        before = {key: record.times for key, record in txn.scan(OBJECTS)}
    advance(store, 3600)
    store.append("d/s", b"1" * PART)
    last_ms = store.clock.now_ms()
    with store.metadata.write() as txn:
        for key, times in before.items():
            record = txn.must_get(OBJECTS, key, "the chunk's file")
            assert (record.times.ends, record.length) == ((2 * PART,), 2 * PART)
            txn.put(OBJECTS, key, replace(record, times=times))
    for cold in (False, True):
        if cold:
            store.offload()
            store.evict(force=True)
        assert place(store, first_ms + 1)[0] == PART
        assert place(store, last_ms) == (PART, 2 * PART)
        assert place(store, last_ms + 1) == (2 * PART, 2 * PART)


def test_a_clock_that_was_set_back(store: TestStore) -> None:
    """Bytes are of the times that the clock showed, in whatever order."""
    clock = store.clock
    assert isinstance(clock, ManualClock)
    shown = []
    for number, step in enumerate((3600, -1800, 7200, -600)):
        clock.jump(step)
        shown.append(clock.now_ms())
        store.append("d/s", b"%d" % number * PART)
        store.engine.roll(store.segment("d/s").id)
    store.offload()
    store.evict(force=True)
    with store.metadata.read() as txn:
        ((_, record),) = [(key, row) for key, row in txn.scan(OBJECTS) if row.tier is Tier.COLD]
    assert (record.times.first_ms, record.times.written_ms) == (tuple(shown), tuple(shown))


def test_an_accepted_clock_leaves_no_time_in_the_future(store: TestStore) -> None:
    clock = store.clock
    assert isinstance(clock, ManualClock)
    right_ms = clock.now_ms() + 60_000
    clock.jump(10 * 24 * 3600)
    four_appends(store)
    store.offload()
    clock.jump((right_ms - clock.now_ms()) / 1000)
    clock_acceptance.accept(store.metadata, grace_s=3600)
    with store.metadata.read() as txn:
        for _, record in txn.scan(OBJECTS):
            assert record.times.ends
            assert max((*record.times.first_ms, *record.times.written_ms)) <= right_ms
    assert place(store, right_ms + 1) == (4 * PART, 4 * PART)


def test_a_pack_of_many_segments_leaves_no_byte_out(store: TestStore) -> None:
    """A hundred segments share its few stretches: their bounds are wider, and on the right side."""
    with store.metadata.write() as txn:
        policies.put(txn, ROOT_DIRECTORY, POLICY)
    times: dict[str, int] = {}
    for number in range(100):
        advance(store, 60)
        name = f"d/{number * 37 % 100:03d}"
        store.append(name, b"x" * (number + 1), seal=True)
        times[name] = store.clock.now_ms()
    store.offload()
    store.evict(force=True)
    for name, time_ms in times.items():
        length = store.segment(name).length
        assert place(store, time_ms, name)[0] == 0
        assert place(store, time_ms + 1, name)[1] == length
        assert place(store, time_ms - 1, name)[1] == 0


class Histories:
    """Segments with the time of each append, whatever becomes of their chunks."""

    def __init__(self, store: TestStore) -> None:
        self.store = store
        self.written: dict[str, list[tuple[int, int]]] = {}
        """Of each segment: the end and the time of each append."""

    def append(self, name: str, size: int) -> None:
        length = self.written[name][-1][0] if self.written.get(name) else 0
        self.store.append(name, b"x" * size)
        self.written.setdefault(name, []).append((length + size, self.store.clock.now_ms()))

    def roll(self, name: str, _: int) -> None:
        if name in self.written:
            self.store.engine.roll(self.store.segment(name).id)

    def concat(self, name: str, number: int) -> None:
        source = NAMES[number % len(NAMES)]
        if name in self.written and source in self.written and source != name:
            self.store.engine.seal(source)
            self.store.engine.concat(name, source)
            length = self.written[name][-1][0]
            self.written[name] += [(length + end, time_ms) for end, time_ms in self.written.pop(source)]

    def offload(self, *_: object) -> None:
        self.store.offload()

    def evict(self, *_: object) -> None:
        self.store.evict(force=True)

    def consolidate(self, *_: object) -> None:
        self.store.consolidate()

    def check(self, name: str, time_ms: int) -> None:
        """No byte of the time or later is before the offset, and no earlier one behind the end."""
        offset, end = place(self.store, time_ms, name)
        assert offset <= end
        for (start, _), (after, known_ms) in pairwise([(0, 0), *self.written[name]]):
            assert known_ms >= time_ms or after <= end, "an earlier byte is left out of --until"
            assert known_ms < time_ms or start >= offset, "a later byte is left out of --since"


NAMES = ["d/a", "d/b", "d/c"]
STEPS = ["append"] * 6 + ["roll", "roll", "concat", "offload", "evict", "consolidate"]


@settings(max_examples=25)
@given(
    st.lists(
        st.tuples(st.sampled_from(STEPS), st.sampled_from(NAMES), st.integers(1, 30), st.integers(0, 100)),
        min_size=4,
        max_size=40,
    )
)
def test_no_byte_is_left_out_whatever_becomes_of_its_chunk(steps: list[tuple[str, str, int, int]]) -> None:
    sizes = {"chunk_bytes": "40", "object_bytes": "100"}
    with TemporaryDirectory() as path, open_test_store(Path(path) / "store", policy=sizes, settings=SETTINGS) as store:
        histories = Histories(store)
        for step, name, number, seconds in steps:
            advance(store, seconds)
            getattr(histories, step)(name, number)
        for name, written in histories.written.items():
            for time_ms in {known + more for _, known in written for more in (-1, 0, 1)}:
                histories.check(name, time_ms)


def test_a_dump_has_the_times(store: TestStore, tmp_path: Path) -> None:
    times = one_object(store)
    gone_from_the_disk(store)
    store.cold_work().publish()
    dump_segment(store.metadata, store.cold, "d/s")
    remove(store, "d/s")
    load(store, "d/s")
    check(store, times)
