"""Follow the database's own list of changes: what to look at again, for the planner, for consolidation and for a mount.

Each transaction that changes what others keep in memory adds rows to that list, which is as long as MAX_TOUCHES. Where
it is read too late, or a row is damaged, everything counts as changed: `ChangedSegments` then goes over all segments,
as at its beginning, in steps, so that a mount's readers run in between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import count, islice
from typing import Any

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words.types import SegmentId
from tierfs.engine.metadata import records_pb2 as pb
from tierfs.engine.metadata import tables
from tierfs.engine.metadata.message_rows import messages
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.tables import SEGMENTS, TOUCHES
from tierfs.tiering.ordered import Ordered

# Rows that a pass over all segments reads at once: some 2 ms.
_SCAN_ROWS = 500


@dataclass(frozen=True, slots=True)
class Changes:
    """Changes from a position of the list on, in order."""

    touches: Sequence[pb.TouchRecord]
    complete: bool
    """False if rows were gone or damaged: they could have named anything."""
    following: int
    """Position from which to read on."""


def changes_since(metadata: MetadataStore, position: int, most: int | None = None) -> Changes:
    """Return the changes from a position on, `most` of them; when some are missing, to be read on from the newest."""
    with metadata.read() as txn:
        rows = list(islice(messages(txn, TOUCHES, tables.u64(position)), most))
        newest = txn.store.next_change
    touches = [touch for _, touch in rows if touch is not None]
    end = position + len(rows)
    in_sequence = all(tables.read_u64(key) == number for (key, _), number in zip(rows, count(position), strict=False))
    complete = in_sequence and len(touches) == len(rows) and (end == newest or len(rows) == most)
    return Changes(touches, complete, end if complete else newest)


class ChangedSegments:
    """Queue of the segments to look at. One thread at a time."""

    def __init__(
        self,
        metadata: MetadataStore,
        matters: Callable[[Any | None], bool],
        known: Callable[[], Iterable[SegmentId]] = tuple,
    ) -> None:
        """A pass over all takes rows that `matters` selects, None for a damaged one, and all that were `known`."""
        self._metadata = metadata
        self._matters = matters
        self._known = known
        self._position = -1
        """Before every change, so that the first refresh begins a pass over all segments."""
        self.queue: dict[SegmentId, None] = {}
        """Segments to look at, in this order; the caller takes them out once it has."""
        self._waits: Ordered[SegmentId] = Ordered()
        """Segments whose cold bytes the journal does not name in full, by the sequence that will name the next ones."""
        self._scan_from: bytes | None = None
        """Key of the next segment of a pass over all; None if no pass is in progress."""
        self._again = False
        """Whether another pass follows: restarting at each change would never reach the newest segments."""
        self._unseen: set[SegmentId] = set()
        """Segments known before the pass that the pass has not reached yet."""

    @property
    def passes(self) -> bool:
        """Whether a pass over all segments is in progress."""
        return self._scan_from is not None

    def refresh(self) -> None:
        """Queue the segments that changed since the last call, and those that the journal names since."""
        if self._position < 0:
            with self._metadata.read() as txn:
                changes = Changes((), False, txn.store.next_change)
        else:
            changes = changes_since(self._metadata, self._position)
        self._position = changes.following
        changed = {SegmentId(touch.segment_id) for touch in changes.touches if touch.segment_id}
        self.queue.update(dict.fromkeys(sorted(changed)))
        # The policies of a directory count for all that is below it.
        if not changes.complete or any(touch.policies and not touch.segment_id for touch in changes.touches):
            self._again = self.passes
            if not self.passes:
                self._begin_pass()
        with self._metadata.read() as txn:
            self.queue.update(dict.fromkeys(self._waits.pop_below(txn.store.journal.published_sequence)))

    def wait_for(self, segment_id: SegmentId, sequence: int) -> None:
        """Queue a segment once the journal names a change; with sequence 0 it waits no longer."""
        if sequence:
            self._waits.put(segment_id, sequence)
        else:
            self._waits.remove(segment_id)

    def scan(self) -> Sequence[SegmentId]:
        """Queue the next segments of a pass, and at its end those that it did not reach; return them."""
        if self._scan_from is None:
            return ()
        with self._metadata.read() as txn:
            rows = list(islice(messages(txn, SEGMENTS, self._scan_from), _SCAN_ROWS))
        reached = [SegmentId(tables.read_u64(key)) for key, row in rows if self._matters(row)]
        self._unseen.difference_update(reached)
        if len(rows) == _SCAN_ROWS:
            self._scan_from = rows[-1][0] + b"\0"
        else:
            reached += self._unseen
            self._scan_from = None
            if self._again:
                self._begin_pass()
        self.queue.update(dict.fromkeys(reached))
        return reached

    def _begin_pass(self) -> None:
        self._scan_from, self._again = b"", False
        self._unseen = set(self._known())
