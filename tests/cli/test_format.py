"""Numbers and times in the form for people."""

from __future__ import annotations

import pytest

from tierfs.cli import output


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0 B"),
        (17, "17 B"),
        (1023, "1023 B"),
        (4096, "4 KiB"),
        (1536, "1.5 KiB"),
        (64 << 20, "64 MiB"),
        ((1 << 20) - 1, "1 MiB"),
        (3_328_599_654, "3.1 GiB"),
        (1 << 62, "4 EiB"),
    ],
)
def test_sizes(number: int, text: str) -> None:
    assert output.size(number) == text


def test_counts() -> None:
    assert output.count(1, "directory") == "1 directory"
    assert output.count(1200, "directory") == "1,200 directories"
    assert output.count(0, "chunk") == "0 chunks"


def test_times() -> None:
    assert output.timestamp(1_700_000_000_123) == "2023-11-14T22:13:20.123Z"
    assert output.timestamp(0) is None
    assert output.clock_time(1_700_000_000_999) == "2023-11-14T22:13:20Z"
    assert output.clock_time(0) == "-"


def test_tables_line_up() -> None:
    assert output.table([("a", "1"), ("long", "2")]) == "a     1\nlong  2"
    assert output.lines([("a", "1", ""), ("b", "22", "c")], ">3", ">", "<") == ["  a   1", "  b  22  c"]
    assert output.lines([], "<", ">10") == []
