"""LocatedStorage: the storage of a location, wherever the store's records say now that it is.

A cold tier gets another place while processes read: `tierfs move`, `tierfs config cold.url=`, an adopted place whose
record changes. What holds a storage across time holds one of these. It connects with the first call that needs a
connection, so that a place that is away fails that call and nothing else. It looks at the records again once in
LOOK_S, which costs a read of 10 microseconds, and after each failure: a failure is one only in the store's present
place. Who compares bytes by itself asks with `present` before it calls them damaged.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Protocol, TypeVar

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.system import deadlines
from tierfs.base.words.errors import (
    Closed,
    Conflict,
    DataLoss,
    InvalidRequest,
    NotFound,
    PermissionDenied,
    TierfsError,
    Unavailable,
)
from tierfs.engine.chunkstore.link import Link
from tierfs.engine.chunkstore.protocol import (
    ChunkStorage,
    ComposedObject,
    ManyDeletes,
    ObjectPiece,
    OnReceived,
    PendingUpload,
    ProvedCopies,
    RangeUrl,
    RangeUrls,
    Renewable,
    ServerCopies,
    Source,
    StoredObject,
    Thaws,
    ThawSpeed,
    Uploads,
)
from tierfs.engine.chunkstore.validate import check_open
from tierfs.engine.metadata import policies, tables
from tierfs.engine.metadata.record_parts import AdoptionTimer
from tierfs.engine.metadata.records import LocationRecord
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.tables import LOCATIONS

log = logging.getLogger(__name__)

T = TypeVar("T")

# Time for which a process may go on at a place that the store has left, while that place answers: some appenders and
# readers have no other moment at which they look. A guess: one read of a row per second and location costs nothing.
LOOK_S = 1.0

# Failures that may be those of the place and not of the object.
_OF_A_PLACE = (NotFound, DataLoss, Unavailable, PermissionDenied, InvalidRequest, Closed)


class Connector(Protocol):
    """Connects to places. Thread-safe."""

    def connected(self, location: LocationRecord) -> ChunkStorage:
        """Return the connection to a place, one for all that ask. Raises whatever keeps it from being made."""
        ...

    def link(self, location: LocationRecord) -> Link:
        """Return the link to a place, which outlives its connections."""
        ...


def _no_url(name: str) -> RangeUrl | None:
    """Return None: without a connection there is no URL."""
    return None


@dataclass(frozen=True, slots=True)
class _Whereabouts:
    """The address of a location."""

    number: int
    """Another one for another place."""
    location: LocationRecord
    link: Link
    storage: ChunkStorage | None = None
    """The connection, once a call needed it."""
    range_url: Callable[[str], RangeUrl | None] = _no_url
    """That of the connection: looked up once, as it is asked for each small read."""


@dataclass(frozen=True, slots=True)
class _Failed:
    """The last connection that could not be made."""

    at_s: float
    error: TierfsError


class LocatedStorage:
    """ChunkStorage, Uploads, ServerCopies, RangeUrls and Renewable over the place of one location. Thread-safe."""

    def __init__(
        self,
        metadata: MetadataStore | None,
        connector: Connector,
        location: LocationRecord,
        *,
        follows: bool = True,
        look_s: float = LOOK_S,
    ) -> None:
        """Begin at the place of a record, without a connection; `metadata` has the newest, None: see `_newest`.

        `follows`: go where the location goes, looking once in `look_s`. Else it stays, for one piece of work whose
        parts must be in one place, and raises Conflict once the location has left that place.
        """
        self.location_id = location.id
        self._metadata = metadata
        self._connector = connector
        self._follows = follows
        self._look_s = look_s if follows else math.inf
        self._place = _Whereabouts(1, location, connector.link(location))
        self._looked_s = time.monotonic()
        self._closed = False
        self.forget()

    def forget(self) -> None:
        """In a child of fork, let go of the connection, which is the parent's."""
        self._changing = threading.Lock()
        self._connecting = threading.Lock()
        self._failed: _Failed | None = None
        self._place = _without_connection(self._place)

    def renew(self) -> None:
        """Connect again with the next call, with the settings and credentials of then."""
        with self._changing:
            self._place = _without_connection(self._place)

    def __repr__(self) -> str:
        place = self._place
        return policies.told(place.location) if place.storage is None else repr(place.storage)

    @property
    def location(self) -> LocationRecord:
        """The record of the place that is used."""
        return self._place.location

    @property
    def number(self) -> int:
        """Number of the place that is used; another one for another place."""
        return self._place.number

    @property
    def link(self) -> Link:
        """The link to the place that is used."""
        return self._place.link

    def present(self) -> int:
        """Look where the location is now, and be there from now on; return the number of that place.

        For who compares bytes by itself: what was read before the number changed says nothing about the present place.
        Costs some microseconds. Raises Conflict where this storage stays in one place, and that was left.
        """
        location = self._newest()
        self._looked_s = time.monotonic()
        place = self._place
        if same_place(location, place.location):
            return place.number
        if not self._follows:
            raise Conflict("the address of the cold tier has changed", remedy="run the command again")
        with self._changing:
            place = self._place
            if not same_place(location, place.location):
                place = self._place = _Whereabouts(place.number + 1, location, self._connector.link(location))
                log.info("the address of location %d has changed: %s", location.id, policies.told(location))
        return place.number

    def _newest(self) -> LocationRecord:
        """Return the record of the location as it is now. Raises Unavailable where there is none any more."""
        assert self._metadata is not None
        with self._metadata.read() as txn:
            location = txn.get(LOCATIONS, tables.u32(self.location_id))
        if location is None:
            raise Unavailable(f"location {self.location_id} is no longer a location of the store")
        return location

    def _call(self, function: Callable[[ChunkStorage], T]) -> T:
        """Do one call at the present place; a failure at a place that was left is repeated there."""
        number, used = self._place.number, None
        try:
            used = self.connection()
            return function(used)
        except _OF_A_PLACE:
            if self._closed or (self.present() == number and (used is None or self._place.storage is used)):
                raise
        return function(self.connection())

    def connection(self) -> ChunkStorage:
        """Return the connection to the place. Raises what keeps it from being made."""
        check_open(self._closed, self)
        if time.monotonic() - self._looked_s >= self._look_s:
            self.present()
        return self._place.storage or self._connect()

    def _connect(self) -> ChunkStorage:
        began_s = time.monotonic()
        with deadlines.taken(self._connecting, f"{self!r}: connect"):
            while (place := self._place).storage is None:
                failed = self._failed
                if failed is not None and failed.at_s >= began_s:  # another thread tried while this one waited
                    raise type(failed.error)(str(failed.error), remedy=failed.error.remedy) from failed.error
                # A thread that is behind would connect to a place that was left, and close the present connection.
                self.present()
                if self._place is not place:
                    continue
                try:
                    storage = self._made(place.location)
                except TierfsError as exc:
                    self._failed = _Failed(time.monotonic(), exc)
                    raise
                with self._changing:
                    if self._place is place:
                        url = storage.range_url if isinstance(storage, RangeUrls) else _no_url
                        self._place = replace(place, storage=storage, range_url=url)
            return place.storage

    def _made(self, location: LocationRecord) -> ChunkStorage:
        return deadlines.bounded(lambda: self._connector.connected(location), f"{self!r}: connect")

    def put(
        self, name: str, source: Source, *, metadata: Mapping[str, str] | None = None, create_only: bool = True
    ) -> StoredObject:
        return self._call(lambda there: there.put(name, source, metadata=metadata, create_only=create_only))

    def compose(
        self,
        name: str,
        pieces: Sequence[ObjectPiece],
        *,
        metadata: Mapping[str, str] | None = None,
        create_only: bool = True,
    ) -> ComposedObject:
        return self._call(lambda there: there.compose(name, pieces, metadata=metadata, create_only=create_only))

    def read_into(
        self,
        name: str,
        offset: int,
        buffer: memoryview,
        *,
        if_match: str | None = None,
        progress: OnReceived | None = None,
    ) -> None:
        """See ChunkStorage.read_into. An error of `progress` is the caller's, and raised as it is."""
        taking = _Taking(progress)

        def read(there: ChunkStorage) -> None:
            try:
                start = taking.begin()  # bytes that were taken stay as they are: readers have them
                noted = None if progress is None else taking.received
                there.read_into(name, offset + start, buffer[start:], if_match=if_match, progress=noted)
            except TierfsError as exc:
                if exc is not taking.refused:
                    raise

        self._call(read)
        if taking.refused is not None:
            raise taking.refused

    def stat(self, name: str) -> StoredObject:
        """See ChunkStorage.stat. Of the present place: what it says of an object is believed without a proof."""
        self.present()
        return self._call(lambda there: there.stat(name))

    def delete(self, name: str) -> None:
        self._call(lambda there: there.delete(name))

    def delete_many(self, names: Sequence[str]) -> bool:
        return self._call(lambda there: isinstance(there, ManyDeletes) and there.delete_many(names))

    def list(self, prefix: str, *, after: str = "") -> Iterator[StoredObject]:
        """See ChunkStorage.list. Goes on in the present place, after the last name, if the location left the first."""
        number = self.present()
        while True:
            try:
                for stored in self.connection().list(prefix, after=after):
                    after = stored.name
                    yield stored
            except _OF_A_PLACE:
                if self._closed or number == (number := self.present()):
                    raise
            else:
                if number == (number := self.present()):
                    return

    def uploads(self, prefix: str) -> Iterator[PendingUpload]:
        return iter(self._call(lambda there: [*there.uploads(prefix)] if isinstance(there, Uploads) else []))

    def abort_upload(self, upload: PendingUpload) -> None:
        def abort(there: ChunkStorage) -> None:
            if isinstance(there, Uploads):
                there.abort_upload(upload)

        self._call(abort)

    def copy_from(self, origin: ChunkStorage, stored: StoredObject) -> int | None:
        return self._call(lambda there: there.copy_from(origin, stored) if isinstance(there, ServerCopies) else None)

    def copy_proved(self, name: str, piece: ObjectPiece, crc32c: int | None, metadata: Mapping[str, str]) -> str | None:
        def copy(there: ChunkStorage) -> str | None:
            return there.copy_proved(name, piece, crc32c, metadata) if isinstance(there, ProvedCopies) else None

        return self._call(copy)

    def thaw(self, name: str, days: int, speed: ThawSpeed) -> bool:
        return self._call(lambda there: isinstance(there, Thaws) and there.thaw(name, days, speed))

    def range_url(self, name: str) -> RangeUrl | None:
        """See RangeUrls.range_url; None until a call in a thread has connected to the present place."""
        try:
            if time.monotonic() - self._looked_s >= self._look_s:
                self.present()
        except TierfsError as exc:
            log.debug("cannot read the address of location %d: %s", self.location_id, exc)
            return None
        return self._place.range_url(name)

    def renew_credentials(self) -> bool:
        there = self._place.storage
        return there.renew_credentials() if isinstance(there, Renewable) else False

    def close(self) -> None:
        """See ChunkStorage.close. The connection is the connector's, which closes it."""
        self._closed = True


