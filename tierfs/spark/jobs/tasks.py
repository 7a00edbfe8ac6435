"""Runs the tasks of a job, and holds the rows of its result.

Plain data is sent out, plain data returns, and an error of a task is raised as itself. The result has named columns,
for a terminal, a data frame or a file.
"""

from __future__ import annotations

import csv
import json
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet
from py4j.protocol import Py4JError
from pyspark import Accumulator
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession

from tierfs.errors import InvalidRequest, TierfsError, Unavailable, named
from tierfs.names import printable
from tierfs.parallel import OnProgress, Progress, unseen
from tierfs.spark.executor_session import cause_of

T = TypeVar("T")
R = TypeVar("R")

_LOOK_S = 0.5
_TOLD = re.compile(r'tierfs error (\{"kind": .*\})')

_KNOWN = re.compile(r"TierfsException: (.*)")
"""An error of the data source, with its remedy."""


class TaskError(Exception):
    """An error of tierfs on its way from a task, as JSON."""


class Tasks:
    """Runs tasks in one session, and shows their finished bytes."""

    def __init__(self, spark: SparkSession, show: OnProgress = unseen, total_bytes: int = 0) -> None:
        self._spark = spark
        self._show = show
        self._total_bytes = total_bytes
        self._done: Accumulator[int] = spark.sparkContext.accumulator(0)
        self._finished: Accumulator[int] = spark.sparkContext.accumulator(0)
        self._tasks = 0

    def run(self, work: Callable[[T, Accumulator[int]], R], wanted: Sequence[T]) -> list[R]:
        """Return the results of `work` for each item, in order; `work` adds its finished bytes to the accumulator.

        Raises the error of tierfs that a task raised, Unavailable for all else.
        """
        if not wanted:
            return []
        done, finished = self._done, self._finished
        self._tasks += len(wanted)

        def each(some: Iterable[T]) -> Iterator[R]:
            for one in some:
                try:
                    yield work(one, done)
                except TierfsError as exc:
                    raise TaskError(error_text(exc)) from None
                finished.add(1)

        with self.watched(), explained():
            spread = self._spark.sparkContext.parallelize(wanted, len(wanted))
            return list(spread.mapPartitions(each).collect())

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Show the finished bytes while the block runs."""
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
        done_bytes, done = min(self._done.value, self._total_bytes), min(self._finished.value, self._tasks)
        self._show(Progress(done_bytes, self._total_bytes, "", done, self._tasks, "task"))


@contextmanager
def stages_watched(spark: SparkSession, show: OnProgress, total_bytes: int) -> Iterator[None]:
    """Show the finished tasks of the running stages, as their share of all bytes."""
    over = threading.Event()
    status = spark.sparkContext.statusTracker()

    def look() -> None:
        while not over.wait(_LOOK_S):
            stages = [status.getStageInfo(stage) for stage in status.getActiveStageIds()]
            tasks = sum(stage.numTasks for stage in stages if stage is not None)
            done = sum(stage.numCompletedTasks for stage in stages if stage is not None)
            if tasks:
                show(Progress(total_bytes * done // tasks, total_bytes, "", done, tasks, "task"))

    watcher = threading.Thread(target=look, name="tierfs-job-progress", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
    show(Progress(total_bytes, total_bytes, "", noun="task"))


@contextmanager
def explained() -> Iterator[None]:
    """Turn Spark's errors into the error that a task raised, or Unavailable."""
    try:
        yield
    except (Py4JError, PySparkException) as exc:
        text = str(exc)
        answer = _TOLD.search(text)
        if answer is None and (refusal := _KNOWN.search(text)):
            raise Unavailable(refusal[1]) from None
        if answer is None and isinstance(exc, AnalysisException):
            raise InvalidRequest(cause_of(exc)) from None
        if answer is None:
            raise Unavailable(
                f"a Spark task failed: {cause_of(exc)}", remedy="look at Spark's log: -v shows it"
            ) from exc
        error: dict[str, Any] = json.loads(answer[1])
        raise named(error["kind"])(error["message"], remedy=error["remedy"]) from None


def error_text(error: TierfsError) -> str:
    """Return an error as the text of a TaskError."""
    document = {"kind": type(error).__name__, "message": str(error), "remedy": error.remedy}
    return f"tierfs error {json.dumps(document)}"


_TYPES = {"string": pa.string(), "long": pa.int64(), "double": pa.float64(), "boolean": pa.bool_()}
SUFFIXES = (".parquet", ".csv", ".json")


@dataclass(frozen=True, slots=True)
class Result:
    """Rows and sums of one job."""

    columns: Mapping[str, str]
    """Names and their types, in Spark's terms."""
    rows: Sequence[tuple[Any, ...]]
    summary: Mapping[str, Any] = field(default_factory=dict)

    def data_frame(self, spark: SparkSession) -> DataFrame:
        """Return the rows as a data frame."""
        ddl = ", ".join(f"`{name}` {kind}" for name, kind in self.columns.items())
        return spark.createDataFrame(list(self.rows), ddl)

    def as_json(self) -> dict[str, Any]:
        """Return rows and sums as one object."""
        return {**self.summary, "rows": [dict(zip(self.columns, row, strict=True)) for row in self.rows]}

    def text(self) -> str:
        """Return a table for people, numbers to the right; "" without rows."""
        if not self.rows:
            return ""
        cells = [[_cell(value) for value in row] for row in self.rows]
        widths = [max(map(len, column)) for column in zip(list(self.columns), *cells, strict=True)]
        right = [kind in ("long", "double") for kind in self.columns.values()]
        return "\n".join(_line(row, widths, right) for row in [list(self.columns), *cells])

    def write(self, path: Path) -> None:
        """Write the rows by the path's suffix: Parquet, CSV with a header, or a JSON object per line."""
        if path.suffix == ".parquet":
            schema = pa.schema([(name, _TYPES[kind]) for name, kind in self.columns.items()])
            columns = [pa.array([row[index] for row in self.rows], one.type) for index, one in enumerate(schema)]
            pa.parquet.write_table(pa.Table.from_arrays(columns, schema=schema), path)
        elif path.suffix == ".csv":
            with path.open("w", newline="") as file:
                csv.writer(file).writerows([list(self.columns), *self.rows])
        else:
            require_suffix(path)
            lines = (json.dumps(dict(zip(self.columns, row, strict=True))) + "\n" for row in self.rows)
            path.write_text("".join(lines))


def require_suffix(path: Path, more: Sequence[str] = ()) -> None:
    """Raise InvalidRequest for a file of no known kind."""
    known = (*SUFFIXES, *more)
    if path.suffix not in known:
        raise InvalidRequest(f"{path} has no known suffix", remedy=f"end the name with {', '.join(known)}")


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.2f}" if isinstance(value, float) else printable(str(value))


def _line(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    aligned = (cell.rjust(w) if r else cell.ljust(w) for cell, w, r in zip(cells, widths, right, strict=True))
    return "  ".join(aligned).rstrip()
