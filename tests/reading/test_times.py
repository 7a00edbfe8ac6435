"""From a time to an offset: by messages as a reader by position has it, by chunks no byte too few."""

from __future__ import annotations

import os
import random
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.doubles.manual_clock import ManualClock
from tests.engine.ledger.message_entries import entry, proto
from tests.engine.ledger.rocketmq import coda, consume_queue, log
from tests.ledgers import ROOMY, new_ledger
from tests.stores import TestStore, open_test_store
from tierfs.base.words.errors import DataLoss
from tierfs.base.words.types import ROOT_DIRECTORY, ByteRange, DirectoryId, Inode, SegmentId
from tierfs.engine.metadata import policies
from tierfs.engine.metadata.records import SegmentRecord
from tierfs.reading.times import CommitLogReader, TimePlace, TimesOf, entry_at, offset_at

NOW = 1_700_000_000_000


@pytest.fixture
def store(tmp_path: Path) -> Iterator[TestStore]:
    with open_test_store(tmp_path / "store") as opened:
        yield opened


def of(data: bytes, start: int, reads: list[int] | None = None) -> Callable[[ByteRange], bytes]:
    """Reads ranges of a segment of these bytes; notes how many each time."""

    def read(wanted: ByteRange) -> bytes:
        assert start <= wanted.start <= wanted.end <= start + len(data)
        if reads is not None:
            reads.append(wanted.length_bytes)
        return data[wanted.start - start : wanted.end - start]

    return read


def segment(data: bytes, start: int = 0) -> SegmentRecord:
    return SegmentRecord(
        id=SegmentId(5),
        parent_id=DirectoryId(1),
        name="s",
        inode=Inode(6),
        start_offset=start,
        length=start + len(data),
    )


def in_log(store: TestStore, data: bytes, time_ms: int, start: int = 0) -> TimePlace:
    return offset_at(store.metadata, segment(data, start), time_ms, of(data, start))


SIZES = [0, 1, 40, 700, 5000, 131_072, 200_000, 3]


@pytest.mark.parametrize("start", [0, 1 << 33])
@pytest.mark.parametrize("count", [1, 2, 9, 600])
def test_a_commit_log_by_its_store_times(store: TestStore, start: int, count: int) -> None:
    chosen = random.Random(count)
    sizes = [chosen.choice(SIZES if count < 100 else SIZES[:5]) for _ in range(count)]
    times = sorted(NOW + chosen.randrange(3 * count) for _ in range(count))
    data = log([os.urandom(size) for size in sizes], times, start=start) + coda(times[-1])
    data += log([b"last"], [times[-1] + 1], start=start + len(data), first=count)
    times.append(times[-1] + 1)
    offsets = [int.from_bytes(row[:8], "big") for row in rows(consume_queue(data, start))]
    for time_ms in {*times, NOW - 1, NOW, *(known + 1 for known in times)}:
        number = bisect_left(times, time_ms)
        expected = offsets[number] if number < len(offsets) else start + len(data)
        place = in_log(store, data, time_ms, start)
        assert (place.offset, place.end_offset, place.times_of) == (expected, expected, TimesOf.MESSAGES)
        assert place.time_ms == (times[number] if number < len(times) else None)


def rows(queue: bytes) -> list[bytes]:
    return [queue[at : at + 20] for at in range(0, len(queue), 20)]


@given(st.data())
def test_a_log_whose_head_or_tail_is_cut(drawn: st.DataObject) -> None:
    times = [NOW + number for number in range(20)]
    data = log([b"x" * (number * 37 % 200) for number in range(20)], times)
    offsets = [int.from_bytes(row[:8], "big") for row in rows(consume_queue(data))]
    start = drawn.draw(st.integers(0, offsets[15]))
    end = drawn.draw(st.integers(offsets[17], len(data)))
    reader = CommitLogReader("s", ByteRange(start, end), of(data[start:end], start))
    whole = [(at, after) for at, after in zip(offsets, [*offsets[1:], len(data)], strict=True) if start <= at]
    complete = [at for at, after in whole if after <= end]
    first = reader.first()
    assert first is not None
    assert first[0] == complete[0]
    assert [at for at, _ in reader.heads(first[0])] == complete
    time_ms = NOW + drawn.draw(st.integers(0, 20))
    late = reader.first_that(lambda head: head.store_ms >= time_ms)
    expected = next((at for at in complete if times[offsets.index(at)] >= time_ms), None)
    assert (late[0] if late else None) == expected


