"""A progress bar on a terminal, and nothing elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tierfs.cli.session import Session
from tierfs.names import printable

Show = Callable[[int, int, str], None]
"""Takes the bytes done, the bytes in all, and the name of what is being worked on. Any thread may call it."""


@contextmanager
def progress_bar(session: Session, verb: str) -> Iterator[Show]:
    """Show how far a command is while the block runs, if somebody watches."""
    if not session.shows_progress:
        yield _show_nothing
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(verb, total=None)

        def show(done_bytes: int, total_bytes: int, item: str) -> None:
            bar.update(task, completed=done_bytes, total=total_bytes, description=f"{verb} {printable(item)}")

        yield show


def _show_nothing(done_bytes: int, total_bytes: int, item: str) -> None:
    """Nobody watches."""
