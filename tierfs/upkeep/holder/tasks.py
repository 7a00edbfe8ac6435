"""Tasks: the work that a store's holder repeats, as a table, and the one loop that runs it.

Blocking work runs in threads; time goes by trio and the clock, so that tests own both. A step that fails is noted in
`failures` and skipped until its pause is over. Only Fenced ends the loop.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from enum import Enum, auto
from functools import partial
from typing import Protocol, TypeVar

import trio

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words.errors import Fenced, TierfsError
from tierfs.engine.metadata.store import MetadataStore
from tierfs.tiering.objects import ChunksMoved
from tierfs.tiering.snapshot import SLICE_S
from tierfs.upkeep.holder.failures import Failures
from tierfs.upkeep.holder.status import BacklogStatus

log = logging.getLogger(__name__)

T = TypeVar("T")

# Returns a TaskOutcome when there is more to do than one run did.
Step = Callable[[], Awaitable[object]]

# Between two slices of a look that is too long for one: most of the interpreter is left to a mount's readers.
PAUSE_S = 2 * SLICE_S

# Pauses in a row while the process is busy otherwise: a long look, as a new mount's, then takes at most a ninth of a
# core from its readers, and else a third.
_MOST_PAUSES = 4

# Share of a core that others of the process use in a pause, from which one more follows.
_BUSY = 0.5

# More than the background writer has tasks, so that none waits for another's thread.
_THREADS = 16

# For work that is about to end by itself.
_GRACE_S = 3.0


class TaskOutcome(Enum):
    """The outcome of a step, which sets the time of the next run."""

    DONE = auto()
    """Again after the task's period."""
    FAILED = auto()
    """Or skipped, as its last failure is too recent."""
    MORE = auto()
    """Again after PAUSE_S."""
    AT_ONCE = auto()


@dataclass(frozen=True, slots=True)
class Task:
    """One row of the table."""

    period_s: float
    """Between the end of one run and the next."""
    steps: Mapping[str, Step]
    """By the name of their failures, done in this order; one that fails does not keep the next from running."""
    still_periods: int = 1
    """Number of periods to rest while no process commits."""
    woken: Callable[[], trio.Event] = trio.Event
    """Called before each run; the event ends the rest after it."""


@dataclass(frozen=True, slots=True)
class TaskTable:
    """The tasks that one kind of holder repeats."""

    tasks: Sequence[Task]
    backlog: Callable[[], BacklogStatus | None] = lambda: None
    """Bytes left to offload, as of the last look."""


class InThread(Protocol):
    """Runs a blocking function elsewhere and awaits it."""

    def __call__(self, work: Callable[[], T], /) -> Awaitable[T]:
        """Return or raise the outcome of `work`."""
        ...

    @property
    def busy(self) -> bool:
        """Whether anything is still at work, also for a caller that was cancelled."""
        ...

    def idle(self) -> Awaitable[None]:
        """Return when nothing is at work."""
        ...


class TaskLoop:
    """Runs tables of tasks for one holder."""

    def __init__(self, metadata: MetadataStore, failures: Failures, in_thread: InThread) -> None:
        self._metadata = metadata
        self.failures = failures
        self.in_thread = in_thread

    def blocking(self, work: Callable[[], object]) -> Step:
        """Make a step of a function that blocks; its result is dropped."""
        return partial(self.in_thread, work)

    def in_slices(self, work: Callable[[], bool]) -> Step:
        """Make a step of a function that blocks, and returns whether more is left than it did."""

        async def step() -> TaskOutcome:
            return TaskOutcome.MORE if await self.in_thread(work) else TaskOutcome.DONE

        return step

    async def run(self, tasks: Iterable[Task]) -> None:
        """Repeat each task until cancelled. Raises Fenced, in a group, when another store owns the bucket."""
        async with trio.open_nursery() as nursery:
            for task in tasks:
                nursery.start_soon(self._repeat, task)

    async def _repeat(self, task: Task) -> None:
        while True:
            woken = task.woken()
            newest = self._newest() if task.still_periods > 1 else None
            outcomes = [await self.attempt(name, step) for name, step in task.steps.items()]
            if TaskOutcome.FAILED in outcomes:
                await trio.sleep(task.period_s)
            elif TaskOutcome.MORE in outcomes:
                await _pause_for_others(woken)
            elif TaskOutcome.AT_ONCE not in outcomes:
                await self._rest(task, newest, woken)

    async def _rest(self, task: Task, newest: int | None, woken: trio.Event) -> None:
        """Wait for the task's period, and for more of them until any process commits after transaction `newest`."""
        for remaining in reversed(range(task.still_periods)):
            await _pause(task.period_s, woken)
            if woken.is_set() or (remaining and (newest is None or self._newest() != newest)):
                return

    def _newest(self) -> int | None:
        """Return the newest transaction; None if the metadata cannot be read, as after an error of the disk."""
        try:
            return self._metadata.last_transaction_id()
        except TierfsError as exc:  # the task's steps meet it too, and note it as their failure
            log.debug("the newest transaction is unknown: %s", exc)
            return None

    async def attempt(self, name: str, step: Step, *, size_bytes: int = 0) -> TaskOutcome:
        """Run a step unless it pauses for a failure; note how it went. Only Fenced passes."""
        if not self.failures.may_try(name):
            return TaskOutcome.FAILED
        try:
            outcome = await step()
            if self.failures.has(name):
                await self.in_thread(partial(self.failures.passed, name))
        except Fenced:
            raise
        except ChunksMoved as exc:
            log.debug("%s: %s", name, exc)
            return TaskOutcome.DONE
        except Exception as exc:
            await self.in_thread(partial(self.failures.failed, name, exc, size_bytes=size_bytes))
            return TaskOutcome.FAILED
        return outcome if isinstance(outcome, TaskOutcome) else TaskOutcome.DONE


async def _pause_for_others(woken: trio.Event) -> None:
    for _ in range(_MOST_PAUSES):
        used_s = time.process_time()
        await _pause(PAUSE_S, woken)
        if woken.is_set() or time.process_time() - used_s < _BUSY * PAUSE_S:
            return


async def _pause(longest_s: float, woken: trio.Event) -> None:
    with trio.move_on_after(longest_s):
        await woken.wait()


class BackgroundThreads:
    """InThread that runs the blocking work of one process; call it and await the result.

    An upload may take minutes to give up. A process that is asked to end does not wait for it: the next holder resolves
    what was in flight. But LMDB must not be closed under a thread, so the process then ends at once, without taking
    anything down.
    """

    def __init__(self) -> None:
        self._limiter = trio.CapacityLimiter(_THREADS)
        self._changed = threading.Condition()
        self._running = 0

    @property
    def busy(self) -> bool:
        return self._running > 0

    async def __call__(self, work: Callable[[], T], /) -> T:
        """Return the result of `work`; a cancelled caller leaves it to end by itself."""
        return await trio.to_thread.run_sync(self._counted, work, limiter=self._limiter, abandon_on_cancel=True)

    async def idle(self) -> None:
        await trio.to_thread.run_sync(self._wait_idle, None, abandon_on_cancel=True)

    def leave(self) -> None:
        """Return when no thread is at work; end the process if some still are after a while."""
        if self._wait_idle(_GRACE_S):
            return
        log.info("stopping with work in flight; the next holder of the store resolves it")
        logging.shutdown()
        os._exit(0)

    def _wait_idle(self, longest_s: float | None) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: not self._running, longest_s)

    def _counted(self, work: Callable[[], T]) -> T:
        with self._changed:
            self._running += 1
        try:
            return work()
        finally:
            with self._changed:
                self._running -= 1
                self._changed.notify_all()
