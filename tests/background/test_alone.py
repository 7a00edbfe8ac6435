"""A store without a cold tier has retention, too."""

from __future__ import annotations

from pathlib import Path

from tierfs import app
from tierfs.background.alone_work import AloneWork
from tierfs.clock import ManualClock, SystemClock
from tierfs.metadata import directories, policies
from tierfs.types import ROOT_DIRECTORY

HOUR_S = 3600


def test_bytes_expire_without_a_cold_tier(tmp_path: Path) -> None:
    clock = ManualClock(SystemClock().now_ms())
    path = tmp_path / "store"
    app.init_store(path, app.ColdChoice(none=True))
    with app.open_store(path, clock) as store:
        with store.metadata.write() as txn:
            policies.put(txn, ROOT_DIRECTORY, {"retention_age": str(6 * HOUR_S)})
        work = AloneWork(store.alone_tools())
        writer = store.engine.open_writer("log")
        for hour in range(10):
            writer.append(b"%04d" % hour)
            clock.advance(HOUR_S)
            work.tidy()
            work.end_lifetimes()
            work.tidy()
        with store.metadata.read() as txn:
            segment = directories.segment_by_name(txn, "log")
            assert txn.sums is not None
            assert txn.sums.local_chunks == len(list((path / "chunks").glob("*/*")))
        assert (segment.start_offset, segment.length) == (16, 40)


def test_chunks_of_a_segment_that_keeps_its_bytes_are_not_ended(tmp_path: Path) -> None:
    """Nothing would ever join the many small files again."""
    clock = ManualClock(SystemClock().now_ms())
    app.init_store(tmp_path / "store", app.ColdChoice(none=True))
    with app.open_store(tmp_path / "store", clock) as store:
        work = AloneWork(store.alone_tools())
        writer = store.engine.open_writer("log")
        for _ in range(5):
            writer.append(b"x")
            clock.advance(HOUR_S)
            work.tidy()
        with store.metadata.read() as txn:
            assert directories.segment_by_name(txn, "log").local.count == 1
