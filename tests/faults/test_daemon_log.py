"""The one handler of a daemon: a record that cannot be written is dropped and counted, and nothing is raised."""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.disks import disk, fill
from tierfs.base.system import daemon_log
from tierfs.base.system.daemon_log import DaemonLog, LogFile, Terminal

LOST = "lines of this log could not be written: "
ROTATED_BYTES = 10 << 20


def record(text: str, *values: object) -> logging.LogRecord:
    return logging.LogRecord("tierfs.x", logging.WARNING, __file__, 1, text, values, None)


@contextmanager
def closing(handler: DaemonLog) -> Iterator[DaemonLog]:
    try:
        yield handler
    finally:
        handler.close()


def test_a_full_disk_costs_lines_and_says_how_many(tmp_path: Path) -> None:
    with disk(tmp_path / "disk", 1 << 20) as path, closing(LogFile(path / "a.log")) as log:
        log.handle(record("first"))
        fill(path / "fill")
        for number in range(200):  # some fit into the last page, one of them in part
            log.handle(record("%d: %s", number, "x" * 100))
        (path / "fill").unlink()
        log.handle(record("last"))
        lines = (path / "a.log").read_text().splitlines()
    assert "first" in lines[0]
    assert f"{LOST}[Errno 28]" in lines[-2]
    assert lines[-1].endswith("tierfs.x: last")


def test_a_directory_that_is_gone_or_another_file_in_the_way_ends_nothing(tmp_path: Path) -> None:
    with closing(LogFile(tmp_path / "none/a.log")) as log:
        log.handle(record("dropped"))
        log.reopen()
        (tmp_path / "none").mkdir()
        log.handle(record("kept"))
        first, second = (tmp_path / "none/a.log").read_text().splitlines()
    assert ("2 lines" in first, "kept" in second) == (True, True)


def test_a_record_that_cannot_be_formatted_is_dropped(tmp_path: Path) -> None:
    with closing(LogFile(tmp_path / "a.log")) as log:
        log.handle(record("%d", "no number"))
        log.handle(record("next"))
    assert "1 lines" in (tmp_path / "a.log").read_text()


def test_a_moved_log_is_written_anew_and_a_long_one_turns_over(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    with closing(LogFile(path)) as log:
        log.handle(record("one"))
        path.rename(tmp_path / "moved")
        log.handle(record("two"))
        log.reopen()
        log.handle(record("three"))
        assert "two" in (tmp_path / "moved").read_text()
        for number in range(8):
            os.truncate(path, ROTATED_BYTES)
            log.handle(record("after %d", number))
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [
        *(["a.log"]),
        *(f"a.log.{n}" for n in range(1, 6)),
        "moved",
    ]
    assert "after 7" in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("stream", ["full", "gone", "stopped"])
def test_a_terminal_that_takes_nothing_holds_nothing_up(stream: str, monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    monkeypatch.setattr(daemon_log, "_STDERR_FD", os.open("/dev/full", os.O_WRONLY) if stream == "full" else writing)
    if stream == "gone":
        os.close(reading)
    with closing(Terminal()) as log:
        long = [record("x" * 5000)] * (2000 if stream == "stopped" else 2)
        logging_thread = threading.Thread(target=lambda: [log.handle(each) for each in long], daemon=True)
        logging_thread.start()
        logging_thread.join(20)
        assert not logging_thread.is_alive()
        assert log._lost
        if stream == "stopped":
            os.set_blocking(reading, False)
            while os.read(reading, 1 << 20):
                log.handle(record("again"))
                if log._lost == 0:
                    break
            assert LOST.encode() in os.read(reading, 1 << 20)


def test_a_daemon_has_one_handler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own, root = logging.getLogger("tierfs"), logging.getLogger()
    monkeypatch.setattr(own, "handlers", [logging.StreamHandler()])
    monkeypatch.setattr(root, "handlers", [])
    before = own.level, root.level
    try:
        daemon_log.begin(tmp_path / "a.log")
        daemon_log.set_format("debug", "json")
        logging.getLogger("tierfs.x").debug("seen")
        logging.getLogger("botocore").debug("not seen")
        assert (len(own.handlers), len(root.handlers)) == (0, 1)
        assert json.loads((tmp_path / "a.log").read_text())["message"] == "seen"
    finally:
        root.handlers[0].close()
        own.setLevel(before[0])
        root.setLevel(before[1])
