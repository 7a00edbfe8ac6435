"""Reads that Spark abandons: `limit`, `take` and `show` close a task's connection as soon as they have their rows.

The worker's next write fails, PySpark keeps a report of that for Spark, cannot send it either, and prints a traceback
of BrokenPipeError above the answer (4.3.0, `pyspark/daemon.py`). A worker whose reader is gone ends silently here, as
other filters do.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Generator, Iterator
from typing import Any


def to_spark(batches: Iterator[Any]) -> Generator[Any]:
    """Yield batches to the writer of a worker of Spark. If that finds its connection closed, its next write ends it."""
    try:
        yield from batches
    except GeneratorExit as exc:
        # Python ignores SIGPIPE, so that writes raise; Spark starts another worker for the next task in either case.
        if _lost_its_reader(exc) and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        raise


def _lost_its_reader(error: BaseException) -> bool:
    """Return whether the writer's error, which closes the generator, is a closed connection."""
    cause = error.__context__
    while cause is not None and not isinstance(cause, ConnectionError):
        cause = cause.__context__
    return cause is not None
