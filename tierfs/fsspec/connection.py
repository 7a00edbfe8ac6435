"""Connection: a store as all filesystems and files of one process share it, opened on first use.

The last one to let go of it closes it; the end of the process does too. A child of fork opens its own: locks,
metadata and connections of its parent are not for two.
"""

from __future__ import annotations

import os
import threading
import weakref
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property

from tierfs import app, forks
from tierfs.background.holder import HeldElsewhere
from tierfs.composition import holding
from tierfs.composition.sources import open_source
from tierfs.errors import TierfsError
from tierfs.fsspec.paths import is_url
from tierfs.fsspec.read_loop import ReadLoop


@dataclass(frozen=True, slots=True)
class Place:
    """Where a store is, and how a bucket is reached."""

    where: str
    """Its directory, or the URL of its bucket."""
    endpoint_url: str | None = None
    region: str | None = None
    profile: str | None = None


class Connection:
    """One open store and the thread that reads from it."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.store = store = open_source(
            place.where, endpoint_url=place.endpoint_url, region=place.region, profile=place.profile
        )
        self.pid = os.getpid()
        self._starting = threading.Lock()
        self._end = weakref.finalize(self, _end, self.pid, store, None)

    @cached_property
    def _loop(self) -> ReadLoop:
        loop = ReadLoop(self.store.reader)
        self._end.detach()
        self._end = weakref.finalize(self, _end, self.pid, self.store, loop)
        return loop

    @property
    def loop(self) -> ReadLoop:
        """The thread that reads; started with the first read."""
        with self._starting:
            return self._loop

    def refresh(self) -> None:
        """Take in what a bucket's journal says now; a store in a directory is always as it is now."""
        if is_url(self.place.where):
            with suppress(HeldElsewhere):  # another process brings it up to date at this moment
                holding.refresh(self.store)

    @property
    def is_inherited(self) -> bool:
        """Whether it belongs to the process that this one was forked from."""
        return self.pid != os.getpid()


def _end(pid: int, store: app.Store, loop: ReadLoop | None) -> None:
    """Close what a connection held. In a child of fork nothing happens: it is the parent's."""
    if pid != os.getpid():
        return
    if loop is not None:
        loop.close()
    with suppress(TierfsError):
        store.close()


class Connections:
    """The connections of this process, by the places of their stores."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: weakref.WeakValueDictionary[Place, Connection] = weakref.WeakValueDictionary()
        forks.register(self)

    def get(self, place: Place) -> Connection:
        """The connection to a store, opened on first use. Raises what open_source raises."""
        with self._lock:
            found = self._open.get(place)
            if found is None:
                found = self._open[place] = Connection(place)
            return found

    def forget(self) -> None:
        """In a child of fork: begin with none, and never close the parent's."""
        self._lock = threading.Lock()
        for connection in self._open.values():
            forks.leak(connection)
        self._open = weakref.WeakValueDictionary()


CONNECTIONS = Connections()
