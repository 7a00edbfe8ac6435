"""Which segments changed since somebody looked last, from the database's own list of changes."""

from __future__ import annotations

from dataclasses import dataclass

from tierfs.metadata import keys
from tierfs.metadata.messages import messages
from tierfs.metadata.store import MetadataStore
from tierfs.metadata.tables import TOUCHES
from tierfs.metadata.transaction import ReadTransaction
from tierfs.types import SegmentId


@dataclass(frozen=True, slots=True)
class Touched:
    """What changed between two looks."""

    segments: frozenset[SegmentId] = frozenset()
    """Those that the list names, also when everything has to be looked at."""
    own_policies: frozenset[SegmentId] = frozenset()
    """Those of them whose own settings changed."""
    everything: bool = False
    """Whether all segments have to be looked at: a directory's policy changed, or rows of the list are gone."""


class TouchedSegments:
    """One look after another. One thread at a time."""

    def __init__(self, metadata: MetadataStore) -> None:
        self._metadata = metadata
        self._next_touch: int | None = None

    def since_last(self) -> Touched:
        """What changed since the last call; everything at the first one."""
        with self._metadata.read() as txn:
            newest = txn.store.next_change
            touched = Touched(everything=True) if self._next_touch is None else _between(txn, self._next_touch, newest)
        self._next_touch = newest
        return touched


def _between(txn: ReadTransaction, since: int, newest: int) -> Touched:
    segments: set[SegmentId] = set()
    own_policies: set[SegmentId] = set()
    everything, expected = False, since
    for key, touch in messages(txn, TOUCHES, keys.u64(since)):
        everything |= keys.read_u64(key) != expected or touch is None
        expected = keys.read_u64(key) + 1
        if touch is None:  # damaged: it could have named any segment
            continue
        everything |= touch.policies and not touch.segment_id
        if touch.segment_id:
            segments.add(SegmentId(touch.segment_id))
        if touch.segment_id and touch.policies:
            own_policies.add(SegmentId(touch.segment_id))
    return Touched(frozenset(segments), frozenset(own_policies), everything or expected != newest)
