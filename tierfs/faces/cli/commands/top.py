"""Define tierfs top: watch a mount live."""

from __future__ import annotations

import os
import select
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path

import click

from tierfs.app.setup.typed import only_mount
from tierfs.faces.cli.drawing.top import ORDERS, Frame, draw, frame
from tierfs.faces.cli.drawing.top_view import View
from tierfs.faces.cli.group import command
from tierfs.faces.cli.mount_stats import read_stats
from tierfs.faces.cli.parameter_types import Duration
from tierfs.faces.cli.session import Session

_INPUT_FD, _OUTPUT_FD = 0, 1

# Keys that end the display; a read of nothing means that the terminal is gone.
_END = (b"q", b"Q", b"")

# Least interval: a shorter one shows only the reading of the statistics itself.
_SHORTEST_INTERVAL_S = 0.1

# TERM of a terminal that cannot move its cursor, such as one inside an editor.
_NO_CURSOR = "dumb"

_Show = Callable[[Frame, Path], None]
# Waits, at most so many s, and returns the key that was pressed; None for none.
_Wait = Callable[[float], bytes | None]


@contextmanager
def _keys() -> Iterator[_Wait]:
    """Read single keys without echo in the block. Ctrl-C raises KeyboardInterrupt. Without a terminal it only waits."""
    if not (os.isatty(_INPUT_FD) and os.isatty(_OUTPUT_FD)):

        def pause(timeout_s: float) -> None:
            time.sleep(timeout_s)

        yield pause
        return

    def wait(timeout_s: float) -> bytes | None:
        ready, _, _ = select.select([_INPUT_FD], [], [], timeout_s)
        return os.read(_INPUT_FD, 1) if ready else None

    before = termios.tcgetattr(_INPUT_FD)
    tty.setcbreak(_INPUT_FD)
    try:
        yield wait
    finally:
        termios.tcsetattr(_INPUT_FD, termios.TCSADRAIN, before)


@command("top")
@click.argument("mountpoint", metavar="[MOUNT]", required=False, type=click.Path(path_type=Path))
@click.option(
    "--interval-s",
    type=Duration(_SHORTEST_INTERVAL_S),
    metavar="TIME",
    default=1.0,
    show_default=True,
    help="Time between frames, in seconds or like 500ms.",
)
@click.option("--sort", "order", type=click.Choice([*ORDERS]), default="read", help="Order of the open segments.")
@click.option("--once", is_flag=True, help="Print one frame and exit.")
def top(session: Session, mountpoint: Path | None, interval_s: float, order: str, once: bool) -> None:
    """Watch a mount: its reads, the tiers that serve them, read-ahead, and the offload backlog.

    MOUNT may be omitted if the store has one mount. On a terminal, s changes the order, p pauses, and q or Ctrl-C
    exits. Without a terminal, frames are printed one after the other; with --json one object per line.
    """
    point = mountpoint or only_mount(session.require_store_path(), "top")
    printed = once or session.json or not sys.stdout.isatty() or os.environ.get("TERM") == _NO_CURSOR
    with suppress(KeyboardInterrupt):
        if printed:
            _print(session, point, interval_s, order, once=once)
        else:
            _watch(point, interval_s, View(order))


def _print(session: Session, point: Path, interval_s: float, order: str, *, once: bool) -> None:
    """Print frames until q is pressed, or `once`."""
    before = read_stats(point)
    with _keys() as wait:
        while wait(interval_s) not in _END:
            after = read_stats(point)
            current, before = frame(before, after), after
            rows = [{**asdict(row), "hit_percent": row.hit_percent} for row in current.caches]
            data = {"mount": str(point), **asdict(current), "caches": rows}
            session.rows([data], [*draw(current, str(point), order=order), ""])
            sys.stdout.flush()
            if once:
                return


def _watch(point: Path, interval_s: float, view: View) -> None:
    """Show frames until q is pressed; other keys change the view at once."""
    before, current = read_stats(point), None
    with _live(view) as show, _keys() as wait:
        due_s = time.monotonic() + interval_s
        while (key := wait(max(0.0, due_s - time.monotonic()))) not in _END:
            if key is not None:
                view.press(key)
            elif not view.paused:
                after = read_stats(point)
                current, before = frame(before, after), after
                view.add(current)
            if key is None:
                due_s = time.monotonic() + interval_s
            if current is not None:
                show(current, point)


@contextmanager
def _live(view: View) -> Iterator[_Show]:
    """Show frames on the terminal's alternate screen, each in place of the last."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console = Console()
    with Live(console=console, screen=True, auto_refresh=False) as live:

        def show(current: Frame, point: Path) -> None:
            lines = view.lines(current, str(point), console.height, console.width)
            live.update(Text("\n".join(lines), no_wrap=True, overflow="ellipsis"), refresh=True)

        yield show
