"""Whether a file is the one that the store knows: by its bytes, in each form."""

from __future__ import annotations

import bz2
import gzip
import lzma
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from tierfs.app.follow import files
from tierfs.app.follow.plan import Match, SeenFile
from tierfs.base.bytes.checksum import crc32c
from tierfs.engine.metadata.followed_range import FollowedRange

DATA = bytes(range(256)) * 4
END = 700


def seen(path: Path, data: bytes) -> SeenFile:
    path.write_bytes(data)
    look = files.look_at(str(path), compressed=path.suffix in (".gz", ".xz", ".bz2"))
    assert look is not None
    return look


def known_of(data: bytes, end: int) -> FollowedRange:
    head, tail = data[: min(256, end)], data[max(0, end - 256) : end]
    return FollowedRange(
        path=b"",
        file_end=end,
        head_length=len(head),
        head_crc32c=crc32c(head),
        tail_length=len(tail),
        tail_crc32c=crc32c(tail),
    )


def changed(at: int) -> bytes:
    return DATA[:at] + b"?" + DATA[at + 1 :]


def test_a_file_is_known_by_its_first_bytes_and_by_those_before_its_place(tmp_path: Path) -> None:
    known = known_of(DATA, END)
    for data, match in (
        (DATA, Match.SAME),
        (DATA[:END], Match.SAME),
        (changed(END), Match.SAME),
        (changed(0), Match.OTHER),
        (changed(255), Match.OTHER),
        (changed(END - 1), Match.OTHER),
        (changed(END - 256), Match.OTHER),
        (DATA[: END - 1], Match.SHORTER),
        (b"", Match.OTHER),
    ):
        assert files.matches(known, seen(tmp_path / "f", data)) is match


def test_a_short_copy_is_known_by_the_beginning_that_is_at_hand(tmp_path: Path) -> None:
    copy = seen(tmp_path / "f", DATA[:100])
    assert files.matches(known_of(DATA, END), copy) is Match.OTHER
    assert files.matches(known_of(DATA, END), copy, DATA[:256]) is Match.SHORTER
    assert files.matches(known_of(DATA, END), copy, DATA[1:256]) is Match.OTHER


def test_a_file_that_had_no_bytes_is_known_by_its_inode(tmp_path: Path) -> None:
    file = seen(tmp_path / "f", DATA)
    known = FollowedRange(path=b"", device=file.device, inode=file.inode)
    assert files.matches(known, file) is Match.SAME
    assert files.matches(replace(known, inode=1), file) is Match.OTHER


def test_an_end_that_no_one_has_read_needs_the_bytes_to_be_there(tmp_path: Path) -> None:
    known = replace(known_of(DATA, END), tail_length=0, tail_crc32c=0)
    assert files.matches(known, seen(tmp_path / "f", changed(END - 1))) is Match.SAME
    assert files.matches(known, seen(tmp_path / "f", DATA[: END - 1])) is Match.SHORTER


@pytest.mark.parametrize(("end", "pack"), [(".gz", gzip.compress), (".xz", lzma.compress), (".bz2", bz2.compress)])
def test_a_compressed_file_is_known_by_what_is_in_it(tmp_path: Path, end: str, pack: Callable[[bytes], bytes]) -> None:
    known, path = known_of(DATA, END), tmp_path / f"f{end}"
    assert files.matches(known, seen(path, pack(DATA))) is Match.SAME
    assert files.matches(known, seen(path, pack(changed(0)))) is Match.OTHER
    assert files.matches(known, seen(path, pack(DATA[: END - 1]))) is Match.SHORTER
    assert files.matches(known, seen(path, pack(DATA)[:40])) is Match.UNKNOWN
    with closing(files.opened(seen(path, pack(DATA)))) as file:
        assert [file.read(*place) for place in ((0, 10), (500, 10), (1000, 100), (20, 5))] == [
            DATA[:10],
            DATA[500:510],
            DATA[1000:],
            DATA[20:25],
        ]


def test_another_file_of_the_name_is_not_opened(tmp_path: Path) -> None:
    file = seen(tmp_path / "f", DATA)
    (tmp_path / "g").write_bytes(DATA)
    (tmp_path / "g").rename(tmp_path / "f")
    with pytest.raises(files.Unreadable, match="is another file now"):
        files.opened(file)
    assert files.matches(known_of(DATA, END), file) is Match.UNKNOWN
