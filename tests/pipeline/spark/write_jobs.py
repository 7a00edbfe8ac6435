"""Writes that wait in the middle, for tests that kill an executor; and a driver of its own, to be killed too.

    python -m tests.pipeline.spark.write_jobs STORE WORK

copies the directory `in` of a store to `out` as a stream, from where its checkpoint is.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from pyspark import TaskContext
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from tests.pipeline.spark import warm_python
from tests.pipeline.spark.conftest import SETTINGS, open_session

GO_S = 180
DRIVER = "driver"
_STEP_S = 0.02


class Gate:
    """Files in a directory: tasks tell where they are, and wait. Picklable."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(exist_ok=True)

    def arrive(self, name: str, executor: int = 0) -> None:
        """Tell that `name` is reached, in an executor's process, or let those go that wait for it."""
        (self.directory / f".{name}").write_text(str(executor))
        (self.directory / f".{name}").rename(self.directory / name)

    def executor(self, name: str) -> int:
        """The process of the executor that arrived there."""
        return int((self.directory / name).read_text())

    def has(self, name: str) -> bool:
        """Whether something arrived there."""
        return (self.directory / name).exists()

    def wait(self, name: str) -> None:
        """Wait until `name` is reached."""
        end = time.monotonic() + GO_S
        while not self.has(name) and time.monotonic() < end:
            time.sleep(_STEP_S)


def line(partition: int, number: int) -> str:
    """One row of 1,000 bytes, its line end included."""
    return f"partition {partition} line {number:06d} ".ljust(999, "x")


def rows_that_wait(gate: Gate, partition: int, count: int) -> Iterator[tuple[str]]:
    """The rows of a task. Each attempt of partition 0 waits in front of the last tenth, and partition 1 for `go`."""
    context = TaskContext.get()
    assert context is not None
    attempt = context.attemptNumber()
    for number in range(count):
        if number == count * 9 // 10 and partition == 0:
            gate.arrive(f"waiting-{attempt}", warm_python.jvm())
            gate.wait(f"go-{attempt}")
        elif number == count * 9 // 10:
            gate.wait("go")
        yield (line(partition, number),)


def freeze_executor(jvm: int) -> None:
    """Stop an executor with all of its Python workers, as if its machine hung: it hears and sends nothing."""
    _signal(jvm, signal.SIGSTOP)


def kill_executor(jvm: int) -> None:
    """Kill an executor with all of its Python workers, as if its machine lost power: none of them sees another end."""
    freeze_executor(jvm)
    _signal(jvm, signal.SIGKILL)


def _signal(jvm: int, number: int) -> None:
    os.kill(jvm, number)
    for process in warm_python.processes_of(jvm):
        os.kill(process, number)


def main(store: str, work: Path) -> None:
    """Run the stream until everything present is written; the line `wait` waits for the gate.

    In a group of processes with its JVM, whose number is in the file `driver`.
    """
    os.setsid()
    (work / DRIVER).write_text(str(os.getpid()))
    gate = Gate(work / "gate")

    def waiting(value: str) -> str:
        if value == "wait":
            gate.arrive("waiting")
            gate.wait("go")
        return value

    with open_session("local[1]", work / "spark", SETTINGS) as spark:
        run_stream(spark, store, work, F.udf(waiting, "string"))


def run_stream(spark: SparkSession, store: str | Path, work: Path, through: Callable[..., Column] = F.col) -> None:
    """From a directory of a store, some lines a batch, through a function in tasks, to another directory."""
    lines = spark.readStream.format("tierfs").options(store=str(store), maxBytesPerTrigger="2k").load("in")
    sink = lines.select(through("value").alias("value")).writeStream.format("tierfs").option("store", str(store))
    sink = sink.option("checkpointLocation", str(work / "checkpoint")).trigger(availableNow=True)
    sink.start("out").awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
