"""Whether the places that hold copies can be reached at all: one that cannot makes nothing lost (invariant 13)."""

from __future__ import annotations

import threading
from array import array
from collections.abc import Callable, Iterator

from tierfs.chunkstore.protocol import ChunkStorage
from tierfs.errors import NotFound, PermissionDenied, Unavailable, WrongColdTier
from tierfs.fsck.journal import JournalCheck
from tierfs.metadata import keys, locations
from tierfs.metadata.messages import messages
from tierfs.metadata.records import LocationRecord
from tierfs.metadata.store import MetadataStore
from tierfs.metadata.tables import OBJECTS
from tierfs.names import printable
from tierfs.types import LocationId, Tier
from tierfs.units import count

_ASKED_FOR = 100
"""Objects of a place, spread over all of them, that must all be missing before the place counts as away (a guess)."""

_LEAST_OF_OURS = 2
"""Where the store's journal is there, one missing object is a missing object."""


class Places:
    """Looks at each place once, when something is missing there. Thread-safe."""

    def __init__(self, metadata: MetadataStore, storage_of: Callable[[LocationId], ChunkStorage]) -> None:
        self._metadata = metadata
        self._storage_of = storage_of
        self._known: dict[LocationId, str | None] = {}
        self._lock = threading.Lock()

    def away(self, location_id: LocationId) -> str | None:
        """Why a place is taken for unreachable, in words; None when it is there.

        Raises Unavailable and PermissionDenied when the store's own place does not answer.
        """
        with self._lock:
            if location_id not in self._known:
                self._known[location_id] = self._look(location_id)
            return self._known[location_id]

    def _look(self, location_id: LocationId) -> str | None:
        with self._metadata.read() as txn:
            place, store = locations.location(txn, location_id), txn.store
        own = location_id == store.cold_location_id
        try:
            storage = self._storage_of(location_id)
            if own and store.journal.published_sequence and not JournalCheck(self._metadata, storage).is_ours():
                return _text(place, "it holds no journal of this store")
            return self._missing(place, storage, own=own)
        except (NotFound, WrongColdTier) as exc:
            return _text(place, str(exc))
        except (Unavailable, PermissionDenied) as exc:
            if own:
                raise
            return _text(place, str(exc))

    def _missing(self, place: LocationRecord, storage: ChunkStorage, *, own: bool) -> str | None:
        ids = self._ids(place.id)
        if own and len(ids) < _LEAST_OF_OURS:
            return None
        for name in self._spread(ids):
            try:
                storage.stat(name)
            except NotFound:
                continue
            return None
        return _text(place, f"nothing is there of its {count(len(ids), 'object')}") if ids else None

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
        """The names of some objects, from the first to the last."""
        step = max(1, len(ids) // _ASKED_FOR)
        with self._metadata.read() as txn:
            records = [txn.get(OBJECTS, keys.u64(one)) for one in {*ids[::step], *ids[-1:]}]
        yield from (record.name for record in records if record is not None)


def _text(place: LocationRecord, why: str) -> str:
    return f"{printable(place.url)} is not reachable: {why}"
