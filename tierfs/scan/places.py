"""Where the bytes of a scan are, as an executor reaches them: the store's directory and its cold locations.

A place is plain data and travels with a partition; connections are made where it arrives, once per process.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from pathlib import Path

from tierfs import forks
from tierfs.chunkstore.chunkfiles import ChunkFiles
from tierfs.chunkstore.protocol import ChunkStorage
from tierfs.clock import SystemClock
from tierfs.config import ColdSettings
from tierfs.connect import connect
from tierfs.errors import NotFound, PermissionDenied
from tierfs.metadata.records import LocationRecord
from tierfs.metadata.store import MetadataStore
from tierfs.metrics import NullMetrics
from tierfs.store_paths import StorePaths
from tierfs.types import LocationId


@dataclass(frozen=True, slots=True)
class Place:
    """A store as its readers elsewhere know it. Credentials are not part of it: botocore's chain finds them."""

    path: str
    store_id: str
    locations: tuple[LocationRecord, ...]
    settings: ColdSettings

    def location(self, location_id: LocationId) -> LocationRecord:
        """The location with this id. Raises NotFound."""
        for record in self.locations:
            if record.id == location_id:
                return record
        raise NotFound(f"location {location_id} is not known to this scan")


class Connections:
    """The connections of one process to places. Thread-safe; a child of fork makes its own."""

    def __init__(self) -> None:
        self.forget()
        forks.register(self)

    def forget(self) -> None:
        """In a child of fork: what is open belongs to the parent."""
        self._lock = threading.Lock()
        self._storages: dict[tuple[Place, LocationId], ChunkStorage] = {}
        self._files: dict[str, ChunkFiles] = {}
        self._metadata: dict[str, MetadataStore | None] = {}

    def storage(self, place: Place, location_id: LocationId) -> ChunkStorage:
        """The storage of a location. Raises NotFound, InvalidRequest or Unavailable."""
        with self._lock:
            found = self._storages.get((place, location_id))
            if found is None:
                location = place.location(location_id)
                found = connect(location, Path(place.path), place.settings, NullMetrics())
                self._storages[place, location_id] = found
            return found

    def files(self, place: Place) -> ChunkFiles:
        """The store's local chunk files. Raises NotFound or PermissionDenied where this host does not see them."""
        with self._lock:
            found = self._files.get(place.path)
            if found is None:
                found = self._files[place.path] = ChunkFiles(StorePaths(Path(place.path)).chunks)
            return found

    def metadata(self, place: Place) -> MetadataStore | None:
        """The store's metadata; None where this host does not see the store."""
        with self._lock:
            if place.path not in self._metadata:
                self._metadata[place.path] = _metadata_of(place)
            return self._metadata[place.path]

    def sees(self, place: Place) -> bool:
        """Whether this process can read the store's directory."""
        return os.access(StorePaths(Path(place.path)).chunks, os.R_OK | os.X_OK)


def _metadata_of(place: Place) -> MetadataStore | None:
    try:
        found = MetadataStore(StorePaths(Path(place.path)).metadata, SystemClock())
    except (NotFound, PermissionDenied):
        return None
    return found if found.store_id == place.store_id else None
