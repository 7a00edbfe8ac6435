"""The key that ends what is shown on a terminal."""

from __future__ import annotations

import os
import select
import termios
import time
import tty
from types import TracebackType
from typing import Any

_INPUT_FD, _OUTPUT_FD = 0, 1
_END = (b"q", b"Q", b"")
"""Nothing is read when the terminal is gone."""


class Keys:
    """Reads single keys without showing them; a context manager. Without a terminal it only waits."""

    def __init__(self) -> None:
        self._watched = os.isatty(_INPUT_FD) and os.isatty(_OUTPUT_FD)
        self._before: list[Any] = []

    def wait(self, timeout_s: float) -> bool:
        """Wait; whether q was pressed. Other keys end the wait early. Ctrl-C raises KeyboardInterrupt."""
        if not self._watched:
            time.sleep(timeout_s)
            return False
        ready, _, _ = select.select([_INPUT_FD], [], [], timeout_s)
        return bool(ready) and os.read(_INPUT_FD, 1) in _END

    def __enter__(self) -> Keys:
        if self._watched:
            self._before = termios.tcgetattr(_INPUT_FD)
            tty.setcbreak(_INPUT_FD)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._watched:
            termios.tcsetattr(_INPUT_FD, termios.TCSADRAIN, self._before)
