"""Define tierfs top: watch a mount live."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

import click

from tierfs.app.mount_activity import frame
from tierfs.app.mount_stats import read_stats
from tierfs.app.setup.typed import only_mount
from tierfs.faces.cli.drawing import live
from tierfs.faces.cli.drawing.top import ORDERS, draw
from tierfs.faces.cli.drawing.top_view import View
from tierfs.faces.cli.group import command
from tierfs.faces.cli.parameter_types import Duration
from tierfs.faces.cli.session import Session


@command("top")
@click.argument("mountpoint", metavar="[MOUNT]", required=False, type=click.Path(path_type=Path))
@click.option(
    "-d",
    "--interval-s",
    type=Duration(live.SHORTEST_INTERVAL_S),
    metavar="TIME",
    default=1.0,
    show_default=True,
    help="Time between frames, in seconds or like 500ms.",
)
@click.option("--sort", "order", type=click.Choice([*ORDERS]), default="read", help="Order of the open segments.")
@click.option("-b", "--batch", is_flag=True, help="Print frames one after the other, also on a terminal.")
@click.option("-n", "--count", type=click.IntRange(1), metavar="N", help="Print N frames and exit.")
@click.option("--once", is_flag=True, help="Print one frame and exit.")
def top(
    session: Session,
    mountpoint: Path | None,
    interval_s: float,
    order: str,
    batch: bool,
    count: int | None,
    once: bool,
) -> None:
    """Watch a mount: its reads, the tiers that serve them, read-ahead, and the offload backlog.

    MOUNT may be omitted if the store has one mount. On a terminal, s changes the order, p pauses, and q or Ctrl-C
    exits. Without a terminal, frames are printed one after the other; with --json one object per line.
    """
    point = mountpoint or only_mount(session.require_store_path(), "top")
    count = 1 if once else count
    with suppress(KeyboardInterrupt):
        if batch or count or session.json or not live.is_possible():
            _print(session, point, interval_s, order, count)
        else:
            _watch(point, interval_s, View(order))


def _print(session: Session, point: Path, interval_s: float, order: str, count: int | None) -> None:
    """Print frames until q is pressed, or so many."""
    before, printed = read_stats(point), 0
    with live.keys() as wait:
        while printed != count and wait(interval_s) not in live.END:
            after = read_stats(point)
            current, before = frame(before, after), after
            rows = [{**asdict(row), "hit_percent": row.hit_percent} for row in current.caches]
            data = {"mount": str(point), **asdict(current), "caches": rows}
            session.rows([data], [*draw(current, str(point), order=order), ""])
            sys.stdout.flush()
            printed += 1


def _watch(point: Path, interval_s: float, view: View) -> None:
    """Show frames until q is pressed; other keys change the view at once."""
    before, current = read_stats(point), None
    with live.screen() as screen, live.keys() as wait:
        due_s = time.monotonic() + interval_s
        while (key := wait(max(0.0, due_s - time.monotonic()))) not in live.END:
            if key is not None:
                view.press(key)
            elif not view.paused:
                after = read_stats(point)
                current, before = frame(before, after), after
                view.add(current)
            if key is None:
                due_s = time.monotonic() + interval_s
            if current is not None:
                screen.show(view.lines(current, str(point), screen.rows, screen.columns))
