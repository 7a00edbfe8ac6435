"""Show the progress of a command on a terminal: one line of stderr, redrawn by a thread.

The work only leaves its newest progress behind, which costs it an assignment. All else that the session prints erases
the line first.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from types import FrameType
from typing import TYPE_CHECKING, TextIO, TypeVar

from tierfs.app.store import Store
from tierfs.base.bytes.progress import OnProgress, Progress, doing, unseen
from tierfs.base.system.clock import Clock, SystemClock
from tierfs.base.words.units import decimal
from tierfs.faces.cli.session import Session
from tierfs.faces.cli.standard_streams import drop_stderr

if TYPE_CHECKING:
    from tierfs.faces.cli.drawing.progress import WorkRate
    from tierfs.upkeep.holder.verbs import Options, Verb

R = TypeVar("R")

# Commands that take less show nothing.
AFTER_S = 1.0

# Often enough to be seen moving; a remote terminal is not flooded.
_EVERY_S = 0.25

_ERASE = "\r\x1b[K"
# Width of a terminal that does not tell its own.
_COLUMNS = 80


class ProgressLine:
    """The line of one command; a context manager that draws while its block runs. Thread-safe."""

    def __init__(self, stream: TextIO, clock: Clock) -> None:
        self._stream = stream
        self._clock = clock
        self._began_s = clock.monotonic_s()
        self._newest = Progress(0, 0, "")
        self._rate: WorkRate | None = None
        self._printing = threading.RLock()
        self._drawn = False
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._repeat, name="tierfs-progress", daemon=True)

    def show(self, progress: Progress) -> None:
        """Note the newest progress; the next tick draws it."""
        self._newest = progress

    def tick(self) -> None:
        """Draw the line anew, once the command has taken AFTER_S."""
        now_s, progress = self._clock.monotonic_s(), self._newest
        elapsed_s = now_s - self._began_s
        if elapsed_s < AFTER_S:
            return
        # Loaded by the first line: a short command need not pay 20 ms for the widths of characters.
        from tierfs.faces.cli.drawing.progress import WorkRate, line

        with self._printing:
            if self._rate is None:
                self._rate = WorkRate()
            self._rate.add(now_s, progress)
            if not self._over.is_set():
                # One column less: a terminal may wrap once its last column is written.
                self._write(_ERASE + line(progress, self._rate, elapsed_s, columns_of(self._stream) - 1))
                self._drawn = True

    @contextmanager
    def away(self) -> Iterator[None]:
        """Erase the line, and keep it away while the block prints or asks."""
        with self._printing:
            if self._drawn:
                self._write(_ERASE)
                self._drawn = False
            yield

    def __enter__(self) -> ProgressLine:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        with self.away():
            self._over.set()
        self._thread.join()

    def _repeat(self) -> None:
        while not self._over.wait(_EVERY_S):
            self.tick()

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except OSError:  # the terminal is gone, and what it would have shown with it; the work goes on
            self._over.set()
            if self._stream is sys.stderr:
                drop_stderr()


def columns_of(stream: TextIO) -> int:
    """Return the width of the terminal of a stream, or of COLUMNS. (shutil asks stdout, which may be a file.)"""
    told = decimal(os.environ.get("COLUMNS", ""))
    if told:
        return told
    try:
        return os.get_terminal_size(stream.fileno()).columns or _COLUMNS
    except OSError:
        return _COLUMNS


@contextmanager
def progress_line(session: Session) -> Iterator[OnProgress]:
    """Show the progress of a command while the block runs, if the session shows progress."""
    if not session.shows_progress:
        yield unseen
        return
    with ProgressLine(sys.stderr, SystemClock()) as line:
        session.printing = line.away
        try:
            yield line.show
        finally:
            session.printing = nullcontext


@contextmanager
def changing(session: Session, store: Store, what: str) -> Iterator[OnProgress]:
    """Show the progress of a change while the block makes it; then publish it, or note why that must wait."""
    from tierfs.app import verbs

    with progress_line(session) as show:
        show(doing(what))
        yield show
        unpublished = verbs.settle(store, show)
    session.note_unpublished(unpublished)


def perform_shown(session: Session, store: Store, verb: Verb[R], path: str, options: Options) -> R:
    """Perform a cold verb below a path, and show its progress; see holder.verbs.perform."""
    from tierfs.upkeep.holder.perform import perform

    with progress_line(session) as show, prompt_interrupt(store):
        return perform(store, verb, path, options, show)


@contextmanager
def prompt_interrupt(store: Store) -> Iterator[None]:
    """Let Ctrl-C end the transfers of the block that wait for bandwidth: they would wait for as long as they take."""
    handler = signal.getsignal(signal.SIGINT)
    if not callable(handler):
        yield  # SIGINT is ignored
        return
    before = handler

    def interrupt(number: int, frame: FrameType | None) -> None:
        store.limits.interrupt()
        before(number, frame)

    signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