class PlaceSeen:
    """The place that a storage has before bytes are read from it, for judging them afterwards."""

    __slots__ = ("_number", "_storage")

    def __init__(self, storage: ChunkStorage | None) -> None:
        """None: that of files, which have a single place."""
        self._storage = storage if isinstance(storage, LocatedStorage) else None
        self._number = 0 if self._storage is None else self._storage.number

    def was_left(self) -> bool:
        """Return whether the storage has another place by now, of which the next read is; see `present`."""
        if self._storage is None:
            return False
        before, self._number = self._number, self._storage.present()
        return before != self._number


class _Taking:
    """The progress of a read in one place after the other, and the error that its taker raised."""

    def __init__(self, progress: OnReceived | None) -> None:
        self._progress = progress
        self._start = self._taken = 0
        self.refused: TierfsError | None = None

    def begin(self) -> int:
        """Begin a try; return the number of bytes that were taken by now."""
        self._start = self._taken
        return self._start

    def received(self, received: int) -> None:
        """Tell the taker."""
        assert self._progress is not None
        self._taken = self._start + received
        try:
            self._progress(self._taken)
        except TierfsError as exc:
            self.refused = exc
            raise


def _without_connection(place: _Whereabouts) -> _Whereabouts:
    return replace(place, storage=None, range_url=_no_url)


def same_place(location: LocationRecord, other: LocationRecord) -> bool:
    """Return whether a connection by one record is one by the other too."""
    return _as_place(location) == _as_place(other)


def _as_place(location: LocationRecord) -> LocationRecord:
    return replace(location, adoption=AdoptionTimer(), stored=b"")
