"""Live displays: a terminal's screen whose frames replace each other, single keys, and the pause between two frames."""

from __future__ import annotations

import os
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tierfs.base.system import osio

if TYPE_CHECKING:
    from rich.live import Live

_INPUT_FD, _OUTPUT_FD = 0, 1

# Keys that end a display; a read of nothing means that the terminal is gone.
END = (b"q", b"Q", b"")

# Least interval: a shorter one shows only the reading itself.
SHORTEST_INTERVAL_S = 0.1

# TERM of a terminal that cannot move its cursor, such as one inside an editor.
_NO_CURSOR = "dumb"

# Waits, at most so many s, and returns the key that was pressed; None for none.
Wait = Callable[[float], bytes | None]


def is_possible() -> bool:
    """Return whether standard output is a terminal that can show frames in place of each other."""
    return sys.stdout.isatty() and os.environ.get("TERM") != _NO_CURSOR


@contextmanager
def keys() -> Iterator[Wait]:
    """Read single keys without echo in the block. Ctrl-C raises KeyboardInterrupt. Without a terminal it only waits."""
    if not (os.isatty(_INPUT_FD) and os.isatty(_OUTPUT_FD)):

        def pause(timeout_s: float) -> None:
            time.sleep(timeout_s)

        yield pause
        return

    def wait(timeout_s: float) -> bytes | None:
        return os.read(_INPUT_FD, 1) if osio.readable(_INPUT_FD, timeout_s) else None

    before = termios.tcgetattr(_INPUT_FD)
    tty.setcbreak(_INPUT_FD)
    try:
        yield wait
    finally:
        termios.tcsetattr(_INPUT_FD, termios.TCSADRAIN, before)


class Screen:
    """The terminal's alternate screen."""

    def __init__(self, live: Live) -> None:
        self._live = live

    @property
    def rows(self) -> int:
        """Its height now."""
        return self._live.console.height

    @property
    def columns(self) -> int:
        """Its width now."""
        return self._live.console.width

    def show(self, lines: Sequence[str]) -> None:
        """Replace what is shown; a line that is too long is cut."""
        from rich.text import Text

        text = Text.from_ansi("\n".join(lines), no_wrap=True, overflow="ellipsis")
        self._live.update(text, refresh=True)


@contextmanager
def screen() -> Iterator[Screen]:
    """Open the alternate screen in the block; what was on the terminal is there again afterwards."""
    from rich.console import Console
    from rich.live import Live

    with Live(console=Console(), screen=True, auto_refresh=False) as live:
        yield Screen(live)
