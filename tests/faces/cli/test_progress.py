"""The line that shows a command's progress, on terminals of any width."""

from __future__ import annotations

import io
import re
import sys
from contextlib import suppress

import pytest
from rich.cells import cell_len

from tests.doubles.manual_clock import ManualClock
from tierfs.base.bytes.progress import Progress, doing
from tierfs.base.words.names import printable
from tierfs.base.words.types import MIB
from tierfs.faces.cli import output
from tierfs.faces.cli.drawing.progress import WINDOW_S, WorkRate, clock, line
from tierfs.faces.cli.progress import AFTER_S, ProgressLine

GIB = 1024 * MIB
NAMES = ["s", "logs/" * 40, "\u65e5\u672c\u8a9e" * 40, "a\x1b[2Jb\n" * 20]


def at(seconds: float, done_items: int, done_bytes: int, total_items: int = 100, total_bytes: int = 100 * MIB) -> str:
    """Draw the line of a work that went from nothing to this in so many seconds."""
    rate = WorkRate()
    rate.add(0, Progress(0, total_bytes, "a", 0, total_items))
    rate.add(seconds, now := Progress(done_bytes, total_bytes, "d/e/f.log", done_items, total_items))
    return line(now, rate, seconds, 120)


@pytest.mark.parametrize(
    ("work", "text"),
    [
        ((10, 50, 50 * MIB), "[0:10] 50.0%  50 / 100 segments, 50 MiB / 100 MiB, 5 MiB/s, 0:10 left, d/e/f.log"),
        ((10, 1204, 50 * MIB, 0, 0), "[0:10] 1,204 segments, 50 MiB, 5 MiB/s, d/e/f.log"),
        ((10, 1, 0, 0, 0), "[0:10] 1 segment, d/e/f.log"),
        ((2, 50, 0, 100, 0), "[0:02] 50.0%  50 / 100 segments, 25/s, 0:02 left, d/e/f.log"),
        ((1, 99_999, 0, 100_000, 0), "[0:01] 99.9%  99,999 / 100,000 segments, "),  # whole only at the end
        ((1, 100_000, 0, 100_000, 0), "[0:01] 100.0%  100,000 / 100,000 segments, "),
        # By bytes alone the share would be 99.8 %, and stay there for ten thousand segments.
        ((1, 1, GIB, 10_001, GIB + 10_000 * 200), "[0:01] 29.0%  1 / 10,001 segments, "),
    ],
)
def test_what_is_known_is_shown(work: tuple[int, ...], text: str) -> None:
    assert at(*work)[: len(text)] == text


def test_work_in_which_nothing_is_counted_is_named() -> None:
    rate = WorkRate()
    rate.add(3, doing("checking the journal"))
    assert line(doing("checking the journal"), rate, 3, 80) == "[0:03] checking the journal"


def test_a_rate_is_that_of_the_last_seconds() -> None:
    rate = WorkRate()
    for second in range(100):
        rate.add(second, Progress(second * MIB, 1000 * MIB, "s"))
    for second in range(1, 16):  # ten times as fast
        rate.add(99 + second, Progress((99 + 10 * second) * MIB, 1000 * MIB, "s"))
    assert rate.bytes_per_s == pytest.approx(10 * MIB)
    assert rate.left_s == pytest.approx((1000 - 249) / 10)
    rate.add(99 + 15 + WINDOW_S, Progress(249 * MIB, 1000 * MIB, "s"))  # a server that stands still
    assert (rate.bytes_per_s, rate.left_s) == (0, None)


@pytest.mark.parametrize(
    "other",
    [Progress(9, 0, "s", 9, 9, "object"), Progress(0, 0, "s", 0, 9), Progress(9, 9, "s", 9, 9)],
    ids=["another noun", "less is done", "another total"],
)
def test_a_stage_has_a_rate_of_its_own(other: Progress) -> None:
    rate = WorkRate()
    rate.add(0, Progress(0, 0, "s", 0, 9))
    rate.add(1, Progress(0, 0, "s", 5, 9))
    assert rate.items_per_s == 5
    rate.add(2, other)
    assert (rate.items_per_s, rate.left_s) == (0, None)


def test_times_are_clock_times() -> None:
    assert list(map(clock, (0, 59.9, 60, 3599, 3600))) == ["0:00", "0:59", "1:00", "59:59", "1:00:00"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("width", [1, 7, 20, 45, 59, 79, 80, 100, 200])
def test_a_line_never_wraps_and_loses_its_name_before_its_numbers(width: int, name: str) -> None:
    rate = WorkRate()
    rate.add(0, Progress(0, 1 << 40, name, 0, 10_000))
    now = Progress(1023 << 30, 1 << 40, name, 9_999, 10_000)
    rate.add(9, now)
    drawn = line(now, rate, 9, width)
    assert cell_len(drawn) <= width
    assert drawn.isprintable()
    assert width < 45 or "9,999 / 10,000 segments" in drawn
    assert width < 100 or drawn.endswith(printable(name)[-5:])


class Terminal(io.StringIO):
    """A terminal that keeps what is written to it."""

    @property
    def visible(self) -> str:
        """What the current line shows."""
        return re.split(r"\r\x1b\[K|\n", self.getvalue())[-1]


def test_a_line_comes_after_a_second_and_goes_for_other_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    time, terminal = ManualClock(), Terminal()
    shown = ProgressLine(terminal, time)
    shown.show(Progress(0, 0, "a", 1, 4))
    shown.tick()
    time.advance(AFTER_S - 0.01)
    shown.tick()
    assert terminal.getvalue() == ""
    time.advance(0.01)
    shown.tick()
    assert terminal.visible == "[0:01] 25.0%  1 / 4 segments, a"
    with shown.away():
        assert terminal.visible == ""
        terminal.write("a result\n")
    shown.show(Progress(0, 0, "b", 2, 4))
    shown.tick()
    assert terminal.visible == "[0:01] 50.0%  2 / 4 segments, b"
    shown.show(Progress(0, 0, "c", 3, 4))
    time.advance(1)
    shown.tick()
    assert terminal.visible == "[0:02] 75.0%  3 / 4 segments, 2/s, 0:01 left, c"


def test_a_line_that_is_over_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    time, terminal = ManualClock(), Terminal()
    shown = ProgressLine(terminal, time)
    with suppress(KeyboardInterrupt), shown:
        time.advance(5)
        shown.tick()
        assert terminal.visible
        raise KeyboardInterrupt
    assert terminal.visible == ""
    shown.tick()
    assert terminal.visible == ""


class Gone(io.StringIO):
    """A terminal that was closed."""

    def write(self, text: str) -> int:
        raise OSError(5, "Input/output error")


def test_work_goes_on_without_its_terminal() -> None:
    time = ManualClock()
    with ProgressLine(Gone(), time) as shown:
        time.advance(5)
        shown.tick()
        shown.show(Progress(0, 0, "a", 1, 4))
        shown.tick()


@pytest.mark.parametrize("columns", [40, 80])
def test_a_finding_breaks_between_words_on_a_terminal_only(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    line = "DAMAGE  missing-object        logs/web: " + "a copy is not there " * 12
    monkeypatch.setenv("COLUMNS", str(columns))
    assert output.wrapped(line, " " * 8) == line
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    lines = output.wrapped(line, " " * 8).splitlines()
    assert all(len(one) <= columns for one in lines)
    assert " ".join(lines).split() == line.split()
    assert all(one.startswith(" " * 8) for one in lines[1:])
