"""Locations: the connections of one open store, one to each of its locations. Part of the composition root.

Everything of a process that reads or writes a location gets its storage here, and follows it to another place (see
chunkstore/located.py). Shared state: the connections, by location; a connection to a place that was left is closed,
once the one to the present place is made.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakSet

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.options.config import ColdSettings
from tierfs.base.system.metrics import MetricSink
from tierfs.base.words.errors import NotDirectory, NotFound, Unavailable
from tierfs.base.words.types import LocationId
from tierfs.engine.chunkstore.link import Link
from tierfs.engine.chunkstore.located import LocatedStorage, same_place
from tierfs.engine.chunkstore.place import Place, tried_once
from tierfs.engine.chunkstore.protocol import ChunkStorage
from tierfs.engine.journal.cold_identity import wrong_cold_tier
from tierfs.engine.metadata import policies
from tierfs.engine.metadata.records import LocationRecord
from tierfs.engine.metadata.store import MetadataStore

if TYPE_CHECKING:
    from tierfs.engine.chunkstore.paced import TransferPace


@dataclass(slots=True)
class PlaceConnection:
    """A connection to a place."""

    location: LocationRecord
    bare: ChunkStorage
    wrapped: ChunkStorage | None = None
    """With its wrappers, once somebody needs them: `status` asks the provider alone."""

    def close(self) -> None:
        """Close it."""
        (self.wrapped or self.bare).close()


class Locations:
    """The connections of one open store, a Connector. Thread-safe."""

    def __init__(
        self, metadata: MetadataStore, store: Path, settings: ColdSettings, metrics: Callable[[], MetricSink]
    ) -> None:
        """`metrics` makes those of the process, which the first connection needs."""
        self._metadata = metadata
        self._store = store
        self._settings = settings
        self._metrics = metrics
        self._lock = threading.Lock()
        """Held for looks at the tables below, never while a connection is made."""
        self._making: dict[LocationId, threading.Lock] = {}
        """Held while a location is connected, which may wait for a server."""
        self._connected: dict[LocationId, PlaceConnection] = {}
        self._links: dict[LocationId, tuple[LocationRecord, Link]] = {}
        self._following: dict[LocationId, LocatedStorage] = {}
        self._all: WeakSet[LocatedStorage] = WeakSet()
        self._classes: dict[str, _ClassConnector] = {}

    def forget(self) -> None:
        """Connect again in a child of fork: two processes on one connection would read each other's answers."""
        self._lock = threading.Lock()
        self._making, self._connected, self._following, self._classes = {}, {}, {}, {}
        for located in self._all:
            located.forget()

    def renew(self, settings: ColdSettings) -> None:
        """Connect again with the next calls, so that these settings and new credentials count.

        Connections of now end with their last use.
        """
        with self._lock:
            self._connected, self._settings, self._classes = {}, settings, {}
            everywhere = list(self._all)
        for located in everywhere:
            located.renew()

    def storage_of(self, location_id: LocationId) -> LocatedStorage:
        """Return the storage of a location, wherever that is. Raises NotFound for an unknown one."""
        located = self._following.get(location_id)
        if located is None:
            with self._metadata.read() as txn:
                location = policies.location(txn, location_id)
            with self._lock:  # threads ask at the same time, and one connection is enough
                located = self._following.get(location_id)
                if located is None:
                    located = self._following[location_id] = self._located(location, follows=True)
        return located

    def at(self, location: LocationRecord) -> LocatedStorage:
        """Return the storage of a location at one place: work whose parts belong together fails once it is left."""
        with self._lock:
            return self._located(location, follows=False)

    def tried_once_at(self, location: LocationRecord) -> LocatedStorage:
        """Do as `at`, for calls that are not repeated: their caller asks again by itself."""
        return LocatedStorage(self._metadata, _TriedOnce(self), location, follows=False)

    def paced_at(self, location: LocationRecord, pace: TransferPace) -> LocatedStorage:
        """Do as `at`, for work that nobody waits for: its bytes pass within a pace."""
        located = LocatedStorage(self._metadata, _PacedConnector(self, pace), location, follows=False)
        with self._lock:
            self._all.add(located)
        return located

    def in_class_at(self, location: LocationRecord, storage_class: str, pace: TransferPace) -> LocatedStorage:
        """Do as `paced_at`, for objects that are new in another storage class than that of the settings."""
        with self._lock:
            connector = self._classes.get(storage_class)
            if connector is None:
                connector = self._classes[storage_class] = _ClassConnector(self, storage_class, pace)
            located = LocatedStorage(self._metadata, connector, location, follows=False)
            self._all.add(located)
        return located

    def new_in_class(self, location: LocationRecord, storage_class: str) -> ChunkStorage:
        """Connect to a place once more, so that new objects get a storage class; the caller closes it."""
        settings = replace(self._settings, storage_class=storage_class)
        return Place(location, self._store, settings).shared(self._metrics(), sweeps=False)

    def provider_at(self, location: LocationRecord) -> ChunkStorage:
        """Return the provider of a place, without its wrappers."""
        return self.connection_at(location).bare

    def connected(self, location: LocationRecord) -> ChunkStorage:
        connection = self.connection_at(location)
        with self._lock:
            if connection.wrapped is None:
                link = self.link(location)
                connection.wrapped = self._place(location).wrapped(connection.bare, self._metrics(), link)
            return connection.wrapped

    def link(self, location: LocationRecord) -> Link:
        known = self._links.get(location.id)
        if known is None or not same_place(known[0], location):
            known = self._links[location.id] = (location, self._place(location).new_link())
        return known[1]

    def close(self) -> None:
        """Close all connections; idempotent."""
        with self._lock:
            connected, self._connected, self._following = self._connected, {}, {}
            everywhere, classes = list(self._all), list(self._classes.values())
        for located in everywhere:
            located.close()
        for connector in classes:
            connector.close()
        for each in connected.values():
            each.close()

    def _located(self, location: LocationRecord, *, follows: bool) -> LocatedStorage:
        located = LocatedStorage(self._metadata, self, location, follows=follows)
        self._all.add(located)
        return located

    def connection_at(self, location: LocationRecord) -> PlaceConnection:
        """Return the connection to a place. Work that stays where it is shares it with what follows."""
        with self._lock:
            making = self._making.setdefault(location.id, threading.Lock())
        with making:
            before = self._connected.get(location.id)
            if before is not None and same_place(before.location, location):
                return before
            made = self._connected[location.id] = PlaceConnection(location, self._provider(location))
        if before is not None:
            before.close()  # else a descriptor of it would keep a disk that is left from being unmounted
        return made

    def _place(self, location: LocationRecord) -> Place:
        return Place(location, self._store, self._settings)

    def _provider(self, location: LocationRecord) -> ChunkStorage:
        place = self._place(location)
        place.require_allowed()
        try:
            return place.open(sweep=self._metadata.clock)
        except (NotFound, NotDirectory) as exc:
            if not location.writable:
                raise Unavailable(str(exc), remedy=exc.remedy) from exc
            if location.archive:
                from tierfs.engine.journal.archive_mark import away  # no command that finds its places needs it

                raise away(str(exc)) from exc
            raise wrong_cold_tier(str(exc)) from exc


