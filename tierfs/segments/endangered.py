"""Bytes that are lost, suspect or not reachable: what only an EIO would tell otherwise. Nothing is sent anywhere."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from tierfs.metadata import chains, tables
from tierfs.metadata.records import LocationRecord, SegmentRecord
from tierfs.metadata.sums import Sums
from tierfs.metadata.tables import LOCATIONS, OBJECTS
from tierfs.metadata.transaction import ReadTransaction
from tierfs.types import LocationId, Tier

FILE_SCHEME = "file:"

_MAX_OBJECTS = 100_000
"""Objects that are counted of places that are away: under a second; of more the bytes told are the least there are."""


@dataclass(frozen=True, slots=True)
class UnreachablePlace:
    """A directory of cold bytes that is not there now."""

    url: str
    why: str
    bytes: int
    """Of its objects, as far as they were counted."""


@dataclass(frozen=True, slots=True)
class Endangered:
    """Bytes of a store that no reader may get, or not from every copy."""

    lost_bytes: int
    """Of which no copy proved right."""
    suspect_local_bytes: int
    """In chunks of which a copy failed a check or a reader."""
    suspect_cold_bytes: int
    unreachable: tuple[UnreachablePlace, ...] = ()

    @property
    def suspect_bytes(self) -> int:
        """In chunks of either tier."""
        return self.suspect_local_bytes + self.suspect_cold_bytes


def endangered(txn: ReadTransaction, totals: Sums, store: Path) -> Endangered:
    """By the sums; objects are looked at only where a place is away."""
    return Endangered(
        totals.lost_bytes, totals.suspect_local_bytes, totals.suspect_cold_bytes, tuple(_unreachable(txn, store))
    )


def _unreachable(txn: ReadTransaction, store: Path) -> Iterator[UnreachablePlace]:
    found = _away(txn, store)
    if not found:
        return
    from tierfs.metadata.untrusted import messages

    for _, record in islice(messages(txn, OBJECTS), _MAX_OBJECTS):
        if record is not None and record.tier == Tier.COLD and record.location_id in found:
            known = found[record.location_id]
            found[record.location_id] = replace(known, bytes=known.bytes + record.length)
    yield from (place for place in found.values() if place.bytes)


def unreachable_of(txn: ReadTransaction, segment: SegmentRecord, store: Path) -> tuple[UnreachablePlace, ...]:
    """The places with bytes of one segment that are not there now."""
    found = _away(txn, store)
    for chunk in chains.chunks(txn, segment.id, Tier.COLD) if found else ():
        holder = txn.get(OBJECTS, tables.u64(chunk.object_id))
        if holder is not None and holder.location_id in found:
            known = found[holder.location_id]
            found[holder.location_id] = replace(known, bytes=known.bytes + chunk.length)
    return tuple(place for place in found.values() if place.bytes)


def _away(txn: ReadTransaction, store: Path) -> dict[LocationId, UnreachablePlace]:
    """Directories only: whether a server answers is known to who asks it, and stands among the stuck work."""
    return {
        place.id: UnreachablePlace(place.url, why, 0)
        for _, place in txn.scan(LOCATIONS)
        if (why := _why_away(place, store)) is not None
    }


def _why_away(place: LocationRecord, store: Path) -> str | None:
    if not place.url.startswith(FILE_SCHEME):
        return None
    try:
        with os.scandir(store / place.url.removeprefix(FILE_SCHEME)) as entries:
            return None if next(entries, None) is not None else "the directory is empty; is it mounted?"
    except OSError as exc:
        if exc.errno == errno.EACCES:
            return None  # others may read what this user cannot list
        return exc.strerror or str(exc)
