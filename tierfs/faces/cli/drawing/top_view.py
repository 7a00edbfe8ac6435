"""The view of `tierfs top` on a terminal: its order, its pause, its history, and the keys that change them. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from tierfs.app.mount_activity import Frame
from tierfs.faces.cli import output
from tierfs.faces.cli.drawing.top import ORDERS, draw

_SORT, _PAUSE = (b"s", b"S"), (b"p", b"P", b" ")

# Levels of a sparkline, from nothing to the highest rate shown.
_LEVELS = " ▁▂▃▄▅▆▇█"

# Frames in the sparkline: a minute of the default interval.
_SHOWN = 60

# Lines below the frame: the history and the help.
_OWN_LINES = 2


class View:
    """The order and the pause that a person chose, and the history of the frames."""

    def __init__(self, order: str = "read") -> None:
        self.order = order
        self.paused = False
        self._rates: deque[float] = deque(maxlen=_SHOWN)

    def press(self, key: bytes) -> None:
        """Obey a key; others do nothing."""
        if key in _SORT:
            names = list(ORDERS)
            self.order = names[(names.index(self.order) + 1) % len(names)]
        elif key in _PAUSE:
            self.paused = not self.paused

    def add(self, frame: Frame) -> None:
        """Add a frame to the history."""
        self._rates.append(sum(rate.bytes_per_s for rate in frame.reads.values()))

    def lines(self, frame: Frame, mountpoint: str, rows: int, columns: int) -> list[str]:
        """Return the frame in the chosen order, with the history and the keys in the last two of at most `rows`."""
        drawn = draw(frame, mountpoint, max(0, rows - _OWN_LINES), columns, self.order)
        highest = max(self._rates, default=0.0)
        history = f"reads    {sparkline(self._rates)}  up to {output.size(round(highest))}/s"
        pause = "continue (paused)" if self.paused else "pause"
        return [*drawn, history, f"q quit   p {pause}   s sort (by {self.order})"][-rows:]


def sparkline(values: Iterable[float]) -> str:
    """Return a bar for each value, relative to the highest; a blank only for nothing."""
    shown, steps = list(values), len(_LEVELS) - 1
    highest = max(shown, default=0.0)
    return "".join(_LEVELS[0 if value <= 0 else max(1, round(steps * value / highest))] for value in shown)
