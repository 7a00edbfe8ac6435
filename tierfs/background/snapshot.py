"""The background writer's view of the store, kept current by the database's own list of changes.

Only segments with local bytes are in it. A tick looks at what changed since the last one and at the
active chunks, never at everything: with 100,000 segments a pass over all of them takes seconds.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace

from tierfs.background.candidates import ended_ms, objects_to_make, placed_cold, sealed_local_chunks
from tierfs.background.planning import cold_copies
from tierfs.background.policy import ColdCopy, PendingObject, SegmentView
from tierfs.background.touched import TouchedSegments
from tierfs.metadata import chains, directories, policies
from tierfs.metadata.records import SegmentRecord
from tierfs.metadata.store import MetadataStore
from tierfs.metadata.tables import SEGMENTS
from tierfs.metadata.transaction import ReadTransaction
from tierfs.types import SegmentId, SegmentStatus, Tier

_SCAN_BATCH = 5000
"""Segments read per transaction by a pass over all, so that no old snapshot of the database is held for long."""


@dataclass(frozen=True, slots=True)
class _Known:
    """A view and what it was made from."""

    view: SegmentView
    generation: int
    published_sequence: int
    waits_for_journal: bool
    """Cold bytes of it are not named by the journal yet."""


class Snapshots:
    """Keeps the views of one store. One thread at a time."""

    def __init__(self, metadata: MetadataStore) -> None:
        self._metadata = metadata
        self._known: dict[SegmentId, _Known] = {}
        self._touched = TouchedSegments(metadata)

    def refresh(self) -> list[SegmentView]:
        """The views of all segments that have local bytes, as of now."""
        changed = self._touched.since_last()
        if changed is None:
            self._scan()
        else:
            with self._metadata.read() as txn:
                for segment_id in changed | self._restless(txn):
                    self._look_at(txn, directories.segment(txn, segment_id), segment_id)
        return [known.view for known in self._known.values()]

    def _restless(self, txn: ReadTransaction) -> set[SegmentId]:
        """Segments that change without a word: active ones grow, and others wait for the journal."""
        published = txn.store.journal.published_sequence
        return {
            segment_id
            for segment_id, known in self._known.items()
            if known.view.active_since_ms or (known.waits_for_journal and known.published_sequence < published)
        }

    def _scan(self) -> None:
        self._known, after = {}, b""
        while True:
            with self._metadata.read() as txn:
                rows = list(itertools.islice(txn.scan(SEGMENTS, after), _SCAN_BATCH))
                for _, segment in rows:
                    self._look_at(txn, segment, segment.id)
            if len(rows) < _SCAN_BATCH:
                return
            after = rows[-1][0] + b"\0"

    def _look_at(self, txn: ReadTransaction, segment: SegmentRecord | None, segment_id: SegmentId) -> None:
        if segment is None or not segment.local.count or segment.status is SegmentStatus.DELETED:
            self._known.pop(segment_id, None)
            return
        known = self._known.get(segment_id)
        published = txn.store.journal.published_sequence
        if (
            known is not None
            and known.generation == segment.generation
            and segment.active
            and not (known.waits_for_journal and known.published_sequence < published)
        ):
            grown = segment.local.bytes - known.view.local_bytes
            view = replace(known.view, local_bytes=segment.local.bytes, active_bytes=known.view.active_bytes + grown)
            self._known[segment_id] = replace(known, view=view)
            return
        self._known[segment_id] = _known(txn, segment)


def _known(txn: ReadTransaction, segment: SegmentRecord) -> _Known:
    published = txn.store.journal.published_sequence
    active = chains.chunk_at(txn, segment.id, Tier.LOCAL, segment.local.last_chunk) if segment.active else None
    copies = [
        ColdCopy(since_ms, chunk.length)
        for chunk, since_ms in cold_copies(
            sealed_local_chunks(txn, segment),
            placed_cold(txn, segment),
            published_sequence=published,
            start_offset=segment.start_offset,
        )
    ]
    view = SegmentView(
        id=segment.id,
        policy=policies.effective(txn, segment),
        local_bytes=segment.local.bytes,
        active_since_ms=chains.object_of(txn, active).created_ms if active is not None else 0,
        active_bytes=active.length if active is not None else 0,
        pending=tuple(_pending(txn, segment)),
        copies=tuple(sorted(copies, key=lambda copy: copy.cold_since_ms)),
    )
    waits = any(placed.object.linked_sequence > published for placed in placed_cold(txn, segment))
    return _Known(view, segment.generation, published, waits)


def _pending(txn: ReadTransaction, segment: SegmentRecord) -> Iterator[PendingObject]:
    for action in objects_to_make(txn, segment):
        yield PendingObject(action, ended_ms(txn, segment, action.chunks[0]))
