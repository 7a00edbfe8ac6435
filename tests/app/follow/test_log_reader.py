"""One log and its reader, without a store."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tierfs.app.follow import files
from tierfs.app.follow.earlier_files import EarlierFiles
from tierfs.app.follow.log_reader import LogReader
from tierfs.app.follow.plan import SeenFile
from tierfs.base.words.types import ByteRange
from tierfs.engine.metadata.followed_range import FollowedRange

LIMIT = 1000


EARLIER = EarlierFiles()


def look(reader: LogReader, now_s: float = 0.0) -> None:
    """Look at the names of a log, as a follower does: each look lists its directory anew."""
    EARLIER.renew()
    reader.look(now_s)
    EARLIER.renew()


def take_all(reader: LogReader, now_s: float = 0.0) -> bytes:
    """Look, and take what a reader has, as if it were appended."""
    look(reader, now_s)
    data, length = b"", reader.ranges[-1].segment_end if reader.ranges else 0
    while (lines := reader.next(LIMIT, now_s)) is not None:
        reader.took(lines, ByteRange(length, length + len(lines.data)), 0)
        data, length = data + lines.data, length + len(lines.data)
    return data


def test_lines_are_returned_until_they_are_taken(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"one\ntwo\n")
    reader = LogReader(str(tmp_path / "log"), "log", EARLIER)
    reader.reset((), 0)
    look(reader)
    assert reader.next(LIMIT, 0) == reader.next(LIMIT, 0)
    assert take_all(reader) == b"one\ntwo\n"
    assert reader.next(LIMIT, 0) is None
    reader.close()


def test_a_stream_that_lost_its_end_gets_these_lines_again(tmp_path: Path) -> None:
    """As after the recovery of a store whose newest bytes were on its lost disk alone."""
    (tmp_path / "log").write_bytes(b"one\ntwo\nthree\n")
    reader = LogReader(str(tmp_path / "log"), "log", EARLIER)
    reader.reset((), 0)
    assert take_all(reader) == b"one\ntwo\nthree\n"
    for length in (9, 8, 2):
        reader.reset(reader.ranges, length)
        assert take_all(reader) == b"one\ntwo\nthree\n"[length:]
    reader.reset(reader.ranges, 0)
    assert take_all(reader) == b"one\ntwo\nthree\n"
    reader.close()


def test_a_look_during_a_rename_counts_for_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The names shift by one in the middle of a look: it sees the file that it knows, and passes over the next one."""
    (tmp_path / "log").write_bytes(b"one\n")
    reader = LogReader(str(tmp_path / "log"), "log", EARLIER)
    reader.reset((), 0)
    assert take_all(reader) == b"one\n"
    (tmp_path / "log").rename(tmp_path / "log.2")
    (tmp_path / "log.1").write_bytes(b"two\n")
    (tmp_path / "log").write_bytes(b"three\n")
    look_at = files.look_at

    def look_and_shift(path: str, *, compressed: bool = False) -> SeenFile | None:
        seen = look_at(path, compressed=compressed)
        if path.endswith("log.2") and not (tmp_path / "log.3").exists():
            for old, new in (("log.2", "log.3"), ("log.1", "log.2"), ("log", "log.1")):
                (tmp_path / old).rename(tmp_path / new)
            (tmp_path / "log").write_bytes(b"four\n")
        return seen

    look(reader)
    monkeypatch.setattr(files, "look_at", look_and_shift)
    assert reader.next(LIMIT, 0) is None
    assert b"".join(take_all(reader, now_s) for now_s in range(4)) == b"two\nthree\nfour\n"
    assert (tmp_path / "log.3").exists()
    reader.close()


def take(reader: LogReader, limit: int) -> bytes:
    """Take the next lines alone, as a round of a follower does."""
    lines = reader.next(limit, 0)
    assert lines is not None
    length = reader.ranges[-1].segment_end if reader.ranges else 0
    reader.took(lines, ByteRange(length, length + len(lines.data)), 0)
    return lines.data


def copy_and_truncate(log: Path) -> None:
    """Rotate a log as `copytruncate` does."""
    if (first := log.with_name("log.1")).exists():
        first.rename(log.with_name("log.2"))
    first.write_bytes(log.read_bytes())
    os.truncate(log, 0)


def test_a_log_that_is_truncated_and_filled_again_between_two_reads_continues_in_its_copy(tmp_path: Path) -> None:
    (log := tmp_path / "log").write_bytes(b"one\ntwo\n")
    reader = LogReader(str(log), "log", EARLIER)
    reader.reset((), 0)
    look(reader)
    assert take(reader, 4) == b"one\n"
    copy_and_truncate(log)
    log.write_bytes(b"three\nfour\n")
    assert reader.next(LIMIT, 0) is None
    assert b"".join(take_all(reader, now_s) for now_s in range(2)) == b"two\nthree\nfour\n"
    reader.close()


def test_a_log_that_is_truncated_and_filled_again_before_its_first_read_is_read_in_its_copy(tmp_path: Path) -> None:
    (log := tmp_path / "log").write_bytes(b"one\n")
    reader = LogReader(str(log), "log", EARLIER)
    reader.reset((), 0)
    assert take_all(reader) == b"one\n"
    with log.open("ab") as file:
        file.write(b"two\n")
    copy_and_truncate(log)
    log.write_bytes(b"three\n")
    look(reader)
    assert take(reader, LIMIT) == b"two\n"
    copy_and_truncate(log)
    log.write_bytes(b"tenth\n")
    assert b"".join(take_all(reader, now_s) for now_s in range(3)) == b"three\ntenth\n"
    reader.close()


def test_few_files_are_open_while_many_are_read(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"0\n")
    reader = LogReader(str(log), "log", EARLIER)
    reader.reset((), 0)
    assert take_all(reader) == b"0\n"
    for number in range(1, 20):
        log.rename(tmp_path / f"log-202601{number:02d}")
        log.write_bytes(b"%d\n" % number)
    look(reader)
    for number in range(1, 19):
        assert take(reader, LIMIT) == b"%d\n" % number
        assert reader.open_files <= 3
    assert b"".join(take_all(reader, now_s) for now_s in range(2)) == b"19\n"
    reader.close()


def test_another_file_with_the_same_inode_is_not_continued(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"one\n")
    reader = LogReader(str(path), "log", EARLIER)
    reader.reset((), 0)
    take_all(reader)
    known: Sequence[FollowedRange] = [replace(each, device=each.device) for each in reader.ranges]
    reader.close()
    path.write_bytes(b"another, and longer\n")
    reader.reset(known, 4)
    assert take_all(reader) == b""
    assert reader.is_lost
    assert take_all(reader, 60) == b"another, and longer\n"
    assert [bool(each.gap) for each in reader.ranges] == [False, True]
    reader.close()
