"""The lag of followed logs: unread bytes of all and of the worst one, and how long lines have waited at least."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from tests.doubles.manual_clock import ManualClock
from tierfs.app.setup.create import init_store
from tierfs.app.store import open_store
from tierfs.base.words.types import ROOT_DIRECTORY, ByteRange
from tierfs.engine.metadata import followed
from tierfs.engine.metadata.followed_range import FollowedRange
from tierfs.upkeep.holder.follow_lag import FollowLag, follow_lag, unread_bytes

DAY_S = 24 * 3600


def row_of(path: Path, end: int) -> FollowedRange:
    status = path.stat()
    return FollowedRange(path=os.fsencode(path), device=status.st_dev, inode=status.st_ino, file_end=end)


class Logs:
    """A store, and files of which it has the first bytes."""

    def __init__(self, root: Path) -> None:
        self.root, self.clock = root, ManualClock()
        init_store(root / "store", clock=self.clock)

    def write(self, name: str, size: int, written_s: float) -> Path:
        """Write a file, `written_s` before now."""
        path = self.root / name
        path.write_bytes(b"x" * size)
        at_s = self.clock.now_ms() / 1000 - written_s
        os.utime(path, (at_s, at_s))
        return path

    def note(self, row: FollowedRange, name: str) -> None:
        """Let the store have the bytes of a range."""
        with open_store(self.root / "store", self.clock) as store, store.metadata.write() as txn:
            followed.note(txn, ROOT_DIRECTORY, name, row, ByteRange(0, row.file_end))

    def lag(self) -> FollowLag | None:
        """The lag now."""
        with open_store(self.root / "store", self.clock) as store:
            return follow_lag(store.metadata)


@pytest.fixture
def logs(tmp_path: Path) -> Logs:
    return Logs(tmp_path)


def test_a_log_that_is_read_to_its_end_has_no_lag(logs: Logs) -> None:
    assert logs.lag() == FollowLag()
    logs.note(row_of(logs.write("a", 10, 0), 10), "a")
    logs.clock.advance(DAY_S)
    assert logs.lag() == FollowLag(logs=1)


def test_unread_bytes_of_all_logs_and_of_the_worst(logs: Logs) -> None:
    for name, size in (("a", 15), ("b", 30), ("c", 10)):
        logs.note(row_of(logs.write(name, size, 0), 10), name)
    assert logs.lag() == FollowLag(3, 2, 25, "b", 20)


def test_an_idle_log_that_just_got_a_line_is_not_late(logs: Logs) -> None:
    path = logs.write("a", 10, 0)
    logs.note(row_of(path, 10), "a")
    logs.clock.advance(DAY_S)
    for written_s, waits_s in ((1, 0), (60, 60)):
        logs.write("a", 20, written_s)
        lag = logs.lag()
        assert lag is not None
        assert (lag.bytes, round(lag.longest_s)) == (10, waits_s)


def test_a_log_that_grows_and_is_not_read_waits_since_its_last_append(logs: Logs) -> None:
    logs.note(row_of(logs.write("a", 10, 0), 10), "a")
    logs.clock.advance(600)
    logs.write("a", 1 << 20, 0)
    lag = logs.lag()
    assert lag is not None
    assert round(lag.longest_s) == 600


def test_of_a_new_file_after_a_rotation_all_bytes_are_unread(logs: Logs) -> None:
    row = row_of(logs.write("a", 10, 0), 10)
    assert unread_bytes(replace(row, inode=row.inode + 1), (logs.root / "a").stat()) == 10
    assert unread_bytes(replace(row, file_end=11), (logs.root / "a").stat()) == 10


@pytest.mark.parametrize("row", [{"sender": "web1"}, {"cursor": "s=1"}])
def test_logs_of_other_hosts_and_journals_are_not_looked_at(logs: Logs, row: dict[str, str]) -> None:
    logs.note(replace(row_of(logs.write("a", 20, 60), 10), **row), "a")  # type: ignore[arg-type]
    assert logs.lag() == FollowLag()


def test_a_log_that_got_nothing_for_a_week_may_be_followed_no_more(logs: Logs) -> None:
    logs.note(row_of(logs.write("a", 20, 0), 10), "a")
    logs.clock.advance(7 * DAY_S)
    assert logs.lag() == FollowLag()
