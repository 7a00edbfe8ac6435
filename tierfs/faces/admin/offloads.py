"""Offloads: the offloads that clients began, each with its status, one at a time on any path.

The seam for clients of Pulsar: `begin` with a position is its `topics offload`, `of` its `offload-status`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from tierfs.app.store import Store
from tierfs.base.bytes.progress import Progress
from tierfs.base.words import names
from tierfs.base.words.errors import Conflict, TierfsError, no_cold_tier, unexpected
from tierfs.base.words.json_data import fields, timestamp
from tierfs.engine.metadata import directories
from tierfs.engine.segments.positions import Position
from tierfs.upkeep.holder import perform, verbs

log = logging.getLogger(__name__)

# Offloads of different paths at once; the holder does one after the other (a guess).
_AT_ONCE = 4

# Ended offloads whose status is kept; the oldest go first.
_KEPT = 1000


class OffloadRunState(StrEnum):
    """State of the last offload of a path."""

    NOT_RUN = "not run"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


@dataclass(slots=True)
class OffloadRun:
    """One offload, as it stands."""

    path: str
    state: OffloadRunState = OffloadRunState.NOT_RUN
    before: str = ""
    """The position before which a managed ledger is offloaded; empty: everything."""
    begun_ms: int = 0
    ended_ms: int = 0
    progress: Progress | None = None
    result: dict[str, Any] = field(default_factory=dict)
    error: TierfsError | None = None

    def as_data(self) -> dict[str, Any]:
        """Return it as JSON data."""
        error = self.error
        return {
            "path": self.path,
            "state": self.state.value,
            "before": self.before or None,
            "begun": timestamp(self.begun_ms),
            "ended": timestamp(self.ended_ms),
            "progress": None if self.progress is None else fields(self.progress),
            "result": self.result or None,
            "error": None
            if error is None
            else {"kind": type(error).__name__, "message": str(error), "remedy": error.remedy},
        }


class Offloads:
    """The offloads of one process. Thread-safe; close it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._runs: dict[str, OffloadRun] = {}
        self._threads = ThreadPoolExecutor(_AT_ONCE, "tierfs-offloads")

    def begin(self, path: str, before: str = "") -> OffloadRun:
        """Begin to offload everything at or below a path, or the ledgers of a managed ledger before a position.

        Raises Conflict while an offload of the path, or of one above or below, runs; NotFound, NoColdTier, and
        InvalidRequest for what is no position.
        """
        path = names.join(names.split(path))
        position = Position.parse(before) if before else None
        with self._store.metadata.read() as txn:
            directories.must_find(txn, path)
        if self._store.cold_location_id is None:
            raise no_cold_tier("offload")
        run = OffloadRun(path, OffloadRunState.RUNNING, before, self._store.clock.now_ms())
        with self._lock:
            busy = next((each for each in self._runs.values() if _overlap(each, path)), None)
            if busy is not None:
                raise Conflict(
                    f"an offload of {names.printable(busy.path) or '/'} is already running",
                    remedy="get its status, and wait",
                )
            self._runs.pop(path, None)
            self._runs[path] = run
            ended = [each for each, held in self._runs.items() if held.state is not OffloadRunState.RUNNING]
            for each in ended[:-_KEPT]:
                del self._runs[each]
        self._threads.submit(self._carry_out, run, self._work(run, position))
        return run

    def of(self, path: str) -> OffloadRun:
        """Return the last offload of just this path; one that was not run where there is none."""
        path = names.join(names.split(path))
        with self._lock:
            return self._runs.get(path) or OffloadRun(path)

    def running(self) -> list[OffloadRun]:
        """Return those that run."""
        with self._lock:
            return [run for run in self._runs.values() if run.state is OffloadRunState.RUNNING]

    def newest(self, most: int) -> list[OffloadRun]:
        """Return the last ones of their paths, at most `most`, the newest first."""
        with self._lock:
            return sorted(self._runs.values(), key=lambda run: -run.begun_ms)[:most]

    def close(self) -> None:
        """Begin no further one, and wait for the end of those that run here; a holder goes on with its own."""
        self._threads.shutdown(cancel_futures=True)

    def _work(self, run: OffloadRun, before: Position | None) -> Callable[[], Any]:
        def report(progress: Progress) -> None:
            run.progress = progress

        if before is None:
            return lambda: perform.perform(self._store, verbs.OFFLOAD, run.path, report=report)
        options = {verbs.BEFORE: str(before)}
        return lambda: perform.perform(self._store, verbs.OFFLOAD_PREFIX, run.path, options, report)

    def _carry_out(self, run: OffloadRun, work: Callable[[], Any]) -> None:
        try:
            result = asdict(work())
        except Exception as exc:
            run.error = unexpected(exc, f"offload of {names.printable(run.path)}")
            log.info("offload of %s failed: %s", names.printable(run.path) or "/", run.error)
        else:
            run.result = result
        run.ended_ms = self._store.clock.now_ms()
        run.state = OffloadRunState.DONE if run.error is None else OffloadRunState.FAILED


def _overlap(run: OffloadRun, path: str) -> bool:
    if run.state is not OffloadRunState.RUNNING:
        return False
    mine, theirs = f"{path}/" if path else "", f"{run.path}/" if run.path else ""
    return mine.startswith(theirs) or theirs.startswith(mine)
