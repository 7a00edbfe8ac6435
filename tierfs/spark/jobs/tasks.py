"""Running tasks of a job: plain data goes out, plain data comes back, and an error comes as the one that it was."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from py4j.protocol import Py4JError
from pyspark import Accumulator
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession

from tierfs.errors import InvalidRequest, TierfsError, Unavailable, named
from tierfs.parallel import OnProgress, Progress, unseen
from tierfs.spark.executor_session import cause_of

T = TypeVar("T")
R = TypeVar("R")

_LOOK_S = 0.5
_TOLD = re.compile(r'tierfs error (\{"kind": .*\})')

_KNOWN = re.compile(r"TierfsException: (.*)")
"""What the data source raises, with its remedy."""


class TaskError(Exception):
    """An error of tierfs on its way from a task, as JSON."""


class Tasks:
    """Runs tasks in one session, and shows the bytes that they have done."""

    def __init__(self, spark: SparkSession, show: OnProgress = unseen, total_bytes: int = 0) -> None:
        self._spark = spark
        self._show = show
        self._total_bytes = total_bytes
        self._done: Accumulator[int] = spark.sparkContext.accumulator(0)

    def run(self, work: Callable[[T, Accumulator[int]], R], wanted: Sequence[T]) -> list[R]:
        """What `work` returns for each, in order; it adds the bytes it has done to the accumulator.

        Raises the error of tierfs that a task raised, Unavailable for all else.
        """
        if not wanted:
            return []
        done = self._done

        def each(some: Iterable[T]) -> Iterator[R]:
            for one in some:
                try:
                    yield work(one, done)
                except TierfsError as exc:
                    raise TaskError(told(exc)) from None

        with self.watched(), explained():
            spread = self._spark.sparkContext.parallelize(wanted, len(wanted))
            return list(spread.mapPartitions(each).collect())

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Show what is done while the block runs."""
        over = threading.Event()

        def look() -> None:
            while not over.wait(_LOOK_S):
                self._tell()

        watcher = threading.Thread(target=look, name="tierfs-job-progress", daemon=True)
        watcher.start()
        try:
            yield
        finally:
            over.set()
            watcher.join()
            self._tell()

    def _tell(self) -> None:
        self._show(Progress(min(self._done.value, self._total_bytes), self._total_bytes, ""))


@contextmanager
def stages_watched(spark: SparkSession, show: OnProgress, total_bytes: int) -> Iterator[None]:
    """Show how many tasks of the stages that run are done, as so much of the bytes in all."""
    over = threading.Event()
    status = spark.sparkContext.statusTracker()

    def look() -> None:
        while not over.wait(_LOOK_S):
            stages = [status.getStageInfo(stage) for stage in status.getActiveStageIds()]
            tasks = sum(stage.numTasks for stage in stages if stage is not None)
            done = sum(stage.numCompletedTasks for stage in stages if stage is not None)
            if tasks:
                show(Progress(total_bytes * done // tasks, total_bytes, ""))

    watcher = threading.Thread(target=look, name="tierfs-job-progress", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()


@contextmanager
def explained() -> Iterator[None]:
    """Turn what Spark raises into the error that a task raised, or Unavailable."""
    try:
        yield
    except (Py4JError, PySparkException) as exc:
        text = str(exc)
        told = _TOLD.search(text)
        if told is None and (known := _KNOWN.search(text)):
            raise Unavailable(known[1]) from None
        if told is None and isinstance(exc, AnalysisException):
            raise InvalidRequest(cause_of(exc)) from None
        if told is None:
            raise Unavailable(
                f"a Spark task failed: {cause_of(exc)}", remedy="look at Spark's log: -v shows it"
            ) from exc
        error: dict[str, Any] = json.loads(told[1])
        raise named(error["kind"])(error["message"], remedy=error["remedy"]) from None


def told(error: TierfsError) -> str:
    """An error as the text of a TaskError."""
    document = {"kind": type(error).__name__, "message": str(error), "remedy": error.remedy}
    return f"tierfs error {json.dumps(document)}"
