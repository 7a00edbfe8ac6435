"""Which segments changed since somebody looked last, from the database's own list of changes."""

from __future__ import annotations

from tierfs.metadata import keys
from tierfs.metadata.store import MetadataStore
from tierfs.metadata.tables import TOUCHES
from tierfs.types import SegmentId


class TouchedSegments:
    """One look after another. One thread at a time."""

    def __init__(self, metadata: MetadataStore) -> None:
        self._metadata = metadata
        self._next_touch: int | None = None

    def since_last(self) -> set[SegmentId] | None:
        """Segments that changed since the last call; None when everything has to be looked at."""
        with self._metadata.read() as txn:
            since, self._next_touch = self._next_touch, txn.store.next_change
            if since is None:
                return None
            changed: set[SegmentId] = set()
            expected = since
            for key, touch in txn.scan(TOUCHES, keys.u64(since)):
                if keys.read_u64(key) != expected or touch.policies:
                    return None
                expected += 1
                if touch.segment_id:
                    changed.add(SegmentId(touch.segment_id))
            return changed if expected == self._next_touch else None
