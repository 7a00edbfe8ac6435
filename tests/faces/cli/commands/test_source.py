"""Input in blocks: full blocks, early blocks, and recognition of the last."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tierfs.app import inputs
from tierfs.app.inputs import InputSource, blocks
from tierfs.base.words.errors import IsDirectory, NotFound, PermissionDenied
from tierfs.faces.cli.commands import append

BLOCK = 8


def read(stream: InputSource) -> list[tuple[bytes, bool]]:
    return [(bytes(block.data), block.last) for block in blocks(stream, BLOCK)]


@pytest.mark.parametrize("length", [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 3 * BLOCK + 5])
def test_files_come_in_full_blocks_and_the_last_is_known(tmp_path: Path, length: int) -> None:
    data = bytes(range(length))
    (tmp_path / "f").write_bytes(data)
    with InputSource([str(tmp_path / "f")]) as stream:
        found = read(stream)
    assert b"".join(part for part, _ in found) == data
    assert all(len(part) == BLOCK for part, _ in found[:-1])
    assert [last for _, last in found] == [False] * (len(found) - 1) + [True] * bool(found)


def test_files_follow_each_other_as_one_stream(tmp_path: Path) -> None:
    for name, text in (("a", b"abc"), ("b", b""), ("c", b"defghij")):
        (tmp_path / name).write_bytes(text)
    with InputSource([str(tmp_path / name) for name in "abc"]) as stream:
        assert read(stream) == [(b"abcdefgh", False), (b"ij", True)]


@pytest.fixture
def pipe(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[InputSource, int]]:
    """Replace stdin by a pipe; yield its input and the descriptor that writes to it."""
    read_end, write_end = os.pipe()
    monkeypatch.setattr(inputs, "STDIN_FD", read_end)
    with InputSource([inputs.STDIN]) as stream:
        yield stream, write_end
    os.close(read_end)


def test_slow_bytes_are_handed_on_without_waiting_for_more(pipe: tuple[InputSource, int]) -> None:
    stream, write_end = pipe
    parts = blocks(stream, BLOCK)
    for text in (b"one", b"two"):
        os.write(write_end, text)
        block = next(parts)
        assert (bytes(block.data), block.last) == (text, False)
    os.close(write_end)
    assert list(parts) == []


def test_a_full_block_is_handed_on_while_the_pipe_stays_open(pipe: tuple[InputSource, int]) -> None:
    stream, write_end = pipe
    os.write(write_end, b"x" * BLOCK)
    block = next(blocks(stream, BLOCK))
    assert (len(block.data), block.last) == (BLOCK, False)
    os.close(write_end)


def test_a_pipe_that_has_ended_gives_a_last_block(pipe: tuple[InputSource, int]) -> None:
    stream, write_end = pipe
    os.write(write_end, b"x" * (BLOCK + 2))
    os.close(write_end)
    assert read(stream) == [(b"x" * BLOCK, False), (b"xx", True)]


def test_unreadable_input_is_found_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NotFound, match="none does not exist"):
        append.check_readable([inputs.STDIN, str(tmp_path / "none")])
    with pytest.raises(IsDirectory, match="is a directory"):
        append.check_readable([str(tmp_path)])
    (tmp_path / "secret").touch()
    monkeypatch.setattr(os, "access", lambda *_, **__: False)  # root may read everything
    with pytest.raises(PermissionDenied, match="secret cannot be read"):
        append.check_readable([str(tmp_path / "secret")])
