"""Signals that wait: a block that others depend on is not left half-way for Ctrl-C."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_DEFERRED = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def deferred() -> Iterator[None]:
    """Run the block, then what the signals that came meanwhile are handled by.

    Python handles signals in the main thread only, so in any other this does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[tuple[int, FrameType | None]] = []
    found = {number: signal.getsignal(number) for number in _DEFERRED}
    handlers = {number: handler for number, handler in found.items() if callable(handler)}
    try:
        for number in handlers:
            signal.signal(number, lambda number, frame: came.append((number, frame)))
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for came_number, frame in came:
            handlers[signal.Signals(came_number)](came_number, frame)
