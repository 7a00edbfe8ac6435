"""Numbers, times and tables as people and programs read them.

A progress bar on a terminal, and nothing elsewhere.
"""

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
"""A number of things: `1 segment`, `2 directories`. Messages of lower layers have them as well."""


def size(size_bytes: int) -> str:
    """A size with at most one decimal: `64 MiB`, `3.1 GiB`, `17 B`."""
    value, unit = float(size_bytes), 0
    while round(value, 1) >= _STEP and unit < len(_UNITS) - 1:
        value, unit = value / _STEP, unit + 1
    return f"{value:.1f}".removesuffix(".0") + f" {_UNITS[unit]}"


def timestamp(time_ms: int) -> str | None:
    """ISO 8601 in UTC with milliseconds; None for a time that never was (0)."""
    if not time_ms:
        return None
    return _utc(time_ms).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def clock_time(time_ms: int) -> str:
    """ISO 8601 in UTC to the second, for people; `-` for a time that never was (0)."""
    return _utc(time_ms).strftime("%Y-%m-%dT%H:%M:%SZ") if time_ms else "-"


def duration(length_s: float) -> str:
    """A time span in its two largest units: `17 s`, `3 min 5 s`, `4 h 12 min`, `2 d 3 h`."""
    rest, parts = int(length_s), list[str]()
    for unit, unit_s in _SECONDS_PER_UNIT.items():
        number, rest = divmod(rest, unit_s)
        if number or parts:
            parts.append(f"{number} {unit}")
    return " ".join(parts[:2]) or "0 s"


def table(rows: Iterable[Sequence[str]], *columns: str) -> str:
    """Lay out the lines of a table as one text."""
    return "\n".join(lines(rows, *columns))


def lines(rows: Iterable[Sequence[str]], *columns: str) -> list[str]:
    """Lay out a line for each row, with its columns two spaces apart and no spaces at its end.

    A column is `<` or `>`, to the left or to the right, and perhaps its least width: `>10`. Two are the default.
    rich does not lay out tables: its import takes 35 ms, and each row about a millisecond, where a listing may have
    100,000 of them.
    """
    cells = list(rows)
    if not cells:
        return []
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    specs = [f"{one[0]}{max(width, int(one[1:] or 0))}" for one, width in zip(columns or "<<", widths, strict=True)]
    return ["  ".join(map(format, row, specs)).rstrip() for row in cells]


def wrapped(line: str, indent: str) -> str:
    """A line as it is; on a terminal in as many as it takes, broken between words, later ones behind `indent`."""
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
"""Columns of a terminal that has room for everything, and for everything but the bar."""


@contextmanager
def progress_bar(session: Session, verb: str) -> Iterator[OnProgress]:
    """Show how far a command is while the block runs, if somebody watches."""
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
    """The numbers for which a terminal of this width has room, and how much they leave for the name."""
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
    """Text that takes at most `width` columns: a line that wraps would stay on the screen at every step."""
    from rich.text import Text

    line = Text(text)
    line.truncate(width, overflow="ellipsis")
    return line.plain


def perform_shown(session: Session, store: Store, verb: Verb[R], path: str, options: Options, title: str) -> R:
    """Perform a cold verb below a path with a progress bar; see background.perform."""
    from tierfs.holder.verbs import perform

    with progress_bar(session, title) as show:
        return perform(store, verb, path, options, show)
