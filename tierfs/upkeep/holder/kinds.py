"""The three kinds of holder, each the table of the tasks that it repeats.

The owner of a store with a cold tier is the background writer; without one, only files and lifetimes are left to do; a
replica follows its bucket. What they have in common is in one list.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from tierfs.base.options.config import BackgroundSettings
from tierfs.engine.metadata.store import MetadataStore
from tierfs.upkeep.holder.failures import CLOCKS
from tierfs.upkeep.holder.local_work import ExpiringChunks, LocalWork
from tierfs.upkeep.holder.tasks import Task, TaskLoop, TaskTable
from tierfs.upkeep.holder.work import ColdWork
from tierfs.upkeep.holder.writer import BackgroundWriter

log = logging.getLogger(__name__)

# A guess: a minute's pages are few, and the look costs a system call per process.
_READERS_EVERY_S = 60.0

# Without a suspect chunk a look is one read of the sums.
_SUSPECTS_EVERY_S = 10.0

# Between two looks whether a walk over chunk files is due, which it is once an hour.
_STRAYS_EVERY_S = 60.0


def with_cold_tier(work: ColdWork, loop: TaskLoop, settings: BackgroundSettings) -> TaskTable:
    """Resolve what the previous holder left, and list the tasks of the background writer. Raises Fenced."""
    work.resolve_crashed()
    work.metadata.count_sums()
    writer = BackgroundWriter(work, loop, settings)
    return TaskTable([*writer.tasks(), *_of_any_owner(work, loop, settings)], lambda: writer.backlog)


def without_cold_tier(work: LocalWork, loop: TaskLoop, settings: BackgroundSettings) -> TaskTable:
    """List the tasks of a store that has only files."""
    chunks = ExpiringChunks(work.engine, loop.failures)
    look = Task(settings.tick_s, {"look": loop.in_slices(chunks.look)})
    collect = Task(settings.tick_s, {"collect": loop.blocking(work.collect)})
    return TaskTable([look, collect, *_of_any_owner(work, loop, settings)])


def of_replica(
    metadata: MetadataStore, connect: Callable[[], Callable[[], object]], loop: TaskLoop, settings: BackgroundSettings
) -> TaskTable:
    """List the tasks of a replica; `connect` returns what brings it up to date, with its result."""
    refresh = connect()
    refreshes = Task(
        settings.replica_refresh_s, {"refresh": loop.blocking(lambda: log.debug("refreshed: %s", refresh()))}
    )
    return TaskTable([_dead_readers(metadata, loop), refreshes])


def _of_any_owner(work: LocalWork, loop: TaskLoop, settings: BackgroundSettings) -> list[Task]:
    # Timed deletions are listed as stuck while the clocks disagree; each of them looks at the clocks itself.
    clocks = {CLOCKS: loop.blocking(work.clocks.require), "clocks": loop.blocking(work.tell_clocks)}
    return [
        Task(settings.lifetimes_every_s, {"lifetimes": loop.blocking(work.end_lifetimes)}),
        Task(settings.clocks_every_s, clocks),
        _dead_readers(work.metadata, loop),
        Task(_SUSPECTS_EVERY_S, {"suspects": loop.blocking(work.suspects.look)}),
        Task(_STRAYS_EVERY_S, {"strays": loop.in_slices(work.collect_strays)}),
    ]


def _dead_readers(metadata: MetadataStore, loop: TaskLoop) -> Task:
    # A reader that was killed keeps every page that was replaced since from being used again.
    return Task(_READERS_EVERY_S, {"dead readers": loop.blocking(metadata.clear_dead_readers)})
