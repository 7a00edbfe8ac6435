"""Ending in good order, whatever signal ends it."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def signals_interrupt() -> Iterator[None]:
    """SIGTERM and SIGHUP end the block as Ctrl-C does, so that it is left in good order."""
    before = {one: signal.signal(one, signal.default_int_handler) for one in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Nothing but SIGKILL ends the block."""
    ignored = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {one: signal.signal(one, signal.SIG_IGN) for one in ignored}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
