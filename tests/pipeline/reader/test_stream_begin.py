"""Streams that begin at a place in each segment, as one that is given by a time."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests import verbs
from tests.mount.conftest import append
from tests.pipeline.reader.reading import Row, fill, store_of
from tests.pipeline.reader.test_lines import lines_of
from tests.pipeline.reader.test_stream import BYTES, ENTRIES, LINES, Query, add_entries, new_ledger
from tierfs.app import store as app
from tierfs.base.words.errors import InvalidRequest
from tierfs.pipeline.reader.line_format import LineFormat, Separator
from tierfs.pipeline.reader.selection import Selection
from tierfs.pipeline.reader.stream import StreamRead
from tierfs.pipeline.reader.stream_plan import StartPlace, StreamOffset


@pytest.fixture
def store(tmp_path: Path) -> Iterator[app.Store]:
    with store_of(tmp_path / "store") as opened:
        yield opened


def begun_at(store: app.Store, offsets: dict[str, int], read: StreamRead = LINES) -> Query:
    """A query that begins at byte offsets, by names."""
    query = Query(store, read)
    query.checkpoint = json.dumps(query.stream.starting_at(lambda one, _: StartPlace(offsets[one.path])).as_json())
    return query


def begin_of_line(data: bytes, separator: Separator, offset: int, *, sealed: bool) -> int:
    """The first line that begins at an offset or later; if none is known to, the one that is not complete."""
    pattern = b"\r\n|\n|\r" if separator.text is None else re.escape(separator.text)
    starts = [0, *(found.end() for found in re.finditer(pattern, data))]
    if separator.text is None and data.endswith(b"\r") and not sealed:
        starts.pop()
    return next((start for start in starts if start >= offset), len(data) if sealed else starts[-1])


ENDS = [(b"\r", b"\nb\r\nc"), (b"\r", b"b||"), (b"||", b"")]
"""Last bytes of a segment where a stream begins, and those that are appended then."""


@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize("separator", [None, b"||", b"|a|"])
def test_lines_begin_at_each_offset_or_after_it(store: app.Store, separator: bytes | None, *, sealed: bool) -> None:
    form, begins = LineFormat(separator=Separator(separator)), b"a\r\nbc\n\r||a|a|\r\n|a||x"
    queries: list[tuple[Query, list[Row]]] = []
    for number, (end, more) in enumerate(ENDS):
        name, data = f"s{number}", begins + end
        fill(store, data, name=name, cold_bytes=len(begins) // 2, seal=sealed)
        read = replace(LINES, lines=form, cold_only=True, selection=Selection((name,)))
        for offset in range(len(data) + 1):
            begin = begin_of_line(data, form.separator, offset, sealed=sealed)
            rows = lines_of(data if sealed else data + more, form.separator, name)
            queries.append((begun_at(store, {name: offset}, read), [row for row in rows if row[1] >= begin]))
    for query, _ in queries[::2]:
        query.drain(9)
    for number, (_, more) in enumerate(ENDS):
        if not sealed:
            append(store, f"s{number}", more, seal=True)
    verbs.offload(store)
    for query, expected in queries:
        query.drain()
        assert query.rows == expected
        assert StreamOffset.of(json.loads(query.checkpoint)).open == {}


def test_segments_that_appear_later_are_read_whole(store: app.Store) -> None:
    append(store, "old", b"one\ntwo\n", seal=True)
    append(store, "open", b"one\ntwo\n")
    append(store, "begun", b"one\ntwo\n", seal=True)
    query = begun_at(store, {"old": 8, "open": 8, "begun": 4})
    assert query.trigger() == [("begun", 4, b"two")]
    append(store, "open", b"three\n")
    append(store, "new", b"one\n", seal=True)
    query.restart()
    assert query.trigger() == [("new", 0, b"one"), ("open", 8, b"three")]


def test_a_segment_that_was_joined_before_is_no_more_read_than_it_begins(store: app.Store) -> None:
    """What a stream read in a source before is skipped in its target: here it read none of either."""
    for name in ("b", "c", "a"):
        append(store, name, name.encode() * 3 + b"\n", seal=name != "a")
    store.engine.concat("a", "b")
    store.engine.concat("a", "c")
    assert begun_at(store, {"a": 4}).trigger() == [("a", 4, b"bbb"), ("a", 8, b"ccc")]
    assert begun_at(store, {"a": 6}).trigger() == [("a", 8, b"ccc")]
    assert begun_at(store, {"a": 6}, BYTES).trigger() == [("a", 6, b"b\n"), ("a", 8, b"ccc\n")]


def test_entries_begin_at_the_one_of_an_offset(store: app.Store) -> None:
    name = new_ledger(store)
    add_entries(store, name, b"one", b"", b"two", b"")
    assert begun_at(store, {name: 3}, ENTRIES).trigger() == [(name, 2, 3), (name, 3, 0)]
    query = begun_at(store, {name: 6}, ENTRIES)
    assert query.trigger() is None
    add_entries(store, name, b"three")
    assert query.trigger() == [(name, 4, 5)]


def test_nothing_is_there_yet(store: app.Store) -> None:
    query = begun_at(store, {})
    assert query.trigger() is None
    append(store, "s", b"one\n")
    assert query.trigger() == [("s", 0, b"one")]


def test_compressed_segments_are_refused(store: app.Store) -> None:
    append(store, "s.gz", b"x", seal=True)
    with pytest.raises(InvalidRequest, match=r"s\.gz has a name of a compressed file"):
        begun_at(store, {"s.gz": 0}, replace(LINES, lines=LineFormat(decompresses=True)))