@pytest.mark.parametrize("size", [100, 140_000])
def test_a_message_is_found_by_its_number_in_a_log_of_several_files(size: int) -> None:
    data, offsets = b"", list[int]()
    for first in range(0, 8, 2):
        offsets += [len(data), len(data) + len(log([b"x" * size], [NOW]))]
        data += log([b"x" * size] * 2, [NOW + first, NOW + first + 1], start=len(data), first=first)
        data += coda(NOW + first + 1)
    reader = CommitLogReader("s", ByteRange(0, len(data)), of(data, 0))

    def offset_of(number: int) -> int | None:
        message = reader.first_that(lambda head: head.queue_offset >= number)
        return message[0] if message else None

    assert [offset_of(number) for number in range(9)] == [*offsets, None]


def test_a_large_log_is_found_in_by_few_small_reads(store: TestStore) -> None:
    data = log([b"x" * 900] * 30_000, [NOW + number for number in range(30_000)])
    reads: list[int] = []
    place = offset_at(store.metadata, segment(data), NOW + 12_345, of(data, 0, reads))
    assert place.offset == 12_345 * (len(data) // 30_000)
    assert (len(reads) <= 12, max(reads) <= 132_000) == (True, True), reads


@pytest.mark.parametrize("data", [b"x", os.urandom(300_000), b"text\n" * 50_000], ids=["a byte", "random", "text"])
def test_other_bytes_are_no_log(data: bytes) -> None:
    assert CommitLogReader("s", ByteRange(0, len(data)), of(data, 0)).first() is None


def test_an_empty_segment(store: TestStore) -> None:
    store.engine.close_writer(store.engine.open_writer("s"))
    place = offset_at(store.metadata, store.segment("s"), NOW, of(b"", 0))
    assert (place.offset, place.end_offset, place.times_of) == (0, 0, TimesOf.CHUNKS)


def published(time_ms: int, *, broker_ms: int | None = None, value: str = "v") -> bytes:
    """An entry of Pulsar's; its checksum is not looked at where only its time is."""
    meta = proto((1, "producer"), (2, 7), (3, time_ms), (4, proto((1, "key"), (2, value))))
    return entry(meta, b"payload", checksum=False, broker=None if broker_ms is None else proto((1, broker_ms)))


def payloads_at(times: Sequence[int], *, broker: bool = False) -> list[bytes]:
    return [published(known - 3 * broker, broker_ms=known if broker else None) for known in times]


@pytest.mark.parametrize("broker", [False, True], ids=["published", "as the broker says"])
def test_a_ledger_by_publish_time(store: TestStore, broker: bool) -> None:
    times = [NOW + number // 3 * 10 for number in range(40)]
    entries = payloads_at(times, broker=broker)
    name = new_ledger(store, entries)
    record = store.segment(name)
    data = b"".join(entries)
    starts = [sum(map(len, entries[:number])) for number in range(41)]
    for time_ms in range(NOW - 1, times[-1] + 2):
        number = bisect_left(times, time_ms)
        place = offset_at(store.metadata, record, time_ms, of(data, 0))
        assert (place.entry_id, place.offset, place.end_offset) == (number, starts[number], starts[number])
        assert place.time_ms == (times[number] if number < 40 else None)


@pytest.mark.parametrize("counts", [[1], [3, 1], [5, 7, 1, 9], [1] * 40])
def test_a_topic_by_publish_time(store: TestStore, counts: list[int]) -> None:
    """As in one ledger of all its entries, of which some at the ends of ledgers are of one time."""
    numbers = iter(range(sum(counts)))
    times = [[NOW + next(numbers) // 2 * 10 for _ in range(count)] for count in counts]
    records = [store.segment(new_ledger(store, payloads_at(some))) for some in times]
    bytes_of = {record.id: b"".join(payloads_at(some)) for record, some in zip(records, times, strict=True)}
    reads: list[int] = []
    flat = [(number, entry_id) for number, count in enumerate(counts) for entry_id in range(count)]
    every = [time for some in times for time in some]
    for time_ms in {NOW - 1, *every, *(time + 1 for time in every)}:
        reads.clear()
        number, place = entry_at(
            store.metadata, records, time_ms, lambda record: of(bytes_of[record.id], record.start_offset, reads)
        )
        expected = bisect_left(every, time_ms)
        assert (number, place.entry_id) == (flat[expected] if expected < len(flat) else (len(counts) - 1, counts[-1]))
        assert len(reads) <= 2 + max(counts).bit_length() * 2 + len(counts).bit_length()


def test_what_was_written_a_day_before_is_not_read(store: TestStore) -> None:
    """Else a query over thousands of cold segments reads a block of each."""
    day = 24 * 3600 * 1000
    data, message = log([b"x"] * 3, [NOW, NOW + 1, NOW + 2]), published(NOW)
    ledger = store.segment(new_ledger(store, [message]))
    for record, content, entry_id in ((segment(data), data, None), (ledger, message, 1)):
        written = replace(record, modified_ms=NOW)
        reads: list[int] = []
        offset_at(store.metadata, written, NOW + day, of(content, 0, reads))
        assert reads, "a clock may be ahead of another"
        reads.clear()
        place = offset_at(store.metadata, written, NOW + day + 1, of(content, 0, reads))
        assert (reads, place.offset, place.end_offset) == ([], written.length, written.length)
        assert (place.entry_id, place.time_ms) == (entry_id, None)


def test_a_ledger_of_other_entries_has_no_times_of_messages(store: TestStore) -> None:
    entries = [b"one", b"two", b""]
    record = store.segment(new_ledger(store, entries))
    place = offset_at(store.metadata, record, NOW, of(b"".join(entries), 0))
    assert (place.times_of, place.entry_id) == (TimesOf.CHUNKS, None)


def test_metadata_larger_than_the_first_read(store: TestStore) -> None:
    entries = [published(NOW + number, value="v" * 9000) for number in range(5)]
    with store.metadata.write() as txn:
        policies.put(txn, ROOT_DIRECTORY, ROOMY)
    record = store.segment(new_ledger(store, entries))
    assert offset_at(store.metadata, record, NOW + 3, of(b"".join(entries), 0)).entry_id == 3


@pytest.mark.parametrize("cold", [False, True], ids=["local", "cold"])
def test_chunks_by_the_times_by_which_they_were_written(store: TestStore, cold: bool) -> None:
    """Three chunks of three appends each, a second apart; then bytes before a time are never left out."""
    clock = store.clock
    assert isinstance(clock, ManualClock)
    written: list[tuple[int, int]] = []
    for number in range(9):
        clock.advance(1)
        store.append("s", b"%d" % number * 10)
        written.append((number * 10, clock.now_ms()))
        if number % 3 == 2:
            store.engine.roll(store.segment("s").id)
    if cold:
        store.offload()
        clock.advance(10**6)
        store.evict(force=True)
    record = store.segment("s")
    for time_ms in range(written[0][1] - 500, written[-1][1] + 1000, 500):
        place = offset_at(store.metadata, record, time_ms, of(b"x" * 90, 0))
        assert all(known < time_ms for at, known in written if at < place.offset)
        assert all(known >= time_ms for at, known in written if at >= place.end_offset)
        assert place.end_offset - place.offset <= 30
    assert offset_at(store.metadata, record, written[-1][1] + 1, of(b"x" * 90, 0)).offset == 90


@pytest.mark.parametrize("cold", [False, True], ids=["local", "cold"])
@pytest.mark.parametrize("joined", [False, True])
@pytest.mark.parametrize("cut", [False, True])
def test_no_byte_is_of_a_time_before_the_first_one(store: TestStore, cold: bool, joined: bool, cut: bool) -> None:
    """Unless bytes were joined that are older."""
    clock = store.clock
    assert isinstance(clock, ManualClock)
    store.append("older", b"x" * 10, seal=True)
    clock.advance(60)
    store.append("s", b"y" * 10)
    first_ms = clock.now_ms()
    clock.advance(60)
    store.append("s", b"z" * 10)
    if joined:
        store.engine.concat("s", "older")
    if cold:
        store.offload()
        store.evict(force=True)
    if cut:
        store.engine.truncate("s", 8, cold_due_ms=clock.now_ms())
    record = store.segment("s")
    start, end = record.start_offset, record.length

    def found(time_ms: int) -> tuple[int, int]:
        place = offset_at(store.metadata, record, time_ms, of(b"x" * end, 0))
        return place.offset, place.end_offset

    for time_ms in (0, first_ms - 1, first_ms):
        assert found(time_ms) == (start, start) or joined
        assert not joined or found(time_ms)[1] == end or time_ms == 0
    assert found(first_ms + 1)[1] > start
    assert found(first_ms + 60_000)[0] < 20, "the bytes behind it are older"


def test_a_damaged_log_is_named() -> None:
    data = log([b"x"], [NOW]) + bytes(1000)
    reader = CommitLogReader("logs/1", ByteRange(0, len(data)), of(data, 0))
    with pytest.raises(DataLoss, match=f"^logs/1: no message of RocketMQ starts at byte {len(data) - 1000}$"):
        list(reader.heads(0))
