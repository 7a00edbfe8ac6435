"""Offloads: the offloads that clients began, each with its status, one at a time on any path.

The seam for clients of Pulsar: `begin` with a position is its `topics offload`, `of` its `offload-status`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tierfs.app.store import Store
from tierfs.base.bytes.frozen import dataclass, field
from tierfs.engine.segments.positions import Position
from tierfs.faces.admin.verb_runs import VerbRun, VerbRuns
from tierfs.tiering import extra_metadata
from tierfs.tiering.ledgers.managed import PrefixOffloaded
from tierfs.tiering.offload_command import OffloadReport
from tierfs.upkeep.holder import perform, verbs


@dataclass(slots=True)
class OffloadRun(VerbRun):
    """One offload, as it stands."""

    before: str = ""
    """The position before which a managed ledger is offloaded; empty: everything."""

    metadata: Mapping[str, str] = field(default_factory=dict)
    """Extra metadata of the objects that it makes."""

    @property
    def options(self) -> dict[str, Any]:
        """See VerbRun."""
        return {"before": self.before or None, "metadata": dict(self.metadata)}


class Offloads(VerbRuns[OffloadRun]):
    """The offloads of one process. Thread-safe; close it."""

    def __init__(self, store: Store) -> None:
        super().__init__(store, "an offload", OffloadRun)

    def begin(self, path: str, before: str = "", metadata: str = "") -> OffloadRun:
        """Begin to offload everything at or below a path, or the ledgers of a managed ledger before a position.

        The objects have the `metadata` of a JSON object in addition. Raises as `start`, and InvalidRequest for an
        invalid position or metadata that an object cannot have.
        """
        extra = extra_metadata.decoded(metadata) if metadata else {}
        run = OffloadRun(path, before=before, metadata=extra)
        position = Position.parse(before) if before else None

        def work() -> OffloadReport | PrefixOffloaded:
            if position is None:
                verb, options = verbs.offload_of({}, extra)
                return perform.perform(self._store, verb, run.path, options, run.report)
            of_prefix, options = verbs.offload_prefix_of({verbs.BEFORE: str(position)}, extra)
            return perform.perform(self._store, of_prefix, run.path, options, run.report)

        return self.start(run, work)
