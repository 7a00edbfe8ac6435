"""Files that appear as a whole and replace nothing."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tierfs.app.export_files import write_new
from tierfs.base.words.errors import AlreadyExists, DataLoss


def broken() -> Iterator[bytes]:
    yield b"begun"
    raise DataLoss("the rest is gone")


def test_a_file_that_cannot_be_finished_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(DataLoss):
        write_new(tmp_path / "f", broken())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("other", [b"", b"ab", b"abcd", b"abx"])
def test_a_file_of_other_bytes_stays(tmp_path: Path, other: bytes) -> None:
    (tmp_path / "f").write_bytes(other)
    with pytest.raises(AlreadyExists):
        write_new(tmp_path / "f", [b"ab", b"", b"c"])
    assert (tmp_path / "f").read_bytes() == other


def test_a_file_that_has_these_bytes_already_is_success(tmp_path: Path) -> None:
    assert write_new(tmp_path / "f", [b"ab", b"", b"c"])
    assert not write_new(tmp_path / "f", [b"abc"])


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "f").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(AlreadyExists):
        write_new(tmp_path / "f", [b"abc"])
    assert not (tmp_path / "elsewhere").exists()


def test_where_there_are_no_hard_links_a_file_is_renamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", refuse)
    assert write_new(tmp_path / "f", [b"abc"])
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"abc"]
