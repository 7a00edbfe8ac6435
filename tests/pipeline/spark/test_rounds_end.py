"""A job of rounds ends at a signal: what was committed is reported, and what was not is left to the next run."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError

from tierfs.base.words.errors import Unavailable
from tierfs.pipeline.commands.table import TableFormat, run_until
from tierfs.pipeline.spark.jobs.rounds_end import RoundsEnd
from tierfs.pipeline.spark.jobs.table import RoundSums

ROUND = RoundSums(rows=2, bad=0, bytes=8, files=1)
FOREVER_S = 3600.0


class Rounds:
    """A job whose rounds are functions, and what it prints."""

    def __init__(self, *rounds: Callable[[], RoundSums | None]) -> None:
        self._rounds: Iterator[Callable[[], RoundSums | None]] = iter(rounds)
        self.printed: list[str] = []

    def round(self) -> RoundSums | None:
        return next(self._rounds)()

    def result(self, numbers: Mapping[str, int], text: str) -> None:
        self.printed.append(text)

    def run(self, cancelled: threading.Event | None = None) -> dict[str, int]:
        end = RoundsEnd((cancelled or threading.Event()).set)
        job: Any = self
        return run_until(end, job, job, TableFormat.PARQUET, FOREVER_S, lambda _: {})


def send(number: signal.Signals) -> None:
    os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_between_rounds_ends_the_wait(number: signal.Signals) -> None:
    def idle() -> None:
        threading.Timer(0.05, send, [number]).start()

    before = signal.getsignal(number)
    job = Rounds(lambda: ROUND, idle)
    sums = job.run()
    assert (sums["rounds"], sums["rows"], job.printed) == (1, 2, ["added 2 rows of 8 B"])
    assert signal.getsignal(number) is before


@pytest.mark.parametrize("error", [Unavailable("a Spark task failed: cancelled"), Py4JNetworkError("Java is gone")])
def test_a_signal_in_a_round_cancels_and_abandons_it(error: Exception) -> None:
    cancelled = threading.Event()

    def cut() -> None:
        send(signal.SIGTERM)
        assert cancelled.wait(10)
        raise error

    job = Rounds(lambda: ROUND, cut)
    assert job.run(cancelled)["rows"] == 2


def test_a_round_that_ends_all_the_same_is_counted() -> None:
    def last() -> RoundSums:
        send(signal.SIGINT)
        return ROUND

    job = Rounds(last)
    assert job.run()["rows"] == 2
    assert len(job.printed) == 1


def test_an_error_without_a_signal_ends_the_job() -> None:
    def fail() -> None:
        raise Py4JError("broken")

    with pytest.raises(Py4JError, match="broken"):
        Rounds(fail).run()


def test_a_second_signal_ends_the_process() -> None:
    end = RoundsEnd(lambda: None)
    with end.heard():
        send(signal.SIGTERM)
        assert end.is_due
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
