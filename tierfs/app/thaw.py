"""Thaw: request archived objects back, and wait until they can be read. Part of the composition root.

Any process may do it: nothing is written but the requests to the bucket. Each object is looked at, as only the server
knows whether it is back, and a rule of the bucket may have moved objects that no record knows of. Requesting one twice
is harmless.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from tierfs.app.store import Store
from tierfs.base.bytes.parallel import Pool
from tierfs.base.bytes.progress import Meter, OnProgress, unseen
from tierfs.base.system import deadlines
from tierfs.base.words.errors import Archived, NotFound
from tierfs.base.words.names import printable
from tierfs.base.words.storage_classes import is_restored_first
from tierfs.base.words.types import LocationId, ObjectId
from tierfs.engine.chunkstore.protocol import StoredObject, ThawSpeed
from tierfs.engine.metadata import directories
from tierfs.engine.metadata.records import ObjectRecord
from tierfs.engine.segments.archived import cold_objects

# Requests at once: they wait for the server (a guess).
_AT_ONCE = 16

# Between two looks while objects come back: soon for the fastest way, which takes minutes, and a minute in the end, as
# others take hours (a guess).
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0


@dataclass(frozen=True, slots=True)
class ThawReport:
    """The state of the cold objects below a path."""

    objects: int = 0
    """Those that have to be restored before they can be read."""
    bytes: int = 0
    """Stored bytes of them."""
    ready: int = 0
    """Those that can be read now."""
    ready_bytes: int = 0
    requested: int = 0
    """Those that were requested now."""
    until_ms: int = 0
    """Until then all that are ready can be read; 0: none is."""

    @property
    def is_ready(self) -> bool:
        """Whether every byte can be read."""
        return self.ready == self.objects


@dataclass(frozen=True, slots=True)
class _ThawedObject:
    """An object to look at."""

    id: ObjectId
    location_id: LocationId
    name: str
    stored_bytes: int
    segment: str
    """The name of one that has bytes in it."""


@dataclass(frozen=True, slots=True)
class _Looked:
    """The state of one as the server reports it."""

    wanted: _ThawedObject
    is_archived: bool = False
    is_ready: bool = True
    was_requested: bool = False
    until_ms: int = 0


class Thawing:
    """The objects below some names, requested back. Used by one thread, which starts others."""

    def __init__(
        self,
        store: Store,
        names: Sequence[str],
        report: OnProgress = unseen,
        objects: Iterable[tuple[ObjectRecord, str]] = (),
    ) -> None:
        """`objects`: more of them, each with the name of a segment. Raises NotFound for a name that is missing."""
        self._store = store
        self._objects = tuple(objects)
        self._names = names
        self._report = report
        self._waiting: list[_ThawedObject] = []
        """Objects that are not back, as of the last look."""
        self._done = ThawReport()

    def look(self, *, days: int = 0, speed: ThawSpeed = ThawSpeed.STANDARD) -> ThawReport:
        """Look at all objects; with `days`, request back those that are archived. Raises the first error of one."""
        meter = Meter(self._report, noun="object")
        self._done, self._waiting = ThawReport(), []

        def look_at(wanted: _ThawedObject) -> _Looked:
            return self._look_at(wanted, days, speed)

        with Pool(_AT_ONCE, "tierfs-thaw") as pool:
            for wanted, looked in pool.as_completed(look_at, self._wanted()):
                meter(wanted.stored_bytes, wanted.name, 1)
                self._note(looked)
        return self._done

    def wait(self) -> ThawReport:
        """Wait until all that was seen to be archived can be read. Raises Archived for what was not requested."""
        pause_s, total = FIRST_PAUSE_S, self._done
        meter = Meter(self._report, total.bytes, total.objects, noun="thawed object")
        meter(total.ready_bytes, "", total.ready)
        never = threading.Event()
        while self._waiting:
            never.wait(deadlines.within(pause_s))
            deadlines.require_time("waiting for archived objects")
            pause_s = min(LONGEST_PAUSE_S, 2 * pause_s)
            waiting, self._waiting = self._waiting, []
            with Pool(_AT_ONCE, "tierfs-thaw") as pool:
                for wanted, looked in pool.as_completed(
                    lambda each: self._look_at(each, 0, ThawSpeed.STANDARD), waiting
                ):
                    if looked.is_ready:
                        meter(wanted.stored_bytes, wanted.name, 1)
                    self._again(looked)
        return self._done

    def _wanted(self) -> Iterator[_ThawedObject]:
        """Yield each object once."""
        seen: set[ObjectId] = set()
        for record, segment in chain(self._objects, self._of_names()):
            if record.id not in seen:
                seen.add(record.id)
                yield _ThawedObject(record.id, record.location_id, record.name, record.stored_bytes, segment)

    def _of_names(self) -> Iterator[tuple[ObjectRecord, str]]:
        for name in self._names:
            for page in directories.pages(self._store.metadata.read, name):
                with self._store.metadata.read() as txn:
                    found = [(record, path) for path, segment_id in page for record in cold_objects(txn, segment_id)]
                yield from found

    def _look_at(self, wanted: _ThawedObject, days: int, speed: ThawSpeed) -> _Looked:
        storage = self._store.storage_of(wanted.location_id)
        try:
            stored = storage.stat(wanted.name)
        except NotFound:  # joined or moved meanwhile: then a copy that can be read was made, or a new look finds it
            return _Looked(wanted)
        if not is_restored_first(stored.storage_class):
            return _Looked(wanted)
        if stored.thaw is not None and not stored.thaw.is_done:
            return _Looked(wanted, is_archived=True, is_ready=False)
        if days:
            return self._request(wanted, stored, days, speed)
        until_ms = 0 if stored.thaw is None else stored.thaw.until_ms
        if not until_ms and not self._answers(wanted):
            raise Archived(
                f"{printable(wanted.name)} is in the archive as {printable(stored.storage_class)}, and was not "
                "requested back",
                remedy=f"run: tierfs thaw {printable(wanted.segment)} --wait",
            )
        return _Looked(wanted, is_archived=bool(until_ms), until_ms=until_ms)

    def _request(self, wanted: _ThawedObject, stored: StoredObject, days: int, speed: ThawSpeed) -> _Looked:
        storage = self._store.storage_of(wanted.location_id)
        if not storage.thaw(wanted.name, days, speed):
            return _Looked(wanted)  # this server's class of that name answers at once
        back = storage.stat(wanted.name).thaw if stored.thaw is None else stored.thaw
        until_ms = 0 if back is None else back.until_ms
        is_new = stored.thaw is None
        return _Looked(wanted, is_archived=True, is_ready=bool(until_ms), was_requested=is_new, until_ms=until_ms)

    def _answers(self, wanted: _ThawedObject) -> bool:
        """Return whether an object can be read all the same, as its class is that of another kind of server."""
        try:
            self._store.storage_of(wanted.location_id).read_into(wanted.name, 0, memoryview(bytearray(1)))
        except Archived:
            return False
        return True

    def _note(self, looked: _Looked) -> None:
        if not looked.is_archived:
            return
        done, size_bytes = self._done, looked.wanted.stored_bytes
        self._done = replace(
            done,
            objects=done.objects + 1,
            bytes=done.bytes + size_bytes,
            requested=done.requested + int(looked.was_requested),
        )
        self._again(looked)

    def _again(self, looked: _Looked) -> None:
        """Note whether an object is back."""
        if not looked.is_ready:
            self._waiting.append(looked.wanted)
            return
        done = self._done
        times = [until_ms for until_ms in (done.until_ms, looked.until_ms) if until_ms]
        self._done = replace(
            done,
            ready=done.ready + 1,
            ready_bytes=done.ready_bytes + looked.wanted.stored_bytes,
            until_ms=min(times, default=0),
        )
