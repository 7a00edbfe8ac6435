"""The places of a life by their addresses, as processes that read connect to them: where the store's records say."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TypeVar
from unittest.mock import patch

from tierfs.app.setup.locations import Locations
from tierfs.base.options.config import ColdSettings, ReadSettings
from tierfs.base.system.metrics import NullMetrics
from tierfs.base.words.errors import Unavailable
from tierfs.base.words.types import MIB
from tierfs.engine.chunkstore.local_files import ChunkFiles
from tierfs.engine.chunkstore.memory import MemoryStorage
from tierfs.engine.chunkstore.place import Place
from tierfs.engine.chunkstore.protocol import ChunkStorage
from tierfs.engine.chunkstore.wrappers import Wrapped
from tierfs.engine.metadata.records import LocationRecord
from tierfs.engine.metadata.store import MetadataStore
from tierfs.reading.cache.cache import DiskCache
from tierfs.reading.reader import StoreReader

FIRST = "memory:"
"""The address of the first place."""

THEIRS = "memory:theirs"
"""That of what is adopted: it is where the store's objects are, wherever that is."""

COLD = ColdSettings(attempts=1, allowed_locations=THEIRS)
"""A failure is told at once."""

_SETTINGS = ReadSettings(budget_bytes=8 * MIB, streams=1, urgent_streams=1, local_threads=1, deadline_s=30.0)

_OTHERS = bytes(byte ^ 0x55 for byte in range(256))

_PATIENCE_S = 600.0
"""A read that is held for longer was forgotten."""

_Result = TypeVar("_Result")


class Fate(StrEnum):
    """What becomes of a place that the store has left."""

    STAYS = "stays"
    EMPTY = "empty"
    """All is deleted."""
    AWAY = "away"
    """Nothing answers there."""
    REUSED = "reused"
    """The same names have other bytes, under the same etags."""


class Places:
    """What the processes that read see of all places. None of their calls is a point of a verb's."""

    def __init__(self, first: MemoryStorage, present: Callable[[], MemoryStorage]) -> None:
        """`present` returns the bucket where the store is now."""
        self._of = {FIRST: first}
        self._present = present
        self.away: set[str] = set()
        self.gate: threading.Event | None = None
        """Reads wait for it."""

    def add(self, url: str, storage: MemoryStorage) -> None:
        """Give a place an address."""
        self._of[url] = storage
        self.away.discard(url)

    def at(self, url: str) -> MemoryStorage:
        """Return what is at an address."""
        return self._present() if url == THEIRS else self._of[url]

    def end(self, storage: MemoryStorage, fate: Fate) -> None:
        """Let this become of a place that was left."""
        if fate is Fate.EMPTY:
            storage.objects.clear()
        elif fate is Fate.AWAY:
            self.away |= {url for url, there in self._of.items() if there is storage}
        elif fate is Fate.REUSED:
            for name, held in storage.objects.items():
                storage.objects[name] = replace(held, data=held.data.translate(_OTHERS))

    def locations(self, metadata: MetadataStore, store: Path) -> Locations:
        """Return the connections of a process that opens the store; its reads wait for the gate."""
        return _HeldLocations(metadata, store, self)

    @contextmanager
    def connected(self) -> Iterator[None]:
        """Let the product connect here."""

        def opened(place: Place, **_: object) -> ChunkStorage:
            return _ReadersStorage(self, place.record.url)

        with patch.object(Place, "open", opened):
            yield


def reader_of(
    places: Places, metadata: MetadataStore, files: ChunkFiles, store: Path, cache: DiskCache | None = None
) -> StoreReader:
    """Return the product's reader of a process that has just begun."""
    return StoreReader(metadata, files, places.locations(metadata, store).storage_of, _SETTINGS, NullMetrics(), cache)


class _HeldLocations(Locations):
    """The connections of one process."""

    def __init__(self, metadata: MetadataStore, store: Path, places: Places) -> None:
        super().__init__(metadata, store, COLD, NullMetrics)
        self._places = places

    def _provider(self, location: LocationRecord) -> ChunkStorage:
        return _HeldStorage(self._places, location.url)


class _ReadersStorage(Wrapped):
    """One place as readers see it."""

    def __init__(self, places: Places, url: str) -> None:
        super().__init__(places.at(url))
        self._places = places
        self._url = url

    def _call(self, verb: str, name: str, function: Callable[[], _Result]) -> _Result:
        if self._url in self._places.away:
            raise Unavailable(f"{verb} {name}: {self._url} is away (simulated)")
        self._inner = self._places.at(self._url)
        return function()

    def close(self) -> None:
        """Leave the place as it is."""


class _HeldStorage(_ReadersStorage):
    """The same, with a gate before each read."""

    def _call(self, verb: str, name: str, function: Callable[[], _Result]) -> _Result:
        gate = self._places.gate
        if gate is not None and verb == "read":
            assert gate.wait(_PATIENCE_S), "forgotten"
        return super()._call(verb, name, function)
