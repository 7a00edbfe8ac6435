"""Numbers and times in the form for people."""

from __future__ import annotations

from typing import Any

import pytest

from tierfs.faces.cli import output

SIZES = {0: "0 B", 17: "17 B", 1023: "1023 B", 4096: "4 KiB", 1536: "1.5 KiB", 64 << 20: "64 MiB"}
LARGE = {(1 << 20) - 1: "1 MiB", 3_328_599_654: "3.1 GiB", 1 << 62: "4 EiB"}
DURATIONS = {0: "0 s", 0.9: "0 s", 59: "59 s", 61: "1 min 1 s", 3600: "1 h 0 min", 273_600.5: "3 d 4 h"}


@pytest.mark.parametrize(
    ("form", "rows"),
    [
        (output.size, SIZES | LARGE),
        (output.duration, DURATIONS),
        (output.timestamp, {1_700_000_000_123: "2023-11-14T22:13:20.123Z", 0: None}),
        (output.clock_time, {1_700_000_000_999: "2023-11-14T22:13:20Z", 0: "-"}),
        (
            lambda count: output.count(count, "directory"),
            {1: "1 directory", 0: "0 directories", 1200: "1,200 directories"},
        ),
    ],
)
def test_numbers_have_their_form_for_people(form: Any, rows: dict[float, str | None]) -> None:
    assert {number: form(number) for number in rows} == rows


def test_tables_line_up() -> None:
    assert output.table([("a", "1"), ("long", "2")]) == "a     1\nlong  2"
    assert output.lines([("a", "1", ""), ("b", "22", "c")], ">3", ">", "<") == ["  a   1", "  b  22  c"]
    assert output.lines([], "<", ">10") == []
