"""Consolidations that clients started, each with its status, one at a time on any path."""

from __future__ import annotations

from typing import Any

from tierfs.app.store import Store
from tierfs.base.bytes.frozen import dataclass
from tierfs.faces.admin.verb_runs import VerbRun, VerbRuns
from tierfs.tiering.consolidate_command import ConsolidateReport
from tierfs.upkeep.holder import perform, verbs


@dataclass(slots=True)
class ConsolidateRun(VerbRun):
    """One consolidation, as it stands."""

    compress: bool = False
    """Whether plain objects are compressed where a policy requires it."""

    @property
    def options(self) -> dict[str, Any]:
        """See VerbRun."""
        return {"compress": self.compress}


class Consolidations(VerbRuns[ConsolidateRun]):
    """The consolidations of one process. Thread-safe; close it."""

    def __init__(self, store: Store) -> None:
        super().__init__(store, "a consolidation", ConsolidateRun)

    def begin(self, path: str, *, compress: bool) -> ConsolidateRun:
        """Begin to consolidate the segments at or below a path. Raises as `start`."""
        run = ConsolidateRun(path, compress=compress)

        def work() -> ConsolidateReport:
            if compress:
                return perform.perform(self._store, verbs.COMPRESS, run.path, report=run.report)
            return perform.perform(self._store, verbs.CONSOLIDATE, run.path, report=run.report)

        return self.start(run, work)
