"""Runs of a cold verb that clients started, each with its status, one at a time on any path."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from enum import StrEnum
from typing import Any, Generic, TypeVar

from tierfs.app.store import Store
from tierfs.base.bytes.frozen import dataclass, field
from tierfs.base.bytes.progress import Progress
from tierfs.base.words import names
from tierfs.base.words.errors import Conflict, TierfsError, no_cold_tier, unexpected
from tierfs.base.words.json_data import fields, timestamp
from tierfs.engine.metadata import directories

log = logging.getLogger(__name__)

R = TypeVar("R", bound="VerbRun")

# Runs of different paths at once; the holder does one after the other (a guess).
_AT_ONCE = 4

# Ended runs whose status is kept; the oldest go first.
_KEPT = 1000


class RunState(StrEnum):
    """State of the last run on a path."""

    NOT_RUN = "not run"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


@dataclass(slots=True)
class VerbRun:
    """One run, as it stands."""

    path: str
    state: RunState = RunState.NOT_RUN
    begun_ms: int = 0
    ended_ms: int = 0
    progress: Progress | None = None
    result: dict[str, Any] = field(default_factory=dict)
    error: TierfsError | None = None

    @property
    def options(self) -> dict[str, Any]:
        """What was asked for besides the path, as JSON data."""
        return {}

    def report(self, progress: Progress) -> None:
        """Note how far it is."""
        self.progress = progress

    def as_data(self) -> dict[str, Any]:
        """Return it as JSON data."""
        error = self.error
        return {
            "path": self.path,
            "state": self.state.value,
            **self.options,
            "begun": timestamp(self.begun_ms),
            "ended": timestamp(self.ended_ms),
            "progress": None if self.progress is None else fields(self.progress),
            "result": self.result or None,
            "error": None
            if error is None
            else {"kind": type(error).__name__, "message": str(error), "remedy": error.remedy},
        }


class VerbRuns(Generic[R]):
    """The runs of one verb in one process. Thread-safe; close it."""

    def __init__(self, store: Store, noun: str, make: Callable[[str], R]) -> None:
        """`noun`: of one run, with its article. `make` returns a run of a path that was not started."""
        self._store = store
        self._noun = noun
        self._make = make
        self._lock = threading.Lock()
        self._runs: dict[str, R] = {}
        self._threads = ThreadPoolExecutor(_AT_ONCE, "tierfs-verbs")

    def start(self, run: R, work: Callable[[], Any]) -> R:
        """Start the work of a run, which gets its path in normal form.

        Raises Conflict while a run on the path, or on one above or below, is going on; NotFound, NoColdTier.
        """
        run.path = path = names.join(names.split(run.path))
        with self._store.metadata.read() as txn:
            directories.must_find(txn, path)
        if self._store.cold_location_id is None:
            raise no_cold_tier(self._noun.partition(" ")[2])
        run.state, run.begun_ms = RunState.RUNNING, self._store.clock.now_ms()
        with self._lock:
            busy = next((each for each in self._runs.values() if _overlap(each, path)), None)
            if busy is not None:
                raise Conflict(
                    f"{self._noun} of {names.printable(busy.path) or '/'} is already running",
                    remedy="get its status, and wait",
                )
            self._runs.pop(path, None)
            self._runs[path] = run
            ended = [each for each, held in self._runs.items() if held.state is not RunState.RUNNING]
            for each in ended[:-_KEPT]:
                del self._runs[each]
        self._threads.submit(self._carry_out, run, work)
        return run

    def of(self, path: str) -> R:
        """Return the last run of just this path; one that was not run where there is none."""
        path = names.join(names.split(path))
        with self._lock:
            return self._runs.get(path) or self._make(path)

    def running(self) -> list[R]:
        """Return those that run."""
        with self._lock:
            return [run for run in self._runs.values() if run.state is RunState.RUNNING]

    def newest(self, most: int) -> list[R]:
        """Return the last ones of their paths, at most `most`, the newest first."""
        with self._lock:
            return sorted(self._runs.values(), key=lambda run: -run.begun_ms)[:most]

    def close(self) -> None:
        """Start no further one, and wait for the end of those that run here; a holder goes on with its own."""
        self._threads.shutdown(cancel_futures=True)

    def _carry_out(self, run: R, work: Callable[[], Any]) -> None:
        what = f"{self._noun.partition(' ')[2]} of {names.printable(run.path)}"
        try:
            result = asdict(work())
        except Exception as exc:
            run.error = unexpected(exc, what)
            log.info("%s failed: %s", what, run.error)
        else:
            run.result = result
        run.ended_ms = self._store.clock.now_ms()
        run.state = RunState.DONE if run.error is None else RunState.FAILED


def _overlap(run: VerbRun, path: str) -> bool:
    if run.state is not RunState.RUNNING:
        return False
    mine, theirs = f"{path}/" if path else "", f"{run.path}/" if run.path else ""
    return mine.startswith(theirs) or theirs.startswith(mine)
