"""Costs of code, counted instead of timed: the same on every machine."""

from __future__ import annotations

import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType

import tierfs

PACKAGE = os.path.dirname(tierfs.__file__) + os.sep


def calls(work: Callable[[], object]) -> int:
    """Return the number of Python functions that `work` calls."""
    with _seen() as codes:
        work()
    return codes.total()


@contextmanager
def own_calls() -> Iterator[Counter[str]]:
    """Yield the calls of tierfs's own functions in the block, by module; those of threads that begin in it too.

    A coroutine or generator counts again whenever it goes on.
    """
    modules: Counter[str] = Counter()
    with _seen() as codes:
        yield modules
    for code, number in codes.items():
        if code.co_filename.startswith(PACKAGE):
            modules[code.co_filename.removeprefix(PACKAGE)] += number


@contextmanager
def _seen() -> Iterator[Counter[CodeType]]:
    codes: Counter[CodeType] = Counter()

    def seen(frame: FrameType, event: str, argument: object) -> None:
        if event == "call":
            codes[frame.f_code] += 1

    threading.setprofile(seen)
    sys.setprofile(seen)
    try:
        yield codes
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
