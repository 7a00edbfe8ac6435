"""Signals that wait: Ctrl-C in a block that others depend on, and SIGHUP and SIGUSR1 until a process listens."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

# What a process that serves obeys, and what would end one that does not listen yet.
_OBEYED = (signal.SIGHUP, signal.SIGUSR1)

_DEFERRED = (signal.SIGINT, signal.SIGTERM)


def hold_back() -> None:
    """Let SIGHUP and SIGUSR1 wait in the kernel until `let_through`: whoever sends them early means the service.

    Of the calling thread, and of threads and children that it starts.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, _OBEYED)


def let_through() -> None:
    """Receive what was held back; call it in the main thread, once it listens."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _OBEYED)


@contextmanager
def held_back() -> Iterator[None]:
    """Start children in the block that hold both back from their first instruction on."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _OBEYED)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _Deferral:
    """The main thread's outermost block that defers signals."""

    waiting: list[tuple[int, FrameType | None]] | None = None
    """The signal that arrived in it, if any; None outside of one."""
    is_abandonable = False
    """Whether the thread is in a call that a second signal may end."""


_deferral = _Deferral()


def is_interrupted() -> bool:
    """Return whether a signal is deferred: what waits for a server need not wait to the end of its patience."""
    return bool(_deferral.waiting)


@contextmanager
def deferred() -> Iterator[None]:
    """Run the block, then the handler of a signal that arrived meanwhile.

    A block inside another belongs to it. Python handles signals in the main thread only, so in any other this does
    nothing.
    """
    if _deferral.waiting is not None or threading.current_thread() is not threading.main_thread():
        yield
        return
    waiting: list[tuple[int, FrameType | None]] = []
    handlers: dict[signal.Signals, Callable[[int, FrameType | None], Any]] = {}

    def defer(number: int, frame: FrameType | None) -> None:
        if not waiting:
            waiting.append((number, frame))
        elif _deferral.is_abandonable:
            handlers[signal.Signals(number)](number, frame)

    _deferral.waiting = waiting
    try:
        for number in _DEFERRED:
            handler = signal.getsignal(number)
            if callable(handler):
                handlers[number] = handler
                signal.signal(number, defer)
        yield
    finally:
        _deferral.waiting = None
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for waiting_number, frame in waiting:
            handlers[signal.Signals(waiting_number)](waiting_number, frame)


class _Abandonable:
    """A part of a block that defers signals, which a second one ends.

    A request to a server that hangs takes its whole timeout, and whoever presses Ctrl-C twice does not wait for it.
    Elsewhere it does nothing. A class, as each request to a storage passes it.
    """

    def __enter__(self) -> None:
        if _deferral.waiting is not None and threading.current_thread() is threading.main_thread():
            _deferral.is_abandonable = True

    def __exit__(self, *error: object) -> None:
        if _deferral.is_abandonable and threading.current_thread() is threading.main_thread():
            _deferral.is_abandonable = False


abandonable = _Abandonable()
