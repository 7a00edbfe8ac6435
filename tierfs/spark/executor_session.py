"""A Spark session of its own that asks every executor what it sees; a process, so that its JVM and log end with it.

    python -m tierfs.spark.executor_session < QUESTION > ANSWER

Both are one JSON object. The answer has `views`, or the error that ended it: `kind`, `message`, `remedy`.
"""

from __future__ import annotations

import json
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkContext, cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tierfs.errors import TierfsError, Unavailable
from tierfs.spark import executor_probe

SETTLED_S = 5.0
"""With no further executor in this time, all are present (a guess; they registered within 1 s of each other)."""

_JOB_S = 60.0
_STEP_S = 0.2
_STDOUT, _STDERR = 1, 2

# Spark starts its workers by `python -m`, in the directory of their JVM: a json.py there would run in each of them.
SAFE_PATH = {"spark.executorEnv.PYTHONSAFEPATH": "1"}
"""Setting that keeps that directory off the workers' path of imports."""

SETTINGS = {
    **SAFE_PATH,
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.dynamicAllocation.enabled": "false",  # refused for barrier stages
    "spark.task.maxFailures": "1",
    "spark.stage.maxConsecutiveAttempts": "1",
}

_NO_PROGRAM = re.compile(r'Cannot run program "([^"]*)"')
_OTHER_PYTHON = re.compile(r"\[PYTHON_VERSION_MISMATCH\] ([^,\n]*)")
_SAME_PYTHON = "install the same Python there, or name one that every executor has: export PYSPARK_PYTHON=PATH"

Answer = Callable[[Mapping[str, Any]], None]


def views(question: Mapping[str, Any], answer: Answer) -> list[executor_probe.View]:
    """Return one view for each executor. Raises Unavailable, naming what did not answer."""
    master, session_s = question["master"], question["session_s"]
    with limited(session_s, answer, no_session(master, f"nothing answers as a master within {session_s:g} s")):
        session = open_session(master)
    slots = await_slots(session.sparkContext, master, question["executors_s"])
    with limited(_JOB_S, answer, Unavailable(f"the executors of {master} ran no task within {_JOB_S:g} s")):
        found = look_everywhere(session.sparkContext, slots, question)
    by_executor = {view["executor"]: view for view in found}  # the slots of one executor see the same
    return [by_executor[name] for name in sorted(by_executor, key=lambda name: (len(name), name))]


def open_session(master: str) -> SparkSession:
    """Start a session with the user's own Spark configuration."""
    builder = SparkSession.builder.master(master).appName("tierfs doctor")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    try:
        return builder.getOrCreate()
    except (Py4JError, PySparkException) as exc:
        raise no_session(master, cause_of(exc)) from exc


def no_session(master: str, why: str) -> Unavailable:
    """Return the error that keeps a session from starting, or None."""
    return Unavailable(
        f"Spark opens no session on {master}: {why}",
        remedy="check that a Spark master answers there, and that the workers can reach this machine",
    )


def await_slots(context: SparkContext, master: str, limit_s: float) -> int:
    """Return the number of tasks that run at once, when no further executors arrive."""
    started_s = since_s = time.monotonic()
    stable = 0
    while True:
        slots, now_s = concurrent_tasks(context), time.monotonic()
        if slots != stable:
            stable, since_s = slots, now_s
        if stable and (master.startswith("local") or now_s - since_s >= SETTLED_S):
            return stable
        if not stable and now_s - started_s > limit_s:
            raise Unavailable(
                f"{master} answers, but started no executor within {limit_s:g} s",
                remedy="free cores and memory on its workers, or ask for less: spark.executor.memory in "
                "conf/spark-defaults.conf",
            )
        time.sleep(_STEP_S)


def concurrent_tasks(context: SparkContext) -> int:
    """Return the slots of all registered executors, as a barrier stage counts them."""
    scala = context._jsc.sc()
    return int(scala.maxNumConcurrentTasks(scala.resourceProfileManager().defaultResourceProfile()))


def look_everywhere(context: SparkContext, slots: int, question: Mapping[str, Any]) -> list[executor_probe.View]:
    """Run a task on each slot at the same time, which only a barrier stage guarantees."""
    cloudpickle.register_pickle_by_value(executor_probe)  # type: ignore[no-untyped-call]
    tasks = context.parallelize(range(slots), slots).barrier()
    try:
        return list(tasks.mapPartitions(partial(executor_probe.look_from_a_task, question)).collect())
    except (Py4JError, PySparkException) as exc:
        text = str(exc)
        if found := _NO_PROGRAM.search(text):
            raise Unavailable(f"its Python {found[1]} cannot be started", remedy=_SAME_PYTHON) from exc
        if found := _OTHER_PYTHON.search(text):
            raise Unavailable(found[1], remedy=_SAME_PYTHON) from exc
        raise Unavailable(f"a task failed: {cause_of(exc)}") from exc


def cause_of(exc: Exception) -> str:
    """Return the line of a Java or Python error that states the cause."""
    lines = [line.strip(": ") for line in str(exc).splitlines() if line.strip()]
    messages = [line for line in lines if not line.startswith(("An error occurred while calling", "at "))]
    return messages[0] if messages else type(exc).__name__


@contextmanager
def limited(seconds: float, answer: Answer, error: TierfsError) -> Iterator[None]:
    """Answer with `error` and end the process when the block takes longer: calls into the JVM cannot be cancelled."""

    def give_up() -> None:
        answer(as_answer(error))
        os._exit(0)

    timer = threading.Timer(seconds, give_up)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def as_answer(error: TierfsError) -> Mapping[str, Any]:
    """Return an error as JSON data."""
    return {"kind": type(error).__name__, "message": str(error), "remedy": error.remedy}


def main() -> None:
    """Read the question and write the answer. The JVM inherits standard output, so it gets standard error instead."""
    own = os.fdopen(os.dup(_STDOUT), "w")
    os.dup2(_STDERR, _STDOUT)

    def answer(document: Mapping[str, Any]) -> None:
        own.write(json.dumps(document))
        own.close()

    try:
        found: Mapping[str, Any] = {"views": views(json.load(sys.stdin), answer)}
    except TierfsError as exc:
        found = as_answer(exc)
    answer(found)


if __name__ == "__main__":
    main()
