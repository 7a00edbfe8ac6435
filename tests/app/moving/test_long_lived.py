"""Processes that live through a change of place read on as new ones do, and call no right bytes damaged.

Each of them has read from the place before; then the store moves, by `move` or by an address alone, and that place is
emptied. Bytes that are asked for afterwards are in the new place only.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest

from tests.app.moving.conftest import SIZE, Change, require_unaccused, text_of
from tests.commands import tierfs
from tests.faces.admin.conftest import serving as admin
from tests.mount.conftest import serving
from tierfs.app.fsck import Checking, Options
from tierfs.base.bytes.progress import Progress


class Program:
    """A program of its own that does a step for each line it is sent."""

    def __init__(self, *words: object) -> None:
        self._process = subprocess.Popen(
            [sys.executable, *map(str, words)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )

    def step(self, word: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{word}\n")
        return self._process.stdout.readline().rstrip("\n")

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()


@contextmanager
def running(*words: object) -> Iterator[Program]:
    program = Program(*words)
    try:
        yield program
    finally:
        program.end()


PYTHON = """
import sys, tierfs
store = tierfs.open_store(sys.argv[1])
kept = store.open("third")
kept.read(100)
for line in sys.stdin:
    name = line.strip()
    try:
        data = kept.read() if name == "kept" else store.open(name).read()
        print(len(data), data[-10:].hex(), flush=True)
    except Exception as error:
        print(type(error).__name__, error, flush=True)
"""

FSSPEC = """
import sys, fsspec
fs = fsspec.filesystem("tierfs", store=sys.argv[1])
for line in sys.stdin:
    try:
        data = fs.cat_file(line.strip())
        print(len(data), data[-10:].hex(), flush=True)
    except Exception as error:
        print(type(error).__name__, error, flush=True)
"""


def told(name: str, skip: int = 0) -> str:
    return f"{len(text_of(name)) - skip} {text_of(name)[-10:].hex()}"


def test_a_python_program(store: Path, change: Change) -> None:
    with running("-c", PYTHON, store) as program:
        assert program.step("first") == told("first")
        change(store)
        assert program.step("second") == told("second")
        assert program.step("kept") == told("third", skip=100)
    require_unaccused(store)


def test_an_fsspec_file_system(store: Path, change: Change) -> None:
    with running("-c", FSSPEC, store) as program:
        assert program.step("first") == told("first")
        change(store)
        assert program.step("second") == told("second")
    require_unaccused(store)


def test_a_mount_with_a_file_open(store: Path, change: Change, tmp_path: Path) -> None:
    (tmp_path / "mnt").mkdir()
    with serving(store, tmp_path / "mnt") as mounted, (mounted.path / "third").open("rb", buffering=0) as kept:
        assert kept.read(100) == text_of("third")[:100]
        assert (mounted.path / "first").read_bytes() == text_of("first")
        change(store)
        assert (mounted.path / "second").read_bytes() == text_of("second")
        assert kept.read(SIZE)[-10:] == text_of("third")[-10:]
    require_unaccused(store)


def test_cat_that_follows(store: Path, change: Change) -> None:
    command = [sys.executable, "-m", "tierfs", "--store", str(store), "cat", "-f", "first"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as following:
        try:
            assert following.stdout is not None
            assert following.stdout.read(len(text_of("first"))) == text_of("first")
            change(store)
            tierfs("-q", "append", "first", store=store, stdin=b"more\n" * 1000)
            tierfs("-q", "offload", store=store)
            tierfs("-q", "evict", store=store)
            assert following.stdout.read(5000) == b"more\n" * 1000
        finally:
            following.kill()


def test_an_admin_server(store: Path, change: Change) -> None:
    with admin(store) as served:
        assert served.ask("GET", "/v1/bytes/first").body == text_of("first")
        change(store)
        got = served.ask("GET", "/v1/bytes/second")
        assert (got.status, got.body) == (200, text_of("second"))
    require_unaccused(store)


@pytest.mark.parametrize("at", [1, 3, 5, 8])
def test_a_check_that_reads(store: Path, change: Change, at: int) -> None:
    """The place changes at one of its steps: the journal, the listing, one of the segments."""
    steps, found = count(1), []

    def shown(_: Progress) -> None:
        if next(steps) == at:
            change(store)

    summary = Checking(store, Options(deep=True), lambda outcome: found.append(str(outcome.finding)), shown).run()
    assert next(steps) > at
    assert (summary.damaged, summary.lost, summary.unchecked) == (0, 0, ""), found
    require_unaccused(store)