@dataclass(frozen=True, slots=True)
class _TriedOnce:
    """Connects as the locations do, without repeated calls; see Connector."""

    _locations: Locations

    def connected(self, location: LocationRecord) -> ChunkStorage:
        return tried_once(self._locations.provider_at(location))

    def link(self, location: LocationRecord) -> Link:
        return self._locations.link(location)


class _ClassConnector:
    """Connects to places with a connection of its own, which makes new objects of one storage class; see Connector."""

    def __init__(self, locations: Locations, storage_class: str, pace: TransferPace) -> None:
        self._locations = locations
        self._storage_class = storage_class
        self._pace = pace
        self._making = threading.Lock()
        self._made: tuple[LocationRecord, ChunkStorage] | None = None

    def connected(self, location: LocationRecord) -> ChunkStorage:
        from tierfs.engine.chunkstore.paced import PacedStorage  # no command that only looks needs it

        with self._making:
            if self._made is None or not same_place(self._made[0], location):
                made = PacedStorage(self._locations.new_in_class(location, self._storage_class), self._pace)
                self._made = (location, made)
            return self._made[1]

    def link(self, location: LocationRecord) -> Link:
        return self._locations.link(location)

    def close(self) -> None:
        """Close the connection."""
        with self._making:
            if self._made is not None:
                self._made[1].close()


@dataclass(frozen=True, slots=True)
class _PacedConnector:
    """Connects as the locations do, for bytes within a pace; see Connector."""

    _locations: Locations
    _pace: TransferPace

    def connected(self, location: LocationRecord) -> ChunkStorage:
        from tierfs.engine.chunkstore.paced import PacedStorage  # no command that only looks needs it

        return PacedStorage(self._locations.connected(location), self._pace)

    def link(self, location: LocationRecord) -> Link:
        return self._locations.link(location)
