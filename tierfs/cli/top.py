"""tierfs top: what a mount does, live."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from tierfs.cli.keys import Keys
from tierfs.cli.lazy import command
from tierfs.cli.mount_stats import read_stats
from tierfs.cli.session import Session
from tierfs.cli.top_drawing import draw
from tierfs.cli.top_frame import Frame, frame
from tierfs.errors import InvalidRequest, NotFound
from tierfs.mounts import mounts

_SHORTEST_INTERVAL_S = 0.1
"""Shorter ones show nothing but the reading of the statistics itself."""

_HOME, _CLEAR_LINE, _CLEAR_REST, _CLEAR = "\x1b[H", "\x1b[K", "\x1b[J", "\x1b[2J"
_UNKNOWN_SIZE = (80, 24)


@command("top")
@click.argument("mountpoint", metavar="[MOUNT]", required=False, type=click.Path(path_type=Path))
@click.option(
    "--interval-s",
    type=click.FloatRange(min=_SHORTEST_INTERVAL_S),
    default=1.0,
    show_default=True,
    help="Seconds from one frame to the next.",
)
@click.option("--once", is_flag=True, help="Print one frame and end.")
def top(session: Session, mountpoint: Path | None, interval_s: float, once: bool) -> None:
    """Watch a mount: what is read, from which tier, how far ahead, and what is left to offload.

    MOUNT may be left out when the store has one mount. Press q or Ctrl-C to end. Where the output is no
    terminal, frames follow each other; with --json one object per line.
    """
    point = mountpoint or _only_mount(session.require_store_path())
    live = not once and not session.json and sys.stdout.isatty()
    if live:
        click.echo(_CLEAR, nl=False)
    try:
        for found in _frames(point, interval_s):
            _show(session, found, point, live=live)
            if once:
                return
    except KeyboardInterrupt:
        return  # the way to end it


def _frames(point: Path, interval_s: float) -> Iterator[Frame]:
    """A frame every interval, until somebody presses q."""
    before = read_stats(point)
    with Keys() as keys:
        while not keys.wait(interval_s):
            after = read_stats(point)
            yield frame(before, after)
            before = after


def _show(session: Session, found: Frame, point: Path, *, live: bool) -> None:
    if session.json:
        click.echo(json.dumps(_data(found, point)))
    elif live:
        columns, rows = shutil.get_terminal_size(_UNKNOWN_SIZE)
        # One line less than there is: behind the last one the terminal would scroll.
        lines = draw(found, str(point), columns, rows - 1)
        click.echo(_HOME + "".join(f"{line}{_CLEAR_LINE}\n" for line in lines) + _CLEAR_REST, nl=False)
    else:
        click.echo("\n".join([*draw(found, str(point)), ""]))
    sys.stdout.flush()


def _data(found: Frame, point: Path) -> dict[str, Any]:
    data = {"mount": str(point), **asdict(found)}
    for row, cache in zip(data["caches"], found.caches, strict=True):
        row["hit_percent"] = cache.hit_percent
    return data


def _only_mount(store: Path) -> Path:
    """The mount of a store. Raises NotFound without one, InvalidRequest when there are several."""
    ours = [mount.mountpoint for mount in mounts() if os.path.realpath(mount.store) == os.path.realpath(store)]
    if not ours:
        raise NotFound(f"{store} is not mounted", remedy=f"mount it: tierfs --store {store} mount DIR")
    if len(ours) > 1:
        points = ", ".join(map(str, ours))
        raise InvalidRequest(f"{store} has {len(ours)} mounts: {points}", remedy=f"name one: tierfs top {ours[0]}")
    return ours[0]
