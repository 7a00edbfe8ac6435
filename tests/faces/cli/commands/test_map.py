"""tierfs info --map: the location of a segment's bytes, as bars and as JSON."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.commands import tierfs
from tierfs.app.segment_map import Bar, BarRun, Mark
from tierfs.base.words.types import MIB, ByteRange
from tierfs.faces.cli.drawing.map import Row, draw, scale

PIPE_COLUMNS = 72


def row(label: str, noun: str, *runs: BarRun) -> Row:
    return Row(label, noun, len(runs), runs)


def run(start: int, end: int, mark: Mark = Mark.GOOD, owner: int = 0) -> BarRun:
    return BarRun(ByteRange(start, end), mark, owner)


def test_tiers_are_drawn_over_one_scale() -> None:
    local = row("local", "chunk", run(64, 128, owner=1), run(128, 192, Mark.ACTIVE, owner=2))
    cold = row("cold", "object", run(0, 64, owner=7), run(64, 128, owner=7))
    assert draw(ByteRange(0, 192), [local, cold], 53) == [
        "       0           96 B   192 B",
        "       ├───────────┼──────────┤",
        "local          ████████▒▒▒▒▒▒▒▒  2 chunks (▒ active)",
        "cold   ████████████████          1 object",
    ]


def test_an_empty_segment_has_a_scale_and_empty_bars() -> None:
    lines = draw(ByteRange(5, 5), [row("local", "chunk")], 40)
    assert lines[0].split() == ["5", "B", "5", "B"]
    assert lines[2].split() == ["local", "0", "chunks"]


@pytest.mark.parametrize("columns", [1, 20, 40, 72, 200])
@pytest.mark.parametrize("length", [0, 1, 3, 1000, 192 * MIB, (1 << 63) - 1])
def test_every_width_and_length(columns: int, length: int) -> None:
    extent = ByteRange(0, length)
    chunks = [run(0, length, owner=1)] if length else []
    lines = draw(extent, [row("local", "chunk", *chunks), row("cold", "object")], columns)
    assert len(lines) == 4
    assert max(map(len, lines)) <= max(columns, len("local  ") + 10 + len("  1 chunk (▒ active)"))
    assert ("█" in lines[2]) is (length > 0)
    assert " " not in lines[2][7:17] or not length


@given(
    st.integers(0, 1 << 40),
    st.integers(1, 1 << 40),
    st.integers(1, 200),
    st.lists(st.tuples(st.integers(0, 1 << 41), st.integers(1, 1 << 41)), max_size=5),
)
def test_what_is_there_is_seen_and_what_is_not_is_blank(
    start: int, length: int, cells: int, spans: list[tuple[int, int]]
) -> None:
    extent = ByteRange(start, start + length)
    bar = Bar(extent, cells)
    runs = [ByteRange(at, at + size).intersect(extent) for at, size in spans]
    for held in filter(None, runs):
        bar.paint(BarRun(held, Mark.GOOD))
    for cell, mark in enumerate(bar.cells):
        # In units of 1/cells bytes, so that cells have whole edges.
        left, right = start * cells + cell * length, start * cells + (cell + 1) * length
        there = any(held.start * cells < right and left < held.end * cells for held in runs if held)
        assert (mark is not Mark.NOTHING) is there


def test_the_rarer_mark_wins_a_cell_and_is_explained() -> None:
    marks = [run(0, 10), run(10, 20, Mark.SUSPECT), run(20, 30, Mark.LOST), run(30, 31, Mark.ACTIVE)]
    line = draw(ByteRange(0, 31), [row("local", "chunk", *marks)], 60)[2]
    assert line.endswith("(▒ active, ? suspect, x lost)")
    bar = Bar(ByteRange(0, 100), 1)
    bar.paint(run(0, 99))
    bar.paint(run(99, 100, Mark.LOST))
    assert bar.cells == [Mark.LOST]


@pytest.mark.parametrize(
    ("length", "cells", "numbers"),
    [
        (192 * MIB, 60, "0              48 MiB         96 MiB         144 MiB 192 MiB"),
        (192 * MIB, 30, "0              96 MiB  192 MiB"),
        (192 * MIB, 10, "0  192 MiB"),
        (4, 40, "0         1 B       2 B       3 B    4 B"),
        (3, 40, "0                                    3 B"),
        (0, 10, "0        0"),
    ],
)
def test_the_scale_has_as_many_labels_as_are_true_and_fit(length: int, cells: int, numbers: str) -> None:
    assert scale(ByteRange(0, length), cells)[0] == numbers


def test_many_chunks_are_read_one_by_one() -> None:
    chunks = (run(index * 10, index * 10 + 5) for index in range(20_000))
    tracemalloc.start()
    try:
        line = draw(ByteRange(0, 200_000), [Row("local", "chunk", 20_000, chunks)], PIPE_COLUMNS)[2]
        assert tracemalloc.get_traced_memory()[1] < MIB / 5
    finally:
        tracemalloc.stop()
    assert "█" * 10 in line


def test_a_terminal_is_used_as_wide_as_it_is(store: Path) -> None:
    tierfs("append", "s", store=store, stdin=b"x")
    ours, theirs = pty.openpty()
    columns = 110
    subprocess.run(["stty", "cols", str(columns)], stdin=theirs, check=True)
    words = [sys.executable, "-m", "tierfs", "--store", str(store), "info", "--map", "s"]
    subprocess.run(words, stdin=theirs, stdout=theirs, check=True, env={**os.environ, "COLUMNS": ""})
    os.close(theirs)
    lines = os.read(ours, 65536).decode().splitlines()
    os.close(ours)
    assert PIPE_COLUMNS < max(map(len, lines)) <= columns
