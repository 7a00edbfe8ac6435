"""Offload by size: the bytes that streams and managed ledgers have on the local disk alone (PIP-17)."""

from __future__ import annotations

from collections.abc import Iterator

from tierfs.base.words.types import DirectoryId, SegmentId
from tierfs.tiering.offload_queue import ObjectKey, key_of
from tierfs.tiering.ordered import Ordered
from tierfs.tiering.policy import SegmentSummary


class _Stream:
    """The members of a stream, or the ledgers of a managed ledger, that have bytes on the local disk alone."""

    def __init__(self) -> None:
        self.bytes = 0
        self.complete: Ordered[SegmentId] = Ordered()
        """Those with objects to make, the oldest first."""


class SizeTrigger:
    """Offload by size: sums of the streams whose policy has `offload_above_bytes`. One thread at a time."""

    def __init__(self) -> None:
        self._views: dict[SegmentId, SegmentSummary] = {}
        self._streams: dict[tuple[DirectoryId, str], _Stream] = {}

    def put(self, view: SegmentSummary) -> Iterator[ObjectKey]:
        """Count a new or changed segment; yield the objects of its stream that are due by size, oldest first."""
        self.drop(view.id)
        place = view.place
        if place is None or view.policy.offload_above_bytes is None:
            return iter(())
        self._views[view.id] = view
        stream = self._streams.setdefault(place.stream, _Stream())
        stream.bytes += place.bytes_here_alone
        if view.pending:
            stream.complete.put(view.id, place.number)
        return self._due(stream)

    def drop(self, segment_id: SegmentId) -> None:
        """Stop counting a segment."""
        view = self._views.pop(segment_id, None)
        if view is None or view.place is None:
            return
        stream = self._streams[view.place.stream]
        stream.bytes -= view.place.bytes_here_alone
        stream.complete.remove(segment_id)
        if not stream.bytes:
            del self._streams[view.place.stream]

    def _due(self, stream: _Stream) -> Iterator[ObjectKey]:
        remaining_bytes = stream.bytes
        for _, segment_id in stream.complete.ascending():
            view = self._views[segment_id]
            above_bytes = view.policy.offload_above_bytes
            for pending in view.pending:
                if above_bytes is None or remaining_bytes <= above_bytes:
                    return
                remaining_bytes -= pending.bytes
                yield key_of(pending)
