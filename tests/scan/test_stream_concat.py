"""Streams over segments that are concatenated meanwhile: each row once, or an error that names the segment."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.mount.conftest import append
from tests.scan.scanning import store_of
from tests.scan.test_stream import BYTES, LINES, Query, lines
from tierfs import joins
from tierfs.app import store as app
from tierfs.errors import DataLoss
from tierfs.joins import Join, Joins
from tierfs.scan.selection import Selection
from tierfs.types import SegmentId


@pytest.fixture
def store(tmp_path: Path) -> Iterator[app.Store]:
    with store_of(tmp_path / "store") as opened:
        yield opened


def concat(store: app.Store, target: str, source: str) -> None:
    store.engine.concat(target, source)


def values(query: Query) -> list[object]:
    """The lines that were read, in any order and under any name."""
    return sorted(row[2] for row in query.rows)  # type: ignore[type-var]


def drain(query: Query, limit: int | None = None) -> None:
    while query.trigger(limit) is not None:
        pass


def below(path: str) -> Query | object:
    return replace(LINES, name=path, selection=Selection((path,), recursive=True))


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("limit", [None, 1, 7])
def test_rows_of_a_source_that_was_read_are_not_read_again(
    store: app.Store, limit: int | None, *, restarts: bool
) -> None:
    append(store, "t", b"one\n")
    append(store, "s", b"two\nthree\n", seal=True)
    query = Query(store)
    drain(query, limit)
    append(store, "t", b"four\n")
    concat(store, "t", "s")
    append(store, "t", b"five\n")
    if restarts:
        query.restart()
    drain(query, limit)
    assert values(query) == [b"five", b"four", b"one", b"three", b"two"]
    query.restart()
    for start, end, rows in query.log[-1:]:
        assert query.between(start, end) == rows


def test_a_source_that_was_read_in_part_is_read_on_in_its_target(store: app.Store) -> None:
    append(store, "s", b"one\ntwo\nthree\n")
    append(store, "t", b"zero\n")
    query = Query(store)
    assert query.trigger(5) == lines("s", b"one")
    store.engine.seal("s")
    concat(store, "t", "s")
    drain(query)
    assert values(query) == [b"one", b"three", b"two", b"zero"]
    append(store, "t", b"four\n", seal=True)
    drain(query)
    assert values(query) == [b"four", b"one", b"three", b"two", b"zero"]


def test_a_source_whose_head_was_cut_off_behind_what_was_read_is_read_from_there_on(store: app.Store) -> None:
    append(store, "s", b"one\ntwo\nthree\n")
    append(store, "t", b"zero\n")
    query = Query(store)
    assert query.trigger(4) == lines("s", b"one")
    store.engine.truncate("s", 8, cold_due_ms=0)
    store.engine.seal("s")
    concat(store, "t", "s")
    drain(query)
    assert values(query) == [b"one", b"three", b"zero"]
    query.restart()
    start, end, rows = query.log[-1]
    assert query.between(start, end) == rows


@pytest.mark.parametrize("limit", [None, 1, 9])
def test_a_source_that_was_never_read_is_read_in_its_target(store: app.Store, limit: int | None) -> None:
    """Also when newer segments were read before it, and where its last line ends in the target alone."""
    append(store, "t", b"one\n")
    query = Query(store)
    drain(query)
    append(store, "s", b"two\nthr", seal=True)
    concat(store, "t", "s")
    append(store, "u", b"new\n")
    drain(query, limit)
    append(store, "v", b"newer\n")
    drain(query, limit)
    append(store, "t", b"ee\nfour\n")
    drain(query, limit)
    assert values(query) == [b"four", b"new", b"newer", b"one", b"three", b"two"]


def test_a_source_that_was_read_to_its_end_is_no_loss(store: app.Store) -> None:
    """Its target is not read by this stream."""
    append(store, "in/a", b"one\n")
    append(store, "in/b", b"two\n")
    append(store, "all", b"zero\n")
    query = Query(store, below("in"))  # type: ignore[arg-type]
    drain(query)
    store.engine.seal("in/a")
    concat(store, "all", "in/a")
    append(store, "in/b", b"three\n")
    query.restart()
    drain(query)
    assert values(query) == [b"one", b"three", b"two"]
    append(store, "in/b", b"four\n", seal=True)
    concat(store, "all", "in/b")
    with pytest.raises(DataLoss, match="segment in/b, read up to 10 of 15, was concatenated to all, which is not read"):
        query.trigger()


def test_a_source_outside_the_selection_is_read_in_its_target(store: app.Store) -> None:
    append(store, "in/t", b"one\n")
    append(store, "pieces/s", b"two\n", seal=True)
    query = Query(store, below("in"))  # type: ignore[arg-type]
    drain(query)
    concat(store, "in/t", "pieces/s")
    drain(query)
    assert values(query) == [b"one", b"two"]


def test_sources_of_sources(store: app.Store) -> None:
    append(store, "a", b"a\n", seal=True)
    append(store, "t", b"t\n")
    append(store, "b", b"b\n")
    query = Query(store)
    drain(query)
    append(store, "n", b"n\n", seal=True)
    concat(store, "b", "a")
    concat(store, "b", "n")
    append(store, "b", b"m\n", seal=True)
    concat(store, "t", "b")
    query.restart()
    drain(query)
    assert values(query) == [b"a", b"b", b"m", b"n", b"t"]


def test_a_line_across_the_joint_is_refused_by_name(store: app.Store) -> None:
    append(store, "t", b"one\nhalf")
    append(store, "s", b"two\n", seal=True)
    query = Query(store)
    drain(query)
    concat(store, "t", "s")
    with pytest.raises(DataLoss, match=r"segment t: its bytes 8 to 12 were read before .* a line crosses"):
        query.trigger()


def test_bytes_have_no_lines_to_cross(store: app.Store) -> None:
    append(store, "t", b"one\nhalf")
    append(store, "s", b"two", seal=True)
    query = Query(store, BYTES)
    drain(query)
    concat(store, "t", "s")
    append(store, "t", b"!")
    assert query.trigger() == [("t", 11, b"!")]


def test_a_batch_whose_source_was_joined_since_is_read_again_in_the_target(store: app.Store) -> None:
    append(store, "t", b"one\n")
    append(store, "s", b"two\nthree\n")
    query = Query(store)
    query.trigger(8)
    query.trigger()
    store.engine.seal("s")
    query.trigger()
    append(store, "t", b"four\n")
    concat(store, "t", "s")
    query.restart()
    for start, end, rows in query.log:
        assert sorted(row[2] for row in query.between(start, end)) == sorted(row[2] for row in rows)  # type: ignore[type-var]
    drain(query)
    assert values(query) == [b"four", b"one", b"three", b"two"]


def test_more_joins_than_are_kept_stop_a_stream_that_lags_and_no_other(store: app.Store) -> None:
    append(store, "t", b"first\n")
    lagging = Query(store)
    drain(lagging)
    append(store, "s0", b"0\n", seal=True)
    drain(lagging)
    concat(store, "t", "s0")
    for number in range(1, joins.MAX_JOINS + 3):
        append(store, f"s{number}", b"%d\n" % number, seal=True)
        concat(store, "t", f"s{number}")
    with pytest.raises(DataLoss, match="segment t: many segments were concatenated to it since it was read up to 6"):
        lagging.trigger()
    for limit in (None, 3):
        fresh = Query(store)
        drain(fresh, limit)
        append(store, "u", b"u\n")
        drain(fresh, limit)
        assert values(fresh)[: joins.MAX_JOINS + 4] == sorted(
            [b"first", *(b"%d" % n for n in range(joins.MAX_JOINS + 3))]
        )


@pytest.mark.parametrize("count", [0, 1, joins.MAX_JOINS - 1, joins.MAX_JOINS, joins.MAX_JOINS + 1, 200])
def test_joins_are_bounded(count: int) -> None:
    made = [Join(at, at + 1, SegmentId(at + 5), at + 5, at + 5, 0, f"s{at}") for at in range(count)]
    kept = Joins.of(made)
    assert kept.is_sound
    assert len(kept.names) == min(count, joins.MAX_JOINS)
    assert sum(join.end - join.start for join in kept) == count
    assert list(Joins.of(kept)) == list(kept)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(["append", "append", "concat", "trigger", "restart"]),
            st.sampled_from("abcd"),
            st.sampled_from("abcd"),
            st.one_of(st.none(), st.integers(1, 20)),
        ),
        max_size=25,
    )
)
def test_every_line_once(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, str, str, int | None]]
) -> None:
    with store_of(tmp_path_factory.mktemp("stream") / "store") as store:
        query, written, there, number = Query(store), list[bytes](), set[str](), 0
        for what, name, other, limit in steps:
            if what == "restart":
                query.restart()
            elif what == "trigger":
                query.trigger(limit)
            elif what == "append":
                number += 1
                append(store, name, b"%d\n" % number)
                written.append(b"%d" % number)
                there.add(name)
            elif {name, other} <= there and name != other:
                store.engine.seal(other)
                concat(store, name, other)
                there.discard(other)
        drain(query)
        assert values(query) == sorted(written)
