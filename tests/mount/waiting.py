"""Waiting for a condition of another process, never longer than it may take."""

from __future__ import annotations

import time
from collections.abc import Callable

_STEP_S = 0.01
_REST = 3
"""A condition that takes long, such as a command, is asked seldom: what is waited for needs the processor, too."""
_MOST_S = 0.5


def eventually(condition: Callable[[], bool], within_s: float = 60.0) -> bool:
    """Whether the condition came true in time."""
    end = time.monotonic() + within_s
    while (before := time.monotonic()) < end:
        if condition():
            return True
        time.sleep(min(max(_STEP_S, _REST * (time.monotonic() - before)), _MOST_S))
    return condition()


def errno_of(work: Callable[[], object]) -> int:
    """The errno a call fails with; 0 when it succeeds."""
    try:
        work()
    except OSError as exc:
        return exc.errno or 0
    return 0
