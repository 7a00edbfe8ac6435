"""Waiting for a condition of another process, never longer than it may take."""

from __future__ import annotations

import time
from collections.abc import Callable

_STEP_S = 0.01


def eventually(condition: Callable[[], bool], within_s: float = 60.0) -> bool:
    """Whether the condition came true in time."""
    end = time.monotonic() + within_s
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(_STEP_S)
    return condition()


def errno_of(work: Callable[[], object]) -> int:
    """The errno a call fails with; 0 when it succeeds."""
    try:
        work()
    except OSError as exc:
        return exc.errno or 0
    return 0
