"""Processes that live through a change of place read on as new ones do, and call no right bytes damaged.

Each of them has read from the place before; then the store moves, by `move` or by an address alone, and that place is
emptied. Bytes that are asked for afterwards are in the new place only.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest

from tests import forked
from tests.app.moving.conftest import SIZE, Change, require_unaccused, text_of
from tests.commands import tierfs
from tests.faces.admin.conftest import serving as admin
from tests.mount.conftest import serving
from tierfs.app.check import Checking, Options
from tierfs.base.bytes.progress import Progress


@contextmanager
def running(way: str, store: Path) -> Iterator[forked.Talking]:
    """A program of its own, see tests.app.moving.program."""
    program = forked.Talking("tests.app.moving.program", way, store, asks=True)
    try:
        yield program
    finally:
        program.end()


def answer(program: forked.Talking, word: str) -> str:
    program.ask(word)
    return program.line().rstrip("\n")


def told(name: str, skip: int = 0) -> str:
    return f"{len(text_of(name)) - skip} {text_of(name)[-10:].hex()}"


def test_a_python_program(store: Path, change: Change) -> None:
    with running("python", store) as program:
        assert answer(program, "first") == told("first")
        change(store)
        assert answer(program, "second") == told("second")
        assert answer(program, "kept") == told("third", skip=100)
    require_unaccused(store)


def test_an_fsspec_file_system(store: Path, change: Change) -> None:
    with running("fsspec", store) as program:
        assert answer(program, "first") == told("first")
        change(store)
        assert answer(program, "second") == told("second")
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
    reading, writing = os.pipe()
    with open(os.devnull, "r+b") as nothing, open(writing, "wb") as theirs, open(reading, "rb") as shown:
        streams = (nothing.fileno(), theirs.fileno(), nothing.fileno())
        following = forked.start("tierfs", ["--store", str(store), "cat", "-f", "first"], os.environ, streams)
        try:
            assert shown.read(len(text_of("first"))) == text_of("first")
            change(store)
            tierfs("-q", "append", "first", store=store, stdin=b"more\n" * 1000)
            tierfs("-q", "offload", store=store)
            tierfs("-q", "evict", store=store)
            assert shown.read(5000) == b"more\n" * 1000
        finally:
            following.kill()
            following.wait(30)


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
