"""Ask every executor of a Spark cluster for its view: Python, tierfs, mounts, and the way to the cold tier.

PySpark is imported by the first question: `doctor` judges answers, and runs, where it is not installed.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.options.config import ColdSettings
from tierfs.base.words.errors import Unavailable
from tierfs.engine.metadata.records import LocationRecord
from tierfs.pipeline.spark import executor_probe
from tierfs.pipeline.spark.executor_probe import DRIVER, View

if TYPE_CHECKING:
    from pyspark import SparkContext

# With no further executor in this time, all are present (a guess; they registered within 1 s of each other).
SETTLED_S = 5.0

# For the first executor to register.
_EXECUTORS_S = 60.0

_JOB_S = 60.0
_STEP_S = 0.2

_SETTINGS = {
    "spark.dynamicAllocation.enabled": "false",  # refused for barrier stages
    "spark.task.maxFailures": "1",
    "spark.stage.maxConsecutiveAttempts": "1",
}

_NO_PROGRAM = re.compile(r'Cannot run program "([^"]*)"')
_OTHER_PYTHON = re.compile(r"\[PYTHON_VERSION_MISMATCH\] ([^,\n]*)")
_SAME_PYTHON = "install the same Python there, or use one that every executor has: export PYSPARK_PYTHON=PATH"


@dataclass(frozen=True, slots=True)
class ColdPlace:
    """The cold tier of a store, to which executors connect with their own credentials."""

    store: Path
    location: LocationRecord
    settings: ColdSettings


@dataclass(frozen=True, slots=True)
class MountReport:
    """A path as one executor sees it."""

    path: str
    state: str
    """`alive`, or the defect: see executor_probe and tierfs.base.system.mounts.MountState."""
    store: str = ""
    store_id: str = ""
    slot: int = 0
    replica: bool = False


@dataclass(frozen=True, slots=True)
class ExecutorReport:
    """One executor, or the driver."""

    executor: str
    host: str
    python: str
    program: str
    tierfs: str | None
    """Its version; None if it cannot be imported."""
    missing: str
    """The reason tierfs cannot be imported."""
    pyarrow: str | None
    mounts: tuple[MountReport, ...]
    cold_error: str | None
    """"" if the cold tier answered, None if it was not asked."""


def check_executors(master: str, mounts: tuple[str, ...], cold: ColdPlace | None) -> list[ExecutorReport]:
    """Ask the driver's machine and then each executor. Takes 20 s.

    Raises InvalidRequest for a master of an unknown kind, Unavailable when it or an executor does not answer.
    """
    from tierfs.pipeline.spark.jobs.session import job_session

    kept = ("url", "endpoint_url", "region", "profile")
    question = {
        "mounts": list(mounts),
        "location": cold and {"id": cold.location.id, **{name: getattr(cold.location, name) for name in kept}},
        "store": cold and str(cold.store),
        "cold": cold and asdict(cold.settings),
    }
    with job_session("doctor", master, _SETTINGS) as session:
        slots = await_slots(session.sparkContext, master, _EXECUTORS_S)
        views = _look_everywhere(session.sparkContext, slots, question)
    by_executor = {view["executor"]: view for view in views}  # the slots of one executor see the same
    views = [by_executor[name] for name in sorted(by_executor, key=lambda name: (len(name), name))]
    if DRIVER not in by_executor:
        views.insert(0, executor_probe.look(question, DRIVER))
    return [ExecutorReport(**{**view, "mounts": tuple(MountReport(**row) for row in view["mounts"])}) for view in views]


def await_slots(context: SparkContext, master: str, limit_s: float) -> int:
    """Return the number of tasks that run at once, when no further executors arrive. Raises Unavailable without one."""
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
                f"{master} responds, but started no executor within {limit_s:g} s",
                remedy="free cores and memory on its workers, or request less: spark.executor.memory in "
                "conf/spark-defaults.conf",
            )
        time.sleep(_STEP_S)


def concurrent_tasks(context: SparkContext) -> int:
    """Return the slots of all registered executors, as a barrier stage counts them."""
    scala = context._jsc.sc()
    return int(scala.maxNumConcurrentTasks(scala.resourceProfileManager().defaultResourceProfile()))


def _look_everywhere(context: SparkContext, slots: int, question: Mapping[str, Any]) -> list[View]:
    """Run a task on each slot at the same time, which only a barrier stage guarantees."""
    from py4j.protocol import Py4JError
    from pyspark import cloudpickle
    from pyspark.errors import PySparkException

    from tierfs.pipeline.spark.jobs.session import cause_of

    cloudpickle.register_pickle_by_value(executor_probe)  # type: ignore[no-untyped-call]
    tasks = context.parallelize(range(slots), slots).barrier()
    limit = threading.Timer(_JOB_S, context.cancelAllJobs)
    limit.start()
    try:
        return list(tasks.mapPartitions(partial(executor_probe.look_from_a_task, question)).collect())
    except (Py4JError, PySparkException) as exc:
        text = str(exc)
        if match := _NO_PROGRAM.search(text):
            raise Unavailable(f"its Python {match[1]} cannot be started", remedy=_SAME_PYTHON) from exc
        if match := _OTHER_PYTHON.search(text):
            raise Unavailable(match[1], remedy=_SAME_PYTHON) from exc
        raise Unavailable(f"a task failed, or ran for {_JOB_S:g} s: {cause_of(exc)}") from exc
    finally:
        limit.cancel()
