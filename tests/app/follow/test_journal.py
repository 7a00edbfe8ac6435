"""The journal of systemd, read by the real journalctl from files that systemd's own tool wrote."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.app.follow.served import serving
from tests.commands import Done, tierfs
from tests.mount.waiting import eventually

REMOTE = Path("/lib/systemd/systemd-journal-remote")
FIRST_US = 1_700_000_000_000_000
EXIT_UNAVAILABLE = 11

pytestmark = pytest.mark.skipif(
    not (REMOTE.exists() and shutil.which("journalctl")), reason="needs journalctl and systemd-journal-remote"
)


class Journal:
    """A directory with files of a journal."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.entries = 0
        path.mkdir()

    def add(self, count: int, file: str = "a", unit: str = "web.service") -> None:
        """Add entries to a file, whose messages are consecutive numbers."""
        text = ""
        for number in range(self.entries, self.entries + count):
            fields = {
                "__REALTIME_TIMESTAMP": FIRST_US + number,
                "__MONOTONIC_TIMESTAMP": 1 + number,
                "_BOOT_ID": "0" * 31 + "1",
                "MESSAGE": f"entry {number}",
                "_SYSTEMD_UNIT": unit,
            }
            text += "".join(f"{name}={value}\n" for name, value in fields.items()) + "\n"
        self.entries += count
        words = [str(REMOTE), "-o", str(self.path / f"{file}.journal"), "-"]
        subprocess.run(words, input=text.encode(), check=True, capture_output=True)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "store"
    tierfs("-q", "init", store=path)
    return path


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "journal")


def follow(store: Path, journal: Journal, *words: str, check: bool = True) -> Done:
    places = ("--journal-directory", journal.path, "--into", "in", "--once")
    return tierfs("follow", "--journal", *words, *places, store=store, check=check)


def messages(store: Path, name: str = "in/journal") -> list[str]:
    lines = tierfs("cat", name, store=store).out.splitlines()
    return [json.loads(line)["MESSAGE"] for line in lines]


def numbers(first: int, last: int) -> list[str]:
    return [f"entry {number}" for number in range(first, last)]


def test_each_entry_is_a_line_once(store: Path, journal: Journal) -> None:
    journal.add(3)
    follow(store, journal)
    assert follow(store, journal).out == "appended 0 B of 1 file\n"
    journal.add(300)
    journal.add(2, "b")
    follow(store, journal)
    assert messages(store) == numbers(0, 305)
    assert "in/journal" in tierfs("follow", "--list", store=store).out


def test_entries_are_sent_to_another_host_once(tmp_path: Path, journal: Journal) -> None:
    with serving(tmp_path) as served:
        words = ("follow", "--journal", "--journal-directory", journal.path, "--into", "hosts/web1", "--once")
        to = ("--to", f"http://127.0.0.1:{served.port}", "--token-file", served.token)
        for count in (3, 0, 300):
            journal.add(count)
            tierfs(*words, *to)
        lines = served.text("hosts/web1/journal").splitlines()
    assert [json.loads(line)["MESSAGE"] for line in lines] == numbers(0, 303)


def test_an_entry_that_the_journal_lost_is_a_gap(store: Path, journal: Journal) -> None:
    journal.add(2)
    follow(store, journal)
    (journal.path / "a.journal").unlink()
    journal.add(2, "b")
    done = follow(store, journal, check=False)
    assert (done.code, "entries may be missing before offset" in done.err) == (0, True)
    assert messages(store) == numbers(0, 4)
    assert len(tierfs("status", "--json", store=store).json["gaps"]) == 1


def test_a_segment_without_a_record_continues_after_its_last_entry(
    store: Path, journal: Journal, tmp_path: Path
) -> None:
    """As after the recovery of a store, or where others appended."""
    journal.add(3)
    follow(store, journal)
    text = tierfs("cat", "in/journal", store=store).out
    tierfs("append", "other/journal", store=store, stdin=(text[:-20]).encode())
    words = ("follow", "--journal", "--journal-directory", journal.path, "--into", "other", "--once")
    tierfs(*words, store=store)
    lines = tierfs("cat", "other/journal", store=store).out.splitlines()
    assert lines[:2] == text.splitlines()[:2]
    assert lines[2] == text.splitlines()[2][:-19], "the rest of an entry, as it was"
    assert [json.loads(line)["MESSAGE"] for line in lines[3:]] == ["entry 2"]


def test_a_directory_without_a_journal_is_an_error(store: Path, tmp_path: Path) -> None:
    words = ("follow", "--journal", "--journal-directory", tmp_path / "none", "--into", "in", "--once")
    done = tierfs(*words, store=store, check=False)
    assert (done.code, "journalctl ended with 1" in done.err) == (EXIT_UNAVAILABLE, True)


def has_all(store: Path, journal: Journal) -> bool:
    is_there = tierfs("ls", "in", store=store, check=False).code == 0
    return is_there and messages(store) == numbers(0, journal.entries)


@contextmanager
def following(store: Path, journal: Journal) -> Iterator[subprocess.Popen[bytes]]:
    words = ["follow", "--journal", "--journal-directory", str(journal.path), "--into", "in"]
    process = subprocess.Popen([sys.executable, "-m", "tierfs", "-q", "--store", str(store), *words], env=os.environ)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_entries_are_appended_as_they_arrive_and_after_a_kill(store: Path, journal: Journal) -> None:
    journal.add(2)
    for _ in range(2):
        with following(store, journal) as process:
            journal.add(2)
            assert eventually(lambda: has_all(store, journal))
            process.kill()
    with following(store, journal) as process:
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) in (0, -signal.SIGTERM)
    assert messages(store) == numbers(0, journal.entries)
