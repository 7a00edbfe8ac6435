"""Asks every executor of a Spark cluster for its view: Python, tierfs, mounts, and the way to the cold tier."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tierfs import units
from tierfs.config import ColdSettings
from tierfs.errors import InvalidRequest, Unavailable, named
from tierfs.metadata.records import LocationRecord
from tierfs.spark import executor_probe
from tierfs.spark.executor_probe import DRIVER
from tierfs.system import processes

MASTER_S = 5.0
"""For a master to accept a connection; Spark itself tries for a minute, and only its log has the reason."""

_JOB_S = 120.0
"""For the session's process beside those limits: its own for the tasks, and the session's end."""

_STANDALONE = "spark://"
_OTHER_MASTERS = re.compile(r"local(\[.+\])?$|yarn$|k8s://")
_LOST = re.compile(r"Lost task \S+ in stage \S+ \(TID [0-9]+\) \((\S+) executor (\S+)\): (?!TaskKilled)")
_MAX_PORT = 2**16 - 1
_FIND_MASTER = "start it, or name it as its web page does: spark://HOST:PORT"


@dataclass(frozen=True, slots=True)
class ColdPlace:
    """The cold tier of a store, to which executors connect with their own credentials."""

    store: Path
    location: LocationRecord
    settings: ColdSettings


@dataclass(frozen=True, slots=True)
class ExecutorQuestion:
    """The question to the executors of `master`."""

    master: str
    mounts: tuple[str, ...] = ()
    cold: ColdPlace | None = None
    session_s: float = 60.0
    """For the JVM to start (3 to 15 s on two busy cores) and the master to register the application."""
    executors_s: float = 60.0
    """For the first executor to register."""


@dataclass(frozen=True, slots=True)
class MountReport:
    """A path as one executor sees it."""

    path: str
    state: str
    """`alive`, or the defect: see executor_probe and tierfs.system.mounts.MountState."""
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


def check_executors(question: ExecutorQuestion) -> list[ExecutorReport]:
    """Ask the driver's machine and then each executor. Takes 20 s; bounded.

    Raises InvalidRequest for a master of an unknown kind, Unavailable when it or an executor does not answer.
    """
    require_master(question.master)
    asked = _as_json(question)
    here = report_of(executor_probe.look(asked, DRIVER))
    views = [report_of(view) for view in _ask(asked)]
    return views if any(view.executor == DRIVER for view in views) else [here, *views]


def require_master(master: str) -> None:
    """Raise InvalidRequest or Unavailable unless the master can be connected to."""
    if not master.startswith(_STANDALONE):
        if _OTHER_MASTERS.match(master) is None:
            raise InvalidRequest(f"{master} is not a Spark master; expected spark://HOST:PORT", remedy=_FIND_MASTER)
        return
    why = ""
    for place in master.removeprefix(_STANDALONE).split(","):
        host, _, port = place.rpartition(":")
        number = units.decimal(port, _MAX_PORT)
        if not host or number is None:
            raise InvalidRequest(f"{master} is not a Spark master; expected spark://HOST:PORT", remedy=_FIND_MASTER)
        try:
            socket.create_connection((host.strip("[]"), number), MASTER_S).close()
            return
        except OSError as exc:
            why = exc.strerror or str(exc)
    raise Unavailable(f"no Spark master answers at {master}: {why}", remedy=_FIND_MASTER)


def report_of(view: Mapping[str, Any]) -> ExecutorReport:
    """Return a view with its types."""
    mounts = tuple(MountReport(**mount) for mount in view["mounts"])
    return ExecutorReport(**{**view, "mounts": mounts})


def _ask(question: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    limit_s = question["session_s"] + question["executors_s"] + _JOB_S
    try:
        session = processes.python("tierfs.spark.executor_session")
        done = processes.run(session, stdin=json.dumps(question), timeout_s=limit_s)
    except processes.TimeoutExpired:
        raise Unavailable(f"Spark on {question['master']} did not finish within {limit_s:g} s") from None
    if not done.stdout:
        last = next(reversed(done.stderr.strip().splitlines()), f"exit code {done.returncode}")
        raise Unavailable(f"Spark ended on {question['master']}: {last}")
    answer = json.loads(done.stdout)
    if "views" in answer:
        return list(answer["views"])
    lost = _LOST.search(done.stderr)
    where = f"executor {lost[2]} ({lost[1]}): " if lost is not None else ""
    raise named(answer["kind"])(where + answer["message"], remedy=answer["remedy"])


def _as_json(question: ExecutorQuestion) -> Mapping[str, Any]:
    cold = question.cold
    kept = ("url", "endpoint_url", "region", "profile")
    return {
        "master": question.master,
        "session_s": question.session_s,
        "executors_s": question.executors_s,
        "mounts": list(question.mounts),
        "location": cold and {"id": cold.location.id, **{name: getattr(cold.location, name) for name in kept}},
        "store": cold and str(cold.store),
        "cold": cold and asdict(cold.settings),
    }
