"""Printing results: lines for people, objects for programs, a progress bar for a terminal."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tierfs.app import Progress
from tierfs.cli.context import Context
from tierfs.names import printable


def emit(fields: dict[str, Any]) -> None:
    """One JSON object on one line."""
    print(json.dumps(fields, ensure_ascii=False))


def warn(context: Context, text: str) -> None:
    """One line on standard error, unless quiet."""
    if not context.quiet:
        print(f"tierfs: warning: {text}", file=sys.stderr)


@contextmanager
def progress(context: Context, verb: str) -> Iterator[Callable[[Progress], None]]:
    """A progress bar on a terminal; elsewhere nothing."""
    if context.quiet or context.as_json or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TransferSpeedColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(binary_units=True), TransferSpeedColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(verb, total=None)

        def show(now: Progress) -> None:
            bar.update(
                task, completed=now.done_bytes, total=now.total_bytes, description=f"{verb} {printable(now.item)}"
            )

        yield show
