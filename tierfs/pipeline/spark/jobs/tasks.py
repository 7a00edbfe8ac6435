"""Runs the tasks of a job.

Plain data is sent out, plain data returns, and an error of a task is raised as itself. A session of Spark Connect has
no RDDs, accumulators and stages: there tasks are rows of a data frame, and progress is not shown.
"""

from __future__ import annotations

import json
import pickle
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Protocol, TypeVar

import pyarrow as pa
import pyarrow.parquet
from py4j.protocol import Py4JError
from pyspark import Accumulator
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tierfs.base.bytes.progress import OnProgress, Progress, unseen
from tierfs.base.words.errors import InvalidRequest, TierfsError, Unavailable, named
from tierfs.pipeline.reader.fetching import OR_WAIT, OR_WAIT_FIRST
from tierfs.pipeline.spark.jobs.session import cause_of

T = TypeVar("T")
R = TypeVar("R")
_LOOK_S = 0.5
_MANY = 1_000_000
_TOLD = re.compile(r'tierfs error (\{"kind": .*\})')

# An error of the data source, with its remedy.
_KNOWN = re.compile(r"([A-Za-z]*)TierfsException: (.*)")


class TaskError(Exception):
    """An error of tierfs on its way from a task, as JSON."""


class Counter(Protocol):
    """Takes the bytes that a task has finished."""

    def add(self, term: int) -> None:
        """Count so many more."""


class _Uncounted:
    """Counts nothing."""

    def add(self, term: int) -> None:
        """Leave out so many."""


def is_classic(spark: SparkSession) -> bool:
    """Return whether the driver is this process, not a server of Spark Connect."""
    return isinstance(spark, SparkSession)


def slots_of(spark: SparkSession) -> int:
    """Return how many tasks Spark runs at once, as far as it knows by now."""
    if is_classic(spark):
        return spark.sparkContext.defaultParallelism
    parts = spark.range(_MANY).select(F.spark_partition_id()).distinct()  # a range is cut into as many
    return parts.count()


class Tasks:
    """Runs tasks in one session, and shows their finished bytes."""

    def __init__(self, spark: SparkSession, show: OnProgress = unseen, total_bytes: int = 0) -> None:
        self._spark = spark
        self._show = show
        self._total_bytes = total_bytes
        classic = is_classic(spark)
        self._done: Accumulator[int] | None = spark.sparkContext.accumulator(0) if classic else None
        self._finished: Accumulator[int] | None = spark.sparkContext.accumulator(0) if classic else None
        self._tasks = 0

    def run(self, work: Callable[[T, Counter], R], wanted: Sequence[T]) -> list[R]:
        """Return the results of `work` for each item, in order; `work` adds its finished bytes to the counter.

        Raises the error of tierfs that a task raised, Unavailable for all else.
        """
        if not wanted:
            return []
        self._tasks += len(wanted)
        with _looking(self._tell), explained():
            if self._done is None or self._finished is None:
                return self._run_rows(work, wanted)
            spread = self._spark.sparkContext.parallelize(wanted, len(wanted))
            return list(spread.mapPartitions(partial(_each, work, self._done, self._finished)).collect())

    def _run_rows(self, work: Callable[[T, Counter], R], wanted: Sequence[T]) -> list[R]:
        """Run each task as the only row of a partition. Every executor gets all items, and unpickles its own."""
        numbers = self._spark.range(0, len(wanted), 1, len(wanted))
        each = partial(_each_row, work, [pickle.dumps(task) for task in wanted])
        rows = numbers.mapInArrow(each, "number long, result binary").collect()
        return [pickle.loads(row["result"]) for row in sorted(rows, key=lambda row: int(row["number"]))]

    def _tell(self) -> None:
        if self._done is not None and self._finished is not None:
            done_bytes, done = min(self._done.value, self._total_bytes), min(self._finished.value, self._tasks)
            self._show(Progress(done_bytes, self._total_bytes, "", done, self._tasks, "task"))


def _each(work: Callable[[T, Counter], R], done: Counter, finished: Counter, some: Iterable[T]) -> Iterator[R]:
    for task in some:
        try:
            yield work(task, done)
        except TierfsError as exc:
            raise TaskError(error_text(exc)) from None
        finished.add(1)


def _each_row(work: Callable[[T, Counter], R], wanted: Sequence[bytes], batches: Iterable[Any]) -> Iterator[Any]:
    for batch in batches:
        numbers = batch.column(0).to_pylist()
        uncounted = _Uncounted()
        done = _each(work, uncounted, uncounted, (pickle.loads(wanted[number]) for number in numbers))
        results = pa.array([pickle.dumps(result) for result in done], pa.binary())
        yield pa.RecordBatch.from_arrays([batch.column(0), results], ["number", "result"])


@contextmanager
def _looking(tell: Callable[[], None]) -> Iterator[None]:
    """Tell the progress now and then while the block runs, and once behind it unless it fails."""
    over = threading.Event()

    def look() -> None:
        while not over.wait(_LOOK_S):
            tell()

    watcher = threading.Thread(target=look, name="tierfs-job-progress", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
    tell()


@contextmanager
def stages_watched(spark: SparkSession, show: OnProgress, total_bytes: int) -> Iterator[None]:
    """Show the finished tasks of the running stages, as their share of all bytes."""
    status = spark.sparkContext.statusTracker()

    def tell() -> None:
        stages = [status.getStageInfo(stage) for stage in status.getActiveStageIds()]
        tasks = sum(stage.numTasks for stage in stages if stage is not None)
        done = sum(stage.numCompletedTasks for stage in stages if stage is not None)
        if tasks:
            show(Progress(total_bytes * done // tasks, total_bytes, "", done, tasks, "task"))

    with _looking(tell):
        yield
    show(Progress(total_bytes, total_bytes, "", noun="task"))


@contextmanager
def explained() -> Iterator[None]:
    """Turn Spark's errors into the error that a task raised, InvalidRequest for a wrong query, or Unavailable."""
    try:
        yield
    except (Py4JError, PySparkException) as exc:
        text = str(exc)
        answer = _TOLD.search(text)
        if answer is None and (refusal := _KNOWN.search(text)):
            raise named(refusal[1] or Unavailable.__name__)(
                refusal[2].replace(OR_WAIT, "").replace(OR_WAIT_FIRST, "")
            ) from None
        if answer is None and isinstance(exc, AnalysisException):
            raise InvalidRequest(cause_of(exc)) from None
        if answer is None:
            raise Unavailable(
                f"a Spark task failed: {cause_of(exc)}", remedy="see Spark's log, which -v shows"
            ) from exc
        error: dict[str, Any] = json.loads(answer[1])
        raise named(error["kind"])(error["message"], remedy=error["remedy"]) from None


def error_text(error: TierfsError) -> str:
    """Return an error as the text of a TaskError."""
    document = {"kind": type(error).__name__, "message": str(error), "remedy": error.remedy}
    return f"tierfs error {json.dumps(document)}"
