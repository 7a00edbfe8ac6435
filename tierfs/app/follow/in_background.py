"""Following by the holder of the store: the sources that `tierfs follow --background` recorded.

The rows are of this host and in no journal, so a recovered store and a replica follow nothing of the host they are on.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from tierfs.app.room import InLog
from tierfs.app.store import Store
from tierfs.base.options.config import BackgroundSettings
from tierfs.base.words import names
from tierfs.base.words.errors import TierfsError
from tierfs.engine.metadata import directories, followed, tables
from tierfs.engine.metadata.followed_range import FollowedSource
from tierfs.engine.metadata.tables import DIRECTORIES
from tierfs.upkeep.holder.failures import Failures
from tierfs.upkeep.holder.loop import Begin
from tierfs.upkeep.holder.tasks import Task, TaskLoop, TaskTable

if TYPE_CHECKING:
    from tierfs.app.follow.follower import LogFollower

log = logging.getLogger(__name__)

# A line is in the store within a second. A look at nothing is one read of a few rows.
_LOOK_S = 0.5

# Names the failures of one log, with its path; and those of the look at all of them.
FOLLOW, LOOK = "follow", "look for followed logs"


class BackgroundFollowing:
    """Follows what is recorded, for the holder of a store, whatever table of tasks it has at the time."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._followers: dict[str, tuple[frozenset[FollowedSource], LogFollower]] = {}
        self._failing: dict[str, TierfsError] = {}

    def added_to(self, begin: Begin) -> Begin:
        """Return the work of a holder with following added."""

        def begin_all(loop: TaskLoop, settings: BackgroundSettings) -> TaskTable:
            table = begin(loop, settings)
            task = Task(_LOOK_S, {LOOK: loop.blocking(partial(self.look, loop.failures))})
            return replace(table, tasks=[*table.tasks, task])

        return begin_all

    def look(self, failures: Failures) -> None:
        """Append what is new; an error of one log is listed, and the log retried."""
        if not self._lock.acquire(blocking=False):
            return  # the look of the table of tasks before, which is about to end
        try:
            wanted = self._wanted()
            for into in self._followers.keys() - wanted.keys():
                self._followers.pop(into)[1].close()
            for into, rows in wanted.items():
                self._look_at(into, rows)
            self._note(failures)
        finally:
            self._lock.release()

    def _wanted(self) -> dict[str, frozenset[FollowedSource]]:
        with self._store.metadata.read() as txn:
            by_directory: dict[str, set[FollowedSource]] = {}
            for row in followed.sources(txn):
                directory = txn.get(DIRECTORIES, tables.u64(row.directory_id)) if row.background else None
                if directory is not None:
                    path = directories.path_of(txn, directory.parent_id, directory.name) if directory.name else ""
                    if not names.is_removed(path):
                        by_directory.setdefault(path, set()).add(row)
        return {path: frozenset(rows) for path, rows in by_directory.items()}

    def _look_at(self, into: str, rows: frozenset[FollowedSource]) -> None:
        known = self._followers.get(into)
        if known is None or known[0] != rows:
            # Here and not above: every mount and daemon looks for sources, and few have one.
            from tierfs.app.follow.follower import LogFollower
            from tierfs.app.follow.local import LocalTarget
            from tierfs.app.follow.sources import LogSource

            if known is not None:
                self._followers.pop(into)[1].close()
            wanted = [LogSource.of(os.fsdecode(row.path), row.below) for row in rows]
            target = LocalTarget(self._store, into, InLog(), waits=False)
            known = rows, LogFollower(target, wanted, InLog())
            self._followers[into] = known
            log.info("following %d files into %s", len(known[1].paths), names.printable(into) or "/")
        known[1].look()

    def _note(self, failures: Failures) -> None:
        failing = {path: error for _, each in self._followers.values() for path, error in each.summary.failed.items()}
        for path, error in failing.items():
            if self._failing.get(path) is not error:
                failures.failed(f"{FOLLOW} {path}", error, name=path)
        for path in self._failing.keys() - failing.keys():
            failures.passed(f"{FOLLOW} {path}")
        failures.retain(f"{FOLLOW} ", {f"{FOLLOW} {path}" for path in failing}.__contains__, keep_damage=False)
        self._failing = failing


def chosen(store: Store, into: str) -> list[FollowedSource]:
    """Return the sources that the holder follows into a directory. Raises NotFound."""
    with store.metadata.read() as txn:
        directory_id = directories.must_find(txn, into, "directory").id
        return [row for row in followed.sources(txn) if row.background and row.directory_id == directory_id]


def choose(store: Store, rows: Sequence[FollowedSource], *, background: bool) -> None:
    """Let the holder follow recorded sources, or no more; it notices within a second."""
    with store.metadata.write() as txn:
        followed.in_background(txn, rows, background=background)
