"""The end of a job that runs round after round: a signal abandons the round, as a kill would, and the job ends well."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JError

from tierfs.base.system import osio
from tierfs.base.words.errors import Unavailable


class RoundsEnd:
    """Hears SIGTERM and SIGINT. Made and used in the main thread."""

    def __init__(self, cancel: Callable[[], object]) -> None:
        """`cancel` ends what Spark does. It runs in a thread of its own: py4j may be in the middle of a call here."""
        self._cancel = cancel
        self._read_fd, self._write_fd = os.pipe()
        self.is_due = False

    @contextmanager
    def heard(self) -> Iterator[None]:
        """Listen for the block. A second signal ends the process."""
        before = {number: signal.signal(number, self._end) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            os.close(self._read_fd)
            os.close(self._write_fd)

    def wait(self, seconds: float) -> None:
        """Return after a time, or at once if the end is due."""
        osio.readable(self._read_fd, seconds)

    @contextmanager
    def abandoning(self) -> Iterator[None]:
        """Swallow the error of a round that was cancelled: nothing of it is lost, as the next run makes it again.

        Where a service manager ends all processes, Java is gone too, which is an error of another kind.
        """
        try:
            yield
        except (Unavailable, Py4JError):
            if not self.is_due:
                raise

    def _end(self, number: int, _: Any) -> None:
        signal.signal(number, signal.SIG_DFL)
        self.is_due = True
        os.write(self._write_fd, b"x")
        threading.Thread(target=self._cancel, name="tierfs-cancel", daemon=True).start()
