"""Progress and findings on terminals of any width."""

from __future__ import annotations

import io
import sys

import pytest
from rich.cells import cell_len
from rich.console import Console
from rich.progress import Progress

from tierfs.cli import output
from tierfs.cli.output import _cut, _layout

NAMES = ["s", "logs/" * 40, "\u65e5\u672c\u8a9e" * 40]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("width", [20, 30, 45, 59, 60, 79, 80, 100, 200])
def test_a_progress_line_never_wraps_and_keeps_its_numbers(width: int, name: str) -> None:
    columns, room = _layout(width)
    bar = Progress(*columns, console=Console(width=width, file=io.StringIO()))
    task = bar.add_task("", total=None)
    bar.update(task, completed=1023 << 30, total=(1 << 40) - 1, description=_cut(f"offloading {name}", room))
    with bar.console.capture() as captured:
        bar.console.print(bar.get_renderable())
    (line,) = captured.get().splitlines()
    assert cell_len(line.rstrip()) <= width
    assert width < 30 or "1,023.0/1,024.0 GiB" in line


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
