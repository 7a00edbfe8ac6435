"""The archive in the background: a pass over the segments finds what falls due, in slices; then it rests.

A pass begins when an object falls due that the last one met, when policies change, and after the shortest
`archive_after` of all, as objects that are newer than the pass are due then at the earliest. Without such a policy
there is none, nor where nothing can be archived: `config` and `move` refuse the policies there, but records of before
that, or a restored backup, may have them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from itertools import islice

from tierfs.base.words.types import LocationId, SegmentId
from tierfs.engine.metadata import archive_place, directories, policies
from tierfs.engine.metadata.policies import PolicyCache
from tierfs.engine.metadata.records import LocationRecord, SegmentRecord
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.tables import POLICIES, SEGMENTS
from tierfs.engine.metadata.transaction import ReadTransaction
from tierfs.tiering.archive.command import met_in
from tierfs.tiering.archive.due import ArchiveAction, ArchiveTarget, DueObjects, Movable
from tierfs.tiering.snapshot import SLICE_S

log = logging.getLogger(__name__)

# Segments that one transaction reads.
_PAGE = 200

# In the row of a policy that moves objects.
_AFTER = b"archive_after"

# Between two passes, at least: one over a million chunks costs half a minute of a core (a guess).
_LEAST_REST_MS = 10_000

_Settings = tuple[tuple[bytes, bytes] | LocationRecord | None, ...]


class ArchiveWatch:
    """Finds the objects that policies move. One thread at a time."""

    def __init__(self, metadata: MetadataStore, location_id: LocationId) -> None:
        self._metadata = metadata
        self._location_id = location_id
        self._cache = PolicyCache()
        self._settings: _Settings = ()
        """Rows of the policies of the last pass, and the places."""
        self._seen = 0
        """Transaction of the last look at them."""
        self._why_not: dict[str, str] = {}
        """Why nothing can move to a class, None for all of them; empty if it can."""
        self._pass: Iterator[ArchiveAction | None] | None = None
        self._rest_until_ms = 0
        self.more = False
        """Whether the last call ended before the pass did."""

    def next(self, most: int, may_try: Callable[[SegmentId], bool]) -> list[ArchiveAction]:
        """Return the next objects to move, after a slice of the pass at most; see `more`."""
        clock = self._metadata.clock
        self.more = False
        if self._pass is None and not self._is_due(clock.now_ms()):
            return []
        due: list[ArchiveAction] = []
        self._pass = self._pass or self._all(may_try)
        ends_s = clock.monotonic_s() + SLICE_S
        for action in self._pass:
            due += [] if action is None else [action]
            if len(due) >= most or clock.monotonic_s() >= ends_s:
                self.more = True
                return due
        self._pass = None
        return due

    def is_known(self, segment_id: SegmentId) -> bool:
        """Return whether a segment still has a policy that moves its objects."""
        with self._metadata.read() as txn:
            segment = directories.living_segment(txn, segment_id)
            return segment is not None and ArchiveTarget.by(self._cache.of(txn, segment).values, 0) is not None

    def _is_due(self, now_ms: int) -> bool:
        """Return whether a pass begins now."""
        with self._metadata.read() as txn:
            if txn.id != self._seen:
                self._seen = txn.id
                rows = tuple((bytes(key), bytes(data)) for key, data in txn.scan_raw(POLICIES.name) if _AFTER in data)
                places = (policies.location(txn, self._location_id), archive_place.find(txn)) if rows else ()
                if (*rows, *places) != self._settings:
                    self._settings, self._rest_until_ms = (*rows, *places), 0
                    self._why_not = {}
            return bool(self._settings) and now_ms >= self._rest_until_ms

    def _can_move(self, txn: ReadTransaction, storage_class: str) -> bool:
        """Return whether objects can move to a class; the first time, warn if not."""
        if storage_class not in self._why_not:
            why = policies.why_no_archive(txn, policies.location(txn, self._location_id), storage_class)
            self._why_not[storage_class] = why
            if why:
                log.warning("the policies archive_after and archive_class have no effect: %s", why)
        return not self._why_not[storage_class]

    def _all(self, may_try: Callable[[SegmentId], bool]) -> Iterator[ArchiveAction | None]:
        """Yield what is due in all segments; None now and then, so that a slice can end."""
        now_ms = self._metadata.clock.now_ms()
        with self._metadata.read() as txn:
            due = DueObjects(Movable.of(txn, self._location_id))
        shortest_ms, start = 0, b""
        while True:
            with self._metadata.read() as txn:
                page = list(islice(txn.scan(SEGMENTS, start), _PAGE))
                chosen = list(self._wanted(txn, page, now_ms))
                possible = {each.storage_class for _, _, each in chosen if self._can_move(txn, each.storage_class)}
            for segment, path, wanted in chosen:
                after_ms = now_ms - wanted.cold_before_ms
                shortest_ms = min(shortest_ms or after_ms, after_ms)
                if wanted.storage_class in possible and may_try(segment.id):
                    yield from met_in(self._metadata, due, segment.id, path, wanted)
                yield None
            if len(page) < _PAGE:
                break
            start = page[-1][0] + b"\0"
            yield None
        rest_ms = min(filter(None, (shortest_ms, due.next_due_ms)), default=0)
        self._rest_until_ms = now_ms + max(_LEAST_REST_MS, rest_ms)

    def _wanted(
        self, txn: ReadTransaction, page: list[tuple[bytes, SegmentRecord]], now_ms: int
    ) -> Iterator[tuple[SegmentRecord, str, ArchiveTarget]]:
        for _, segment in page:
            wanted = None
            if segment.cold.count and not directories.is_going(txn, segment):
                wanted = ArchiveTarget.by(self._cache.of(txn, segment).values, now_ms)
            if wanted is not None:
                yield segment, directories.path_of(txn, segment.parent_id, segment.name), wanted
