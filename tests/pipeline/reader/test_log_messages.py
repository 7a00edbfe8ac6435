"""Messages of RocketMQ's commit logs: steps end between them, wherever a limit is, and each is read once."""

from __future__ import annotations

from itertools import accumulate
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.engine.ledger.rocketmq import coda, message
from tests.mount.conftest import append
from tests.pipeline.reader.reading import store_of
from tierfs.base.words.errors import DataLoss, InvalidRequest
from tierfs.base.words.types import ByteRange, SegmentId
from tierfs.pipeline.reader import log_messages
from tierfs.pipeline.reader.extents import PlaceConnections
from tierfs.pipeline.reader.fetching import ScanFetcher
from tierfs.pipeline.reader.log_messages import LogEnds, read_messages
from tierfs.pipeline.reader.planning import Reach, Sizes, plan
from tierfs.pipeline.reader.selection import Pinner, Selection, Tail, place_of, select
from tierfs.pipeline.reader.stream_plan import ListedSegment


def records(sizes: list[int]) -> list[bytes]:
    """Messages with bodies of these sizes; a coda for each 0."""
    made: list[bytes] = []
    for size in sizes:
        at = sum(map(len, made))
        made.append(message(b"x" * size, log_offset=at, queue_offset=len(made)) if size else coda(1))
    return made


def listed(length: int, *, sealed: bool = False, start: int = 0) -> ListedSegment:
    return ListedSegment(SegmentId(1), 1, "mq/log", sealed, start, length, length)


@pytest.fixture(autouse=True)
def short_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_messages, "FIRST_BYTES", 128)


@given(st.lists(st.integers(0, 600), min_size=1, max_size=12), st.integers(1, 2000), st.integers(0, 90))
def test_steps_end_between_messages(sizes: list[int], budget: int, begun: int) -> None:
    """The last message may be half written."""
    whole = records(sizes)
    data = b"".join(whole) + message(b"y" * 100, log_offset=sum(map(len, whole)))[:begun]
    ends = set(accumulate(map(len, whole), initial=0))
    log = LogEnds(lambda _, window: data[window.start : window.end])
    at, steps = 0, [0]
    while (cut := log.cut(listed(len(data)), at, budget, crossing=True)).end > at:
        assert cut.size_bytes == cut.end - at
        assert cut.end == min((end for end in ends if end >= at + budget), default=max(ends))
        at = cut.end
        steps.append(at)
    assert set(steps) <= ends
    assert at == max(ends)
    assert log.cut(listed(len(data)), 0, None, crossing=True).end == max(ends)
    assert log.cut(listed(len(data), sealed=True), 0, None, crossing=True).end == len(data)
    starts = [end for end, size in zip(sorted(ends), sizes, strict=False) if size and end]
    assert [log.first_from(listed(len(data)), start - 1) for start in starts] == starts


def test_other_bytes_are_no_log() -> None:
    data = b"a line\n" * 100
    log = LogEnds(lambda _, window: data[window.start : window.end])
    with pytest.raises(InvalidRequest, match="segment mq/log is not a commit log of RocketMQ"):
        log.cut(listed(len(data)), 0, None, crossing=True)


def scan(tmp_path: Path, data: bytes, *, before: int = 0) -> list[tuple[int, int, bytes]]:
    with store_of(tmp_path / "store") as store:
        append(store, "log", data)
        if before:
            store.engine.truncate("log", before, cold_due_ms=0)
        with store.metadata.read() as txn:
            pinner = Pinner(txn, None, Tail.LOCAL)
            pinned = [pinner.pin(name, segment) for name, segment in select(txn, Selection(("log",)))]
            place = place_of(txn, str(store.path), store.settings.cold)
        partitions = plan(pinned, Sizes(max_partition_bytes=50), Reach(splits=False))
        assert [part.owned for each in partitions for part in each.parts] == [ByteRange(before, len(data))]
        with ScanFetcher(place, PlaceConnections(), [part.source for part in partitions[0].parts]) as fetcher:
            return [
                (offset, each.queue_offset, each.body)
                for _, messages in read_messages(fetcher, partitions[0])
                for offset, each in messages
            ]


def test_each_message_is_read_once(tmp_path: Path) -> None:
    whole = records([5, 300, 0, 7, 1])
    starts = list(accumulate(map(len, whole), initial=0))
    assert scan(tmp_path, b"".join(whole) + message(b"half")[:80]) == [
        (starts[number], number, b"x" * size) for number, size in enumerate([5, 300, 0, 7, 1]) if size
    ]


def test_a_truncated_head_begins_with_the_next_message(tmp_path: Path) -> None:
    whole = records([5, 300, 7])
    assert [number for _, number, _ in scan(tmp_path, b"".join(whole), before=3)] == [1, 2]


def test_damage_in_the_middle_is_an_error(tmp_path: Path) -> None:
    whole = records([5, 300, 7])
    with pytest.raises(DataLoss, match=f"no message of RocketMQ starts at byte {len(whole[0])}"):
        scan(tmp_path, whole[0] + bytes(len(whole[1])) + whole[2])
