"""Streams of segments that were concatenated after their heads had been cut off."""

from __future__ import annotations

from pathlib import Path

from tests.mount.conftest import append
from tests.pipeline.reader.reading import store_of
from tests.pipeline.reader.test_stream import Query, lines


def test_a_source_whose_head_was_cut_off_behind_what_was_read_is_read_from_there_on(tmp_path: Path) -> None:
    with store_of(tmp_path / "store") as store:
        append(store, "s", b"one\ntwo\nthree\n")
        append(store, "t", b"zero\n")
        query = Query(store)
        assert query.trigger(4) == lines("s", b"one")
        store.engine.truncate("s", 8, cold_due_ms=0)
        store.engine.seal("s")
        store.engine.concat("t", "s")
        query.drain()
        assert query.values() == [b"one", b"three", b"zero"]
        query.restart()
        start, end, rows = query.log[-1]
        assert query.between(start, end) == rows
