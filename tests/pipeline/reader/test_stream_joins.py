"""Streams whose segments are concatenated to each other, or come back from dumps, between and within batches."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.mount.conftest import append
from tests.pipeline.reader.test_stream import LINES, Query, store
from tierfs.app import store as app
from tierfs.app.dump import dump_segment
from tierfs.base.bytes import joins
from tierfs.base.words.errors import DataLoss
from tierfs.pipeline.reader.selection import Selection
from tierfs.upkeep.holder.perform import perform
from tierfs.upkeep.holder.verbs import ACCEPT_LOSS, LOAD, flags

__all__ = ["store"]


def test_the_target_is_read_or_else_the_source_was_read_to_its_end(store: app.Store) -> None:
    append(store, "in/a", b"one\n")
    append(store, "in/b", b"two\n")
    append(store, "out", b"zero\n")
    append(store, "pieces/s", b"piece\n", seal=True)
    query = Query(store, replace(LINES, name="in", selection=Selection(("in",), recursive=True)))
    query.drain()
    store.engine.seal("in/a")
    store.engine.concat("out", "in/a")
    store.engine.concat("in/b", "pieces/s")
    append(store, "in/b", b"three\n")
    query.restart()
    query.drain()
    assert query.values() == [b"one", b"piece", b"three", b"two"]
    append(store, "in/b", b"four\n", seal=True)
    store.engine.concat("out", "in/b")
    with pytest.raises(DataLoss, match="segment in/b, read up to 16 of 21, was concatenated to out, which is not read"):
        query.trigger()


def test_a_line_across_the_joint_is_refused_by_name(store: app.Store) -> None:
    append(store, "t", b"one\nhalf")
    append(store, "s", b"two\n", seal=True)
    query = Query(store)
    query.drain()
    store.engine.concat("t", "s")
    with pytest.raises(DataLoss, match=r"segment t: its bytes 8 to 12 were read before .* a line crosses"):
        query.trigger()


@pytest.mark.parametrize("limit", [None, 1, 3])
def test_a_source_that_was_unsealed_before_it_was_read_is_no_loss(store: app.Store, limit: int | None) -> None:
    append(store, "t", b"0\n")
    append(store, "s", b"1\n", seal=True)
    store.engine.unseal("s")
    append(store, "s", b"2\n", seal=True)
    store.engine.concat("t", "s")
    store.engine.seal("t")
    query = Query(store)
    query.drain(limit)
    append(store, "u", b"3\n")
    query.drain(limit)
    assert query.values() == [b"0", b"1", b"2", b"3"]


def test_more_joins_than_are_kept_stop_a_stream_that_lags_and_no_other(store: app.Store) -> None:
    append(store, "t", b"first\n")
    lagging = Query(store)
    lagging.drain()
    append(store, "s0", b"0\n", seal=True)
    lagging.drain()
    store.engine.concat("t", "s0")
    for number in range(1, joins.MAX_JOINS + 3):
        append(store, f"s{number}", b"%d\n" % number, seal=True)
        store.engine.concat("t", f"s{number}")
    with pytest.raises(DataLoss, match="segment t: many segments were concatenated to it since it was read up to 6"):
        lagging.trigger()
    for limit in (None, 3):
        fresh = Query(store)
        fresh.drain(limit)
        assert fresh.values() == sorted([b"first", *(b"%d" % n for n in range(joins.MAX_JOINS + 3))])


def concat(store: app.Store, target: str, *sources: str) -> None:
    for source in sources:
        store.engine.seal(source)
        store.engine.concat(target, source)


def test_a_batch_that_is_read_again_has_the_same_rows_after_concats(store: app.Store) -> None:
    append(store, "a", b"one", seal=True)  # and no line of two segments
    for name, value in (("b", b"two\n"), ("c", b"three\n"), ("d", b"four\n")):
        append(store, name, value)
    query = Query(store)
    query.trigger()
    concat(store, "c", "b")
    append(store, "c", b"five\n")
    query.trigger()
    append(store, "e", b"later\n")
    concat(store, "e", "a", "d", "c")
    query.restart()
    for start, end, rows in query.log:
        assert {row[2] for row in query.between(start, end)} == {row[2] for row in rows}


def test_a_segment_that_is_loaded_from_a_dump_is_read_anew(store: app.Store, expected_warnings: list[str]) -> None:
    for name, value in (("t", b"one\n"), ("s", b"two\n"), ("u", b"three\n")):
        append(store, name, value)
    query = Query(store, replace(LINES, fail_on_data_loss=False))
    query.trigger()
    concat(store, "t", "s")
    dump_segment(store, "t")
    concat(store, "u", "t")
    perform(store, LOAD, "t", flags({ACCEPT_LOSS: True}))  # of its bytes none was cold
    append(store, "t", b"four\nfive\nsix\n")
    query.restart()
    query.drain(5)
    assert query.values() == sorted([b"one", b"two", b"three", b"four", b"five", b"six"])
