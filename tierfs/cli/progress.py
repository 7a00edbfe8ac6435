"""A progress bar on a terminal, and nothing elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from tierfs.app import Store
from tierfs.cli.session import Session
from tierfs.names import printable
from tierfs.parallel import OnProgress, Progress, unseen

if TYPE_CHECKING:
    from rich.progress import ProgressColumn

    from tierfs.background.verbs import Options, Verb

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
    from tierfs.background.perform import perform

    with progress_bar(session, title) as show:
        return perform(store, verb, path, options, show)
