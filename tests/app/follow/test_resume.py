"""A segment that has bytes and no record: it continues where the files of its log have its last bytes."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.app.follow.following import Following

LINES = [f"{number} of many lines, each with its own number\n" for number in range(1000)]


@pytest.fixture
def following(tmp_path: Path) -> Iterator[Following]:
    made = Following(tmp_path)
    yield made
    made.restart()


def have(following: Following, text: str) -> None:
    """Give the segment bytes by hand, as another program or the recovery of a store would."""
    writer = following.store.engine.open_writer("in/app.log")
    writer.append(text.encode())
    following.store.engine.close_writer(writer)


@pytest.mark.parametrize("length", [1, 60, 61, 400, 999])
def test_the_rest_of_a_file_is_appended(following: Following, length: int) -> None:
    (following.logs / "app.log").write_text("".join(LINES))
    have(following, "".join(LINES[:length]))
    following.look()
    assert following.text() == "".join(LINES)


def test_a_segment_that_ends_in_a_line_gets_the_rest_of_it(following: Following) -> None:
    text = "".join(LINES)
    (following.logs / "app.log").write_text(text)
    have(following, text[:20_007])
    following.look()
    assert following.text() == text


@pytest.mark.parametrize("length", [300, 500, 501, 530, 700, 701, 999])
def test_the_place_may_be_in_a_rotated_file(following: Following, length: int) -> None:
    (following.logs / "app.log.2.gz").write_bytes(gzip.compress("".join(LINES[:500]).encode()))
    (following.logs / "app.log.1").write_text("".join(LINES[500:700]))
    (following.logs / "app.log").write_text("".join(LINES[700:]))
    have(following, "".join(LINES[:length]))
    following.look(2)
    assert following.text() == "".join(LINES)


def test_bytes_that_no_file_has_are_followed_by_the_whole_file(following: Following) -> None:
    (following.logs / "app.log").write_text("".join(LINES))
    have(following, "something else\n")
    following.look()
    assert following.text() == "something else\n" + "".join(LINES)


def test_a_log_that_repeats_itself_is_rather_appended_twice(following: Following) -> None:
    (following.logs / "app.log").write_text("again\n" * 3000)
    have(following, "again\n" * 1000)
    following.look()
    assert following.text() == "again\n" * 4000
