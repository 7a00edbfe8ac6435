"""Size trigger: ledgers that are due because their managed ledger has too much that is not offloaded (PIP-17)."""

from __future__ import annotations

from collections.abc import Iterator

from tierfs.background.offload_queue import ObjectKey, key_of
from tierfs.background.ordered import Ordered
from tierfs.background.policy import SegmentView
from tierfs.types import DirectoryId, SegmentId

_MOST_DUE = 64
"""Ledgers of one managed ledger that are due at once; the next ones are when these are cold."""


class _ManagedLedger:
    """Its ledgers that are on the local disk alone."""

    def __init__(self) -> None:
        self.bytes = 0
        self.closed: Ordered[SegmentId] = Ordered()
        """By ledger id."""


class SizeTrigger:
    """Sums of the ledgers whose policy has `offload_above_bytes`. One thread at a time."""

    def __init__(self) -> None:
        self._views: dict[SegmentId, SegmentView] = {}
        self._managed: dict[DirectoryId, _ManagedLedger] = {}

    def put(self, view: SegmentView) -> Iterator[ObjectKey]:
        """A segment is new, or changed; yields the ledgers of its managed ledger that are due by size, oldest first."""
        self.drop(view.id)
        place = view.ledger
        if place is None or view.policy.offload_above_bytes is None or not place.bytes_here_alone:
            return iter(())
        self._views[view.id] = view
        managed = self._managed.setdefault(place.managed_ledger, _ManagedLedger())
        managed.bytes += place.bytes_here_alone
        if view.pending:
            managed.closed.put(view.id, place.ledger_id)
        return self._due(managed)

    def drop(self, segment_id: SegmentId) -> None:
        """A segment counts no more."""
        view = self._views.pop(segment_id, None)
        if view is None or view.ledger is None:
            return
        managed = self._managed[view.ledger.managed_ledger]
        managed.bytes -= view.ledger.bytes_here_alone
        managed.closed.remove(segment_id)
        if not managed.bytes:
            del self._managed[view.ledger.managed_ledger]

    def _due(self, managed: _ManagedLedger) -> Iterator[ObjectKey]:
        left = managed.bytes
        for (_, segment_id), _ in zip(managed.closed.ascending(), range(_MOST_DUE), strict=False):
            view = self._views[segment_id]
            above_bytes = view.policy.offload_above_bytes
            if above_bytes is None or left <= above_bytes:
                return
            (pending,) = view.pending
            left -= pending.bytes
            yield key_of(pending)
