"""`tierfs follow` as a user runs it: once, all the time, and to see what is followed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands import tierfs
from tests.mount.waiting import eventually
from tierfs.app.follow import log_reader
from tierfs.base.words.names import printable

EXIT_INVALID, EXIT_NOT_FOUND, EXIT_SEALED = 2, 3, 7


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log with a line."""
    path = tmp_path / "logs" / "app.log"
    path.parent.mkdir()
    path.write_text("one\n")
    return path


def test_once_appends_what_is_new(store: Path, log: Path) -> None:
    first = tierfs("follow", log.parent, "--into", "in", "--once", store=store)
    assert first.out == "appended 4 B of 1 file\n"
    with log.open("a") as file:
        file.write("two\nthr")
    log.rename(log.with_name("app.log.1"))
    log.write_text("four\n")
    done = tierfs("follow", log.parent, "--into", "in", "--once", "--json", store=store).json
    assert done == {"logs": 1, "bytes": 13, "gaps": 0, "errors": []}
    assert tierfs("cat", "in/app.log", store=store).out == "one\ntwo\nthr\nfour\n"


def test_once_ends_with_the_code_of_the_first_error(store: Path, log: Path) -> None:
    tierfs("follow", log, "--into", "in", "--once", store=store)
    tierfs("seal", "in/app.log", store=store)
    with log.open("a") as file:
        file.write("two\n")
    done = tierfs("follow", log, "--into", "in", "--once", store=store, check=False)
    assert (done.code, "it is sealed" in done.err) == (EXIT_SEALED, True)


def test_nothing_to_follow_is_an_error(store: Path, tmp_path: Path) -> None:
    done = tierfs("follow", tmp_path / "*.log", "--into", "in", store=store, check=False)
    assert (done.code, "nothing to follow matches" in done.err) == (EXIT_NOT_FOUND, True)


@pytest.mark.parametrize(
    "words",
    [[], ["x"], ["--into", "in"], ["--list", "x"], ["--list", "--once"], ["--stop"], ["x", "--once", "--background"]],
)
def test_options_that_do_not_fit_are_refused(store: Path, words: list[str]) -> None:
    assert tierfs("follow", *words, store=store, check=False).code == EXIT_INVALID


def test_the_list_shows_files_segments_and_lag(store: Path, log: Path) -> None:
    assert tierfs("follow", "--list", store=store).out == ""
    tierfs("follow", log.parent, "--into", "in", "--once", store=store)
    with log.open("a") as file:
        file.write("more\n")
    shown = tierfs("follow", "--list", store=store).out.splitlines()
    assert shown[0].split() == ["FILE", "SEGMENT", "LAG", "STATE"]
    assert shown[1].startswith(f"{printable(str(log))}  in/app.log  5 B  ")
    (row,) = [tierfs("follow", "--list", "--into", "in", "--json", store=store).json]
    assert (row["segment"], row["offset"], row["lag_bytes"], row["state"]) == ("in/app.log", 4, 5, "followed")
    assert tierfs("follow", "--list", "--into", "other", store=store).out == ""


def test_a_follower_runs_until_it_is_ended(store: Path, log: Path) -> None:
    words = [sys.executable, "-m", "tierfs", "--store", str(store), "follow", str(log.parent), "--into", "in"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ))
    try:
        assert eventually(lambda: tierfs("cat", "in/app.log", store=store, check=False).out == "one\n")
        with log.open("a") as file:
            file.write("two\n")
        assert eventually(lambda: tierfs("cat", "in/app.log", store=store).out == "one\ntwo\n")
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert (process.returncode, out) == (0, "appended 8 B of 1 file\n")
    assert err == "following 1 file into in; Ctrl-C ends it\n"


def test_a_gap_is_reported_and_stays_in_the_status(store: Path, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_reader, "LOST_S", 0)
    tierfs("follow", log, "--into", "in", "--once", store=store)
    assert tierfs("status", "--json", store=store).json["gaps"] == []
    log.write_text("2\n")
    done = tierfs("follow", log, "--into", "in", "--once", store=store, check=False)
    assert (done.code, done.out) == (0, "appended 2 B of 1 file; 1 gap\n")
    assert f"tierfs: warning: {log}: lines may be missing before offset 4: after byte 4" in done.err
    (gap,) = tierfs("status", "--json", store=store).json["gaps"]
    assert (gap["segment"], gap["offset"], "was not found" in gap["why"]) == ("in/app.log", 4, True)
    assert "in/app.log: lines may be missing before offset 4, " in tierfs("status", store=store).out
    assert tierfs("follow", "--list", store=store).out.splitlines()[1].endswith("followed, 1 gap")


def test_a_daemon_follows_what_was_left_to_it(store: Path, log: Path) -> None:
    words = ("follow", log.parent, "--into", "in", "--background")
    first = tierfs(*words, store=store, check=False)
    assert (first.code, first.out) == (0, "following 1 file into in in the background\n")
    assert first.err == "no mount or daemon is running: nothing is appended until one starts\n"
    assert f"{log.parent} into in, waits for a mount" in tierfs("status", store=store).out
    daemon = subprocess.Popen([sys.executable, "-m", "tierfs", "--store", str(store), "daemon", "-f"])
    try:
        assert eventually(lambda: tierfs("cat", "in/app.log", store=store, check=False).out == "one\n")
        assert tierfs(*words, store=store).out == first.out, "again is no change"
        with log.open("a") as file:
            file.write("two\n")
        assert eventually(lambda: tierfs("cat", "in/app.log", store=store).out == "one\ntwo\n")
        other = log.parent.parent / "more.log"
        other.write_text("three\n")
        tierfs("follow", other, "--into", "more", "--background", store=store)
        assert eventually(lambda: tierfs("cat", "more/more.log", store=store, check=False).out == "three\n")
        assert {row["path"] for row in tierfs("status", "--json", store=store).json["follows"]} == {
            str(log.parent),
            str(other),
        }
        stopped = tierfs("follow", "--stop", "--into", "in", store=store)
        assert stopped.out == f"stopped following {log.parent}\n"
        assert tierfs("follow", "--stop", "--into", "in", store=store).out == "nothing is followed into in\n"
        assert eventually(lambda: tierfs("seal", "in/app.log", store=store, check=False).code == 0)
    finally:
        daemon.terminate()
        assert daemon.wait() == 0


def test_a_log_that_the_daemon_cannot_append_is_listed(store: Path, log: Path) -> None:
    tierfs("follow", log, "--into", "in", "--once", store=store)
    tierfs("seal", "in/app.log", store=store)
    log.write_text("one\ntwo\n")
    tierfs("follow", log, "--into", "in", "--background", store=store, check=False)
    daemon = subprocess.Popen([sys.executable, "-m", "tierfs", "--store", str(store), "daemon", "-f"])
    try:
        assert eventually(lambda: "it is sealed" in str(tierfs("status", "--json", store=store).json["troubles"]))
        tierfs("unseal", "in/app.log", store=store)
        assert eventually(lambda: tierfs("cat", "in/app.log", store=store).out == "one\ntwo\n")
        assert eventually(lambda: tierfs("status", "--json", store=store).json["troubles"] == [])
    finally:
        daemon.terminate()
        assert daemon.wait() == 0
