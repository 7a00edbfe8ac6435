"""Connection: a store shared by all that read it from Python in one process.

The last user to release it closes it; the end of the process does too. A child of fork opens its own: locks,
metadata and connections of its parent are not for two.
"""

from __future__ import annotations

import os
import threading
import weakref
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING

from tierfs.app import store
from tierfs.app.sources import open_source
from tierfs.base.bytes.frozen import dataclass
from tierfs.base.system import forks
from tierfs.base.words.errors import TierfsError

if TYPE_CHECKING:
    from tierfs.engine.segments.shared_writers import SharedWriters
    from tierfs.reading.read_loop import ReadLoop


@dataclass(frozen=True, slots=True)
class StorePlace:
    """A store's place, and the connection to a bucket."""

    where: str
    """Its directory, or the URL of its bucket."""
    endpoint_url: str | None = None
    region: str | None = None
    profile: str | None = None


class Connection:
    """One open store and the thread that reads from it."""

    def __init__(self, place: StorePlace) -> None:
        self.place = place
        self.store = store = open_source(
            place.where, endpoint_url=place.endpoint_url, region=place.region, profile=place.profile
        )
        self.pid = os.getpid()
        self._starting = threading.Lock()
        self._end = weakref.finalize(self, _end, self.pid, store, None)

    @cached_property
    def _writers(self) -> SharedWriters:
        from tierfs.engine.segments.shared_writers import SharedWriters  # reading needs none

        return SharedWriters(self.store.engine)

    @property
    def writers(self) -> SharedWriters:
        """The writers that all users of this connection share."""
        with self._starting:
            return self._writers

    @cached_property
    def _loop(self) -> ReadLoop:
        from tierfs.reading.read_loop import ReadLoop  # trio takes 0.1 s to import, and writing needs none

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
        """Take in the present journal of a bucket; a store in a directory is always current."""
        if "://" in self.place.where:
            from tierfs.app.replica import refresh_source  # as sources do, with the first URL

            refresh_source(self.store)

    @property
    def is_inherited(self) -> bool:
        """Return whether it belongs to the process that this one was forked from."""
        return self.pid != os.getpid()


def _end(pid: int, store: store.Store, loop: ReadLoop | None) -> None:
    """Close a connection's store and thread. Does nothing in a child of fork: they are the parent's."""
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
        self._open: weakref.WeakValueDictionary[StorePlace, Connection] = weakref.WeakValueDictionary()
        forks.register(self)

    def get(self, place: StorePlace) -> Connection:
        """Return the connection to a store, opened on first use. Raises what open_source raises."""
        with self._lock:
            connection = self._open.get(place)
            if connection is None or not connection.store.metadata.is_present:
                connection = self._open[place] = Connection(place)
            return connection

    def forget(self) -> None:
        """In a child of fork, begin with none, and never close the parent's."""
        self._lock = threading.Lock()
        for connection in self._open.values():
            forks.leak(connection)
        self._open = weakref.WeakValueDictionary()


CONNECTIONS = Connections()
