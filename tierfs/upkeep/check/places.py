"""Tests whether copies can be read at all, before anything is called lost or damaged.

A place that cannot be reached makes nothing lost (invariant 13).
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Callable, Iterator
from itertools import chain

from tierfs.base.words.errors import NotFound, PermissionDenied, Unavailable, WrongColdTier
from tierfs.base.words.names import printable
from tierfs.base.words.types import LocationId, Tier
from tierfs.base.words.units import count
from tierfs.engine.chunkstore.located import PlaceSeen
from tierfs.engine.chunkstore.protocol import ChunkStorage
from tierfs.engine.journal import archive_mark
from tierfs.engine.metadata import policies, tables
from tierfs.engine.metadata.message_rows import messages
from tierfs.engine.metadata.records import LocationRecord
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.tables import OBJECTS
from tierfs.upkeep.check.journal import JournalCheck
from tierfs.upkeep.check.unchunked import unchunked

# Objects of a place, spread over all of them, that must all be missing before the place counts as away (a guess).
ASKED_FOR = 100

# With fewer objects than this and the store's journal present, a missing object is just missing.
_LEAST_OF_OURS = 2


class Places:
    """Examines each place once, when something is missing there. Thread-safe."""

    def __init__(self, metadata: MetadataStore, storage_of: Callable[[LocationId], ChunkStorage]) -> None:
        self._metadata = metadata
        self._storage_of = storage_of
        self._known: dict[LocationId, tuple[PlaceSeen, str | None]] = {}
        self._lock = threading.Lock()

    def away(self, location_id: LocationId) -> str | None:
        """Return the reason a place counts as unreachable, or None if it is reachable.

        Raises Unavailable and PermissionDenied when the store's own place does not answer.
        """
        with self._lock:
            known = self._known.get(location_id)
            if known is None or known[0].was_left():
                place = PlaceSeen(self._storage_of(location_id))
                known = self._known[location_id] = place, self._look(location_id)
            return known[1]

    def _look(self, location_id: LocationId) -> str | None:
        with self._metadata.read() as txn:
            place, store = policies.location(txn, location_id), txn.store
        own = location_id == store.cold_location_id
        try:
            storage = self._storage_of(location_id)
            if own and store.journal.published_sequence and not JournalCheck(self._metadata, storage).is_ours():
                return _text(place, "it has no journal of this store")
            if place.archive:
                archive_mark.require(storage, store.store_id)
                return None  # what is missing there is missing
            return self._missing(place, storage, own=own)
        except (NotFound, WrongColdTier) as exc:
            return _text(place, str(exc))
        except (Unavailable, PermissionDenied) as exc:
            if own:
                raise
            # Such as a place that was never allowed on this host, where no disk is to be mounted.
            remedy = f"; {exc.remedy}" if isinstance(exc, PermissionDenied) and exc.remedy else ""
            return _text(place, f"{exc}{remedy}")

    def _missing(self, place: LocationRecord, storage: ChunkStorage, *, own: bool) -> str | None:
        ids, empty = self._ids(place.id), self._unchunked(place.id)
        if own and len(ids) < _LEAST_OF_OURS:
            return None
        for name in chain(self._spread(ids), empty[:: max(1, len(empty) // ASKED_FOR)]):
            try:
                storage.stat(name)
            except NotFound:
                continue
            return None
        known = len(ids) + len(empty)
        return _text(place, f"expected {count(known, 'object')} of this store, found 0") if known else None

    def _unchunked(self, location_id: LocationId) -> list[str]:
        with self._metadata.read() as txn:
            return [record.name for _, record in unchunked(txn) if record.location_id == location_id]

    def _ids(self, location_id: LocationId) -> array[int]:
        with self._metadata.read() as txn:
            return array(
                "Q",
                (
                    record.id
                    for _, record in messages(txn, OBJECTS)
                    if record is not None and record.tier == Tier.COLD and record.location_id == location_id
                ),
            )

    def _spread(self, ids: array[int]) -> Iterator[str]:
        """Yield the names of some objects, from the first to the last."""
        step = max(1, len(ids) // ASKED_FOR)
        with self._metadata.read() as txn:
            records = [txn.get(OBJECTS, tables.u64(number)) for number in {*ids[::step], *ids[-1:]}]
        yield from (record.name for record in records if record is not None)


def _text(place: LocationRecord, why: str) -> str:
    return f"{printable(place.url)} is not accessible: {why}"
