"""Reads that start and end at offsets or times by segment and directory, as Kafka's users give them."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from tests import verbs
from tests.ledgers import new_ledger
from tests.mount.conftest import append
from tests.pipeline.spark.asked import Asked, batch
from tests.reading.test_times import NOW, published
from tierfs.app import store as app
from tierfs.base.words.errors import InvalidRequest
from tierfs.pipeline.spark.errors import TierfsException
from tierfs.pipeline.spark.named_positions import NamedNumbers
from tierfs.pipeline.spark.options import ReadOptions
from tierfs.pipeline.spark.row_types import RowType
from tierfs.pipeline.spark.stream_options import StreamOptions

DATA = b"one\ntwo\nthree\n"


@pytest.fixture
def logs(store: app.Store) -> app.Store:
    append(store, "logs/a", DATA)
    append(store, "logs/b", DATA, seal=True)
    append(store, "logs/old/c", DATA)
    append(store, "other/d", DATA)
    return store


def options(store: app.Store, **given: Any) -> dict[str, str]:
    texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in given.items()}
    return {"store": str(store.path), "path": "/", "recursiveFileLookup": "true", **texts}


def by_segment(rows: list[tuple[Any, ...]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for value, segment, _ in sorted(rows, key=lambda row: row[1:]):
        found.setdefault(segment, []).append(value)
    return found


WHOLE = ["one", "two", "three"]
STARTS = [
    ({}, {name: WHOLE for name in ("logs/a", "logs/b", "logs/old/c", "other/d")}),
    ({"logs": -1}, {"other/d": WHOLE}),
    ({"/logs/": -1, "logs/a": 4, "logs/old": -2}, {"logs/a": WHOLE[1:], "logs/old/c": WHOLE, "other/d": WHOLE}),
    ({"": -1, "logs/b": 1}, {"logs/b": WHOLE[1:]}),
    ({"": -1, "logs/b": 14, "logs/a": 9}, {}),
]


@pytest.mark.parametrize(("starts", "expected"), STARTS)
def test_a_stream_starts_in_each_segment_where_it_is_told(
    logs: app.Store, starts: dict[str, int], expected: dict[str, list[str]]
) -> None:
    """An offset within a line means the next line; what comes later is read, and later segments from their start."""
    stream = Asked(**options(logs, startingOffsets=starts))
    assert by_segment(stream.rows()) == expected
    append(logs, "logs/a", b"four\n")
    append(logs, "logs/new", b"one\n")
    assert by_segment(stream.rows()) == {"logs/a": ["four"], "logs/new": ["one"]}


def test_a_batch_between_offsets_has_the_lines_of_the_stream_between_them(logs: app.Store) -> None:
    starts, ends = {"logs/a": 4, "logs/b": 1, "logs/old": -2}, {"logs/b": 8, "other": -1, "logs/old/c": 4}
    rows = by_segment(batch(**options(logs, startingOffsets=starts, endingOffsets=ends)))
    assert rows == {"logs/a": ["two", "three"], "logs/b": ["two"], "logs/old/c": ["one"], "other/d": WHOLE}
    assert by_segment(batch(**options(logs, startingOffsets={"logs/a": 8}, endingOffsets={"logs/a": 4}))) == {
        name: WHOLE for name in ("logs/b", "logs/old/c", "other/d")
    }
    assert batch(**options(logs, endingOffsets="latest", startingOffsets="earliest")) == batch(**options(logs))


def test_offsets_of_entries_are_their_ids(store: app.Store) -> None:
    name = new_ledger(store, [b"a", b"", b"", b"b"])
    given = options(store, startingOffsets={name: 2})
    assert [row[1] for row in Asked(RowType.ENTRIES, **given).rows()] == [2, 3]
    assert [row[1] for row in batch(RowType.ENTRIES, **given, endingOffsets=json.dumps({name: 3}))] == [2]
    latest = Asked(RowType.ENTRIES, **options(store, startingOffsets="latest"))
    assert latest.rows() == []


def test_latest_of_bytes_that_are_not_cold_yet_is_their_end(store: app.Store) -> None:
    append(store, "s", b"one\n")
    stream = Asked(**options(store, startingOffsets="latest", tail="cold-only"))
    verbs.offload(store)
    assert stream.rows() == []
    append(store, "s", b"two\n")
    verbs.offload(store)
    assert by_segment(stream.rows()) == {"s": ["two"]}


def test_times_by_segment(store: app.Store) -> None:
    """Of messages here; a segment without the time starts at its end, or is an error."""
    early, late = (
        new_ledger(store, [published(NOW + 1000 * second) for second in seconds])
        for seconds in (range(5), range(10, 15))
    )
    given = {"type": "messages", "startingOffsetsByTimestamp": {late: NOW + 12_000, early: NOW + 9000}}
    stream = Asked(RowType.MESSAGES, **options(store, **given))
    assert [row[1] for row in stream.rows()] == [2, 3, 4]
    ends = {"startingTimestamp": str(NOW + 1000), "endingOffsetsByTimestamp": {early: NOW + 3000, late: NOW + 11_000}}
    between = batch(RowType.MESSAGES, **options(store, type="messages", **ends))
    assert sorted((row[-1], row[1]) for row in between) == [(early, 1), (early, 2), (late, 0)]
    strict = options(store, **given, startingOffsetsByTimestampStrategy="error")
    for read in (Asked, batch):
        with pytest.raises(
            TierfsException, match="has no bytes of the time in startingOffsetsByTimestamp or later; set"
        ):
            read(RowType.MESSAGES, **strict)


REFUSED = [
    ({"logs/a": 15}, r"startingOffsets has 15 for segment logs/a, which ends at 14; use -1 for its end, or set fail"),
    ({"logs": 3}, r"startingOffsets has 3 for logs, which is a directory; name a segment, or use -1"),
    ({"logs/x": 3}, r"startingOffsets has logs/x, but nothing of that name is read; use names as in the column"),
    ({"logs/a": "3"}, r'invalid value "3" for logs/a in option startingOffsets; expected an offset, -1 .latest. or'),
    ({"logs/a": {"0": 23}}, r'invalid value \{"0": 23\} for logs/a in option startingOffsets; expected an offset'),
    ({"logs/a": -3}, "invalid value -3 for logs/a"),
    ({"logs/../a": 3}, "invalid name in option startingOffsets: '..' cannot be part of a segment's name; use names as"),
    ({"logs/a": 1, "/logs/a": 2}, "startingOffsets has logs/a twice; set one of them"),
    ('{"logs/a": 1, "logs/a": 2}', "logs/a is twice in one option; set one of them"),
    ("[" * 100_000, "for option startingOffsets; expected earliest, latest, JSON, like"),
    ('{"open": {}}', "startingOffsets has no tierfs offset; use the endOffset of a stream with the same paths and opt"),
    ('{"open": {}, "v": 9}', "startingOffsets has offsets of version 9, but this tierfs supports only 1; upgrade"),
    ("newest", "invalid value 'newest' for option startingOffsets; expected earliest, latest, JSON, like"),
]


@pytest.mark.parametrize(("starts", "message"), REFUSED)
def test_wrong_offsets_are_one_clear_line_of_batch_and_stream(logs: app.Store, starts: object, message: str) -> None:
    for read in (Asked, batch):
        with pytest.raises(TierfsException, match=message):
            read(**options(logs, startingOffsets=starts))


def test_positions_that_are_gone(logs: app.Store) -> None:
    logs.engine.truncate("logs/b", 8, cold_due_ms=0)
    starts = {"": -1, "logs/b": 4, "logs/a": 99}
    for read in (Asked, batch):
        with pytest.raises(
            TierfsException, match=r"logs/b, which now starts at 8; set failOnDataLoss to false to start"
        ):
            read(**options(logs, startingOffsets={"logs/b": 4}))
    stream = Asked(**options(logs, startingOffsets=starts, failOnDataLoss="false"))
    assert by_segment(stream.rows()) == {"logs/b": ["three"]}


def test_a_stream_goes_on_where_the_progress_of_another_was(logs: app.Store) -> None:
    first = Asked(**options(logs))
    first.rows()
    append(logs, "logs/a", b"four\n")
    second = Asked(**options(logs, startingOffsets=first.at))
    assert by_segment(second.rows()) == {"logs/a": ["four"]}
    with pytest.raises(
        TierfsException, match=r"^startingOffsets belongs .* but this stream reads lines of logs .*endOff"
    ):
        Asked(**options(logs, startingOffsets=first.at) | {"path": "logs"})


def test_a_batch_lies_between_the_offsets_of_a_progress(logs: app.Store) -> None:
    """The same rows at each call, also of bytes that became cold and of a segment that grew."""
    stream = Asked(**options(logs))
    stream.rows()
    start = stream.at
    append(logs, "logs/a", b"four\n")
    append(logs, "logs/new", b"one\n")
    expected = sorted(stream.rows())
    append(logs, "logs/a", b"five\n")
    for _ in range(2):
        assert batch(**options(logs, startingOffsets=start, endingOffsets=stream.at)) == expected
        verbs.offload(logs)
    assert len(batch(**options(logs, endingOffsets=stream.at))) == 14
    assert len(batch(**options(logs, startingOffsets="earliest", endingOffsets=stream.at))) == 14
    assert by_segment(batch(**options(logs, startingOffsets=stream.at, endingOffsets="Latest"))) == {"logs/a": ["five"]}
    assert by_segment(batch(**options(logs, startingOffsets=stream.at))) == {"logs/a": ["five"]}
    with pytest.raises(
        TierfsException, match="endingOffsets has no offset of a stream, and the other one has; set both"
    ):
        batch(**options(logs, startingOffsets=start, endingOffsets={"logs/a": 4}))
    for name in ("startingOffsets", "endingOffsets"):
        with pytest.raises(TierfsException, match=f"^{name} belongs to a .* but this stream reads lines of logs"):
            batch(**options(logs, **{name: start}) | {"path": "logs"})


PLACE = {"store": "s", "path": "/"}
BOTH = [
    ({"startingTimestamp": "1700000000000", "startingOffsets": "latest"}, "startingTimestamp and startingOffsets are"),
    ({"endingTimestamp": "1700000000000", "endingOffsets": "latest"}, "endingTimestamp and endingOffsets are mutually"),
    ({"startingOffsetsByTimestamp": '{"a": 12}'}, "invalid value 12 for a in option startingOffsetsByTimestamp"),
    ({"startingOffsetsByTimestamp": "latest"}, "invalid value 'latest' for option startingOffsetsByTimestamp"),
]


@pytest.mark.parametrize(("given", "message"), BOTH)
def test_what_every_read_refuses(given: dict[str, str], message: str) -> None:
    for of in (ReadOptions.of, StreamOptions.of):
        with pytest.raises(InvalidRequest, match=message):
            of({**PLACE, **given})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"startingOffsets": "latest"}, "startingOffsets = latest is not supported for batches: nothing would be read"),
        ({"startingOffsets": '{"a": -1}'}, "startingOffsets = latest is not supported for batches"),
        ({"endingOffsets": "earliest"}, "endingOffsets = earliest is not supported: nothing would be read"),
    ],
)
def test_what_a_batch_refuses(given: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        ReadOptions.of({**PLACE, **given}).require_batch()


@pytest.mark.parametrize("name", ["endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp"])
def test_a_stream_has_no_end(name: str) -> None:
    value = {"endingOffsets": '{"a": 1}', "endingOffsetsByTimestamp": '{"a": "2031-01-30"}'}.get(name, "2031-01-30")
    with pytest.raises(InvalidRequest, match=f"{name} is not supported for streams"):
        StreamOptions.of({**PLACE, name: value})


def test_the_nearest_name_counts() -> None:
    named = NamedNumbers("o", {"": 1, "a": 2, "a/b": 3})
    assert [named.of(path) for path in ("x", "ax", "a/x", "a/b", "a/bx", "a/b/x/y")] == [1, 1, 2, 3, 2, 3]
    assert NamedNumbers("o", {"a": 1}).of("b/a") is None


def test_a_compressed_segment_is_read_whole_or_not_at_all(store: app.Store, tmp_path: Path) -> None:
    import gzip

    append(store, "s.gz", gzip.compress(DATA), seal=True)
    assert len(batch(**options(store, startingOffsets={"s.gz": -2}, endingOffsets={"s.gz": -1}))) == 3
    with pytest.raises(TierfsException, match="which can be read only from its start"):
        batch(**options(store, startingOffsets={"s.gz": 4}))


def test_time_is_taken_in_by_appends_too(store: app.Store) -> None:
    append(store, "s", b"one\n")
    later = Asked(**options(store, startingOffsetsByTimestamp={"s": int(time.time() * 1000) + 3_600_000}))
    append(store, "s", b"two\n")
    append(store, "t", b"new\n")
    assert by_segment(later.rows()) == {"s": ["two"], "t": ["new"]}
