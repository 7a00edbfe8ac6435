"""Offloads: the offloads that clients began, each with its status, one at a time on any path.

The seam for clients of Pulsar: `begin` with a position is its `topics offload`, `of` its `offload-status`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tierfs.app.store import Store
from tierfs.engine.segments.positions import Position
from tierfs.faces.admin.verb_runs import VerbRun, VerbRuns
from tierfs.tiering.ledgers.managed import PrefixOffloaded
from tierfs.tiering.offload_command import OffloadReport
from tierfs.upkeep.holder import perform, verbs


@dataclass(slots=True)
class OffloadRun(VerbRun):
    """One offload, as it stands."""

    before: str = ""
    """The position before which a managed ledger is offloaded; empty: everything."""

    @property
    def options(self) -> dict[str, Any]:
        """See VerbRun."""
        return {"before": self.before or None}


class Offloads(VerbRuns[OffloadRun]):
    """The offloads of one process. Thread-safe; close it."""

    def __init__(self, store: Store) -> None:
        super().__init__(store, "an offload", OffloadRun)

    def begin(self, path: str, before: str = "") -> OffloadRun:
        """Begin to offload everything at or below a path, or the ledgers of a managed ledger before a position.

        Raises as `start`, and InvalidRequest for what is no position.
        """
        run = OffloadRun(path, before=before)
        position = Position.parse(before) if before else None

        def work() -> OffloadReport | PrefixOffloaded:
            if position is None:
                return perform.perform(self._store, verbs.OFFLOAD, run.path, report=run.report)
            options = {verbs.BEFORE: str(position)}
            return perform.perform(self._store, verbs.OFFLOAD_PREFIX, run.path, options, run.report)

        return self.start(run, work)
