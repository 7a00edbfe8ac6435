"""Bytes of a store that are lost, suspect or unreachable, before a read fails with EIO; without asking a server."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words import names
from tierfs.base.words.types import LocationId, Tier
from tierfs.engine.metadata import chains, tables
from tierfs.engine.metadata.records import LocationRecord, SegmentRecord
from tierfs.engine.metadata.sums import Sums
from tierfs.engine.metadata.tables import LOCATIONS, OBJECTS
from tierfs.engine.metadata.transaction import ReadTransaction

FILE_SCHEME = "file:"

# Objects counted for unreachable places: under a second. With more of them, the bytes reported are a lower bound.
_MAX_OBJECTS = 100_000


@dataclass(frozen=True, slots=True)
class UnreachablePlace:
    """A directory of cold bytes that is missing now."""

    url: str
    why: str
    bytes: int
    """Bytes of its objects, as far as they were counted."""


@dataclass(frozen=True, slots=True)
class Endangered:
    """Bytes of a store that cannot be read, or not from every copy."""

    lost_bytes: int
    """Bytes without any copy that passed its checks."""
    suspect_local_bytes: int
    """Bytes of chunks of which a copy failed a check or a read."""
    suspect_cold_bytes: int
    unreachable: tuple[UnreachablePlace, ...] = ()

    @property
    def suspect_bytes(self) -> int:
        """Return the suspect bytes of both tiers."""
        return self.suspect_local_bytes + self.suspect_cold_bytes


def endangered(txn: ReadTransaction, totals: Sums, store: Path, *, counted: bool = True) -> Endangered:
    """Return the endangered bytes from the sums; objects are scanned only if a place is unreachable.

    Unless they are to be `counted`, one object of each such place is enough.
    """
    away = tuple(_unreachable(txn, store, counted))
    return Endangered(totals.lost_bytes, totals.suspect_local_bytes, totals.suspect_cold_bytes, away)


def _unreachable(txn: ReadTransaction, store: Path, counted: bool) -> Iterator[UnreachablePlace]:
    places = _away(txn, store)
    if not places:
        return
    from tierfs.engine.metadata.message_rows import messages

    for _, record in islice(messages(txn, OBJECTS), _MAX_OBJECTS):
        if record is not None and record.tier == Tier.COLD and record.location_id in places:
            place = places[record.location_id]
            places[record.location_id] = replace(place, bytes=place.bytes + record.length)
            if not counted and all(place.bytes for place in places.values()):
                break
    yield from (place for place in places.values() if place.bytes)


def unreachable_of(txn: ReadTransaction, segment: SegmentRecord, store: Path) -> tuple[UnreachablePlace, ...]:
    """Return the unreachable places that hold bytes of one segment."""
    places = _away(txn, store)
    for chunk in chains.chunks(txn, segment.id, Tier.COLD) if places else ():
        record = txn.get(OBJECTS, tables.u64(chunk.object_id))
        if record is not None and record.location_id in places:
            place = places[record.location_id]
            places[record.location_id] = replace(place, bytes=place.bytes + chunk.length)
    return tuple(place for place in places.values() if place.bytes)


def _away(txn: ReadTransaction, store: Path) -> dict[LocationId, UnreachablePlace]:
    """Return the missing directories only: an unreachable server is reported with the stuck work that met it."""
    return {
        place.id: UnreachablePlace(place.url, why, 0)
        for _, place in txn.scan(LOCATIONS)
        if (why := _why_away(place, store)) is not None
    }


def _why_away(place: LocationRecord, store: Path) -> str | None:
    if not place.url.startswith(FILE_SCHEME):
        return None
    try:
        with os.scandir(store / names.to_os(place.url.removeprefix(FILE_SCHEME))) as entries:
            return None if next(entries, None) is not None else "the directory is empty; is it mounted?"
    except OSError as exc:
        if exc.errno == errno.EACCES:
            return None  # others may read what this user cannot list
        return exc.strerror or str(exc)
