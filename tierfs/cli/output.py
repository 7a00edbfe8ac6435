"""Format numbers, times and tables for people and programs, and show progress on a terminal."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeVar

from tierfs import units
from tierfs.app.store import Store
from tierfs.cli.session import Session
from tierfs.names import printable
from tierfs.parallel import OnProgress, Progress, unseen

if TYPE_CHECKING:
    from rich.progress import ProgressColumn

    from tierfs.holder.verbs import Options, Verb


_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_STEP = 1024
_MS_PER_S = 1000
_SECONDS_PER_UNIT = {"d": 86_400, "h": 3600, "min": 60, "s": 1}

count = units.count
"""A number of things: `1 segment`, `2 directories`. Messages of lower layers use it too."""


def size(size_bytes: int) -> str:
    """Format a size with at most one decimal: `64 MiB`, `3.1 GiB`, `17 B`."""
    value, unit = float(size_bytes), 0
    while round(value, 1) >= _STEP and unit < len(_UNITS) - 1:
        value, unit = value / _STEP, unit + 1
    return f"{value:.1f}".removesuffix(".0") + f" {_UNITS[unit]}"


def timestamp(time_ms: int) -> str | None:
    """Format as ISO 8601 in UTC with milliseconds; None for 0, which stands for never."""
    if not time_ms:
        return None
    return _utc(time_ms).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def clock_time(time_ms: int) -> str:
    """Format as ISO 8601 in UTC to the second, for people; `-` for 0, which stands for never."""
    return _utc(time_ms).strftime("%Y-%m-%dT%H:%M:%SZ") if time_ms else "-"


def duration(length_s: float) -> str:
    """Format a time span in its two largest units: `17 s`, `3 min 5 s`, `4 h 12 min`, `2 d 3 h`."""
    rest, parts = int(length_s), list[str]()
    for unit, unit_s in _SECONDS_PER_UNIT.items():
        number, rest = divmod(rest, unit_s)
        if number or parts:
            parts.append(f"{number} {unit}")
    return " ".join(parts[:2]) or "0 s"


def table(rows: Iterable[Sequence[str]], *columns: str) -> str:
    """Lay out a table as one text."""
    return "\n".join(lines(rows, *columns))


def lines(rows: Iterable[Sequence[str]], *columns: str) -> list[str]:
    """Lay out a line for each row, with columns two spaces apart and no trailing spaces.

    A column is `<` (left) or `>` (right), optionally with its least width: `>10`. The default is two left columns.
    rich is not used for tables: its import takes 35 ms, and each row about a millisecond, and a listing may have
    100,000 rows.
    """
    cells = list(rows)
    if not cells:
        return []
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    specs = [
        f"{column[0]}{max(width, int(column[1:] or 0))}" for column, width in zip(columns or "<<", widths, strict=True)
    ]
    return ["  ".join(map(format, row, specs)).rstrip() for row in cells]


def wrapped(line: str, indent: str) -> str:
    """Return a line unchanged, or on a terminal wrapped between words, with `indent` before its later lines."""
    if not sys.stdout.isatty():
        return line
    width = shutil.get_terminal_size().columns
    return textwrap.fill(line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _utc(time_ms: int) -> datetime:
    return datetime.fromtimestamp(time_ms / _MS_PER_S, UTC)


R = TypeVar("R")

_BAR_WIDTH = 20
_SIZE_WIDTH = len(" 1,023.9/1,023.9 GiB")
_TIMES_WIDTH = len(" 1,023.9 MB/s 12:34:56")
_WIDE, _MEDIUM = 80, 60
"""Least columns of a terminal to show everything, and to show everything but the bar."""


@contextmanager
def progress_bar(session: Session, verb: str) -> Iterator[OnProgress]:
    """Show the progress of a command while the block runs, if the session shows progress."""
    if not session.shows_progress:
        yield unseen
        return
    from rich.console import Console
    from rich.progress import Progress as Bar

    console = Console(stderr=True)
    columns, room = _layout(console.width)
    with Bar(*columns, console=console, transient=True) as bar:
        task = bar.add_task(verb, total=None)

        def show(progress: Progress) -> None:
            description = _cut(f"{verb} {printable(progress.item)}", room)
            bar.update(task, completed=progress.done_bytes, total=progress.total_bytes, description=description)

        yield show


def _layout(width: int) -> tuple[list[ProgressColumn], int]:
    """Return the columns that fit into a terminal of this width, and the width they leave for the name."""
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn
    from rich.table import Column

    whole = Column(no_wrap=True)
    name = TextColumn("{task.description}", markup=False, table_column=whole.copy())
    bar = BarColumn(_BAR_WIDTH, table_column=whole.copy())
    size = DownloadColumn(binary_units=True, table_column=whole.copy())
    times = [TransferSpeedColumn(table_column=whole.copy()), TimeRemainingColumn(table_column=whole.copy())]
    if width >= _WIDE:
        return [name, bar, size, *times], width - _SIZE_WIDTH - _TIMES_WIDTH - _BAR_WIDTH - 1
    if width >= _MEDIUM:
        return [name, size, *times], width - _SIZE_WIDTH - _TIMES_WIDTH
    return [name, size], max(0, width - _SIZE_WIDTH)


def _cut(text: str, width: int) -> str:
    """Cut a text to at most `width` columns: a line that wraps would stay on the screen at every step."""
    from rich.text import Text

    line = Text(text)
    line.truncate(width, overflow="ellipsis")
    return line.plain


def perform_shown(session: Session, store: Store, verb: Verb[R], path: str, options: Options, title: str) -> R:
    """Perform a cold verb below a path with a progress bar; see holder.verbs.perform."""
    from tierfs.holder.verbs import perform

    with progress_bar(session, title) as show:
        return perform(store, verb, path, options, show)
