"""A worker of Spark whose reader went away ends without a word; any other end of a read changes nothing."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Generator

import pytest

from tierfs.pipeline.spark.abandoned import to_spark

# As a worker of PySpark does: it writes batches, closes the generator when that fails, and flushes a report.
_WORKER = """
import contextlib, signal, socket
from tierfs.pipeline.spark.abandoned import to_spark
here, there = socket.socketpair()
batches = to_spark(iter([b"x" * 100] * 3))
try:
    next(batches)
    {failure}
    here.sendall(next(batches))
    here.sendall(next(batches))
except Exception:
    batches.close()
assert signal.getsignal(signal.SIGPIPE) in (signal.SIG_IGN, signal.SIG_DFL)
there.close()
with contextlib.suppress(BrokenPipeError):
    here.sendall(b"a report")
print("alive")
"""


@pytest.mark.parametrize(
    ("failure", "ends"),
    [("there.close()", True), ("raise ValueError('a schema')", False), ("batches = to_spark(iter([]))", False)],
    ids=["reader gone", "another error", "read to its end"],
)
def test_a_worker_without_a_reader_ends_silently(failure: str, ends: bool) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _WORKER.format(failure=failure)], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == ((-signal.SIGPIPE, "", "") if ends else (0, "alive\n", ""))


def test_another_error_leaves_the_signal_as_it_is() -> None:
    before = signal.getsignal(signal.SIGPIPE)
    batches = to_spark(iter([1, 2]))
    next(batches)
    try:
        with pytest.raises(ValueError, match="a schema"):
            _failing(batches)
        assert signal.getsignal(signal.SIGPIPE) is before
    finally:
        signal.signal(signal.SIGPIPE, before)


def _failing(batches: Generator[int]) -> None:
    try:
        raise ValueError("a schema")
    finally:
        batches.close()
