"""Thaw: request archived objects back, and wait until they can be read. Part of the composition root.

Any process may do it: nothing is written but the requests to the bucket. Each object is looked at, as only the server
knows whether it is back, and a rule of the bucket may have moved objects that no record knows of. Requesting one twice
is harmless.
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain

from tierfs.app.store import Store
from tierfs.app.unrestored import Restoring, state_of
from tierfs.base.bytes.frozen import dataclass
from tierfs.base.bytes.parallel import Pool
from tierfs.base.bytes.progress import Meter, OnProgress, unseen
from tierfs.base.system import deadlines
from tierfs.base.words.errors import Archived, NotFound
from tierfs.base.words.names import as_word, printable
from tierfs.base.words.types import LocationId, ObjectId
from tierfs.engine.chunkstore.protocol import ThawSpeed
from tierfs.engine.metadata import directories, tables
from tierfs.engine.metadata.records import ObjectRecord
from tierfs.engine.metadata.tables import OBJECTS
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
    places: tuple[tuple[LocationId, str], ...]
    """Of the object, and of what lies beside a ledger's: its index, and the copy of its entries. Empty: it is gone."""
    stored_bytes: int
    segment: str
    """The name of one that has bytes in it."""

    @property
    def name(self) -> str:
        """The name of the object, for people."""
        return self.places[0][1] if self.places else ""


@dataclass(frozen=True, slots=True)
class _Looked:
    """The state of one as the server reports it."""

    wanted: _ThawedObject
    state: Restoring | None
    """None: it can be read at any time."""

    @property
    def is_ready(self) -> bool:
        """Whether it can be read."""
        return self.state is None or self.state.until_ms > 0


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
        with store.metadata.read() as txn:
            self._own = LocationId(txn.store.cold_location_id)
        self._waiting = array("Q")
        """Ids of the objects that are not back, as of the last look: 8 MB of a million."""
        self._done = ThawReport()

    def look(self, *, days: int = 0, speed: ThawSpeed = ThawSpeed.STANDARD) -> ThawReport:
        """Look at all objects; with `days`, request back those that are archived. Raises the first error of one."""
        meter = Meter(self._report, noun="object")
        self._done, self._waiting = ThawReport(), array("Q")

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
            waiting, self._waiting = self._waiting, array("Q")
            with Pool(_AT_ONCE, "tierfs-thaw") as pool:
                for wanted, looked in pool.as_completed(
                    lambda each: self._look_at(each, 0, ThawSpeed.STANDARD), self._known(waiting)
                ):
                    if looked.is_ready:
                        meter(wanted.stored_bytes, wanted.name, 1)
                    self._again(looked)
        return self._done

    def _wanted(self) -> Iterator[_ThawedObject]:
        """Yield each object once. Remembered are those alone that another chunk may lead to."""
        seen: set[ObjectId] = set()
        for record, segment in chain(self._objects, self._of_names()):
            if record.id in seen:
                continue
            if record.references > 1 or self._objects:
                seen.add(record.id)
            yield self._thawed(record, segment)

    def _known(self, ids: Sequence[int]) -> Iterator[_ThawedObject]:
        """Yield the objects with these ids, by their names of now; one that is gone counts as back.

        Its bytes are in others, or were deleted.
        """
        for number in ids:
            with self._store.metadata.read() as txn:
                record = txn.get(OBJECTS, tables.u64(number))
            if record is None:
                self._again(_Looked(_ThawedObject(ObjectId(number), (), 0, ""), None))
            else:
                yield self._thawed(record, "")

    def _of_names(self) -> Iterator[tuple[ObjectRecord, str]]:
        for name in self._names:
            for page in directories.pages(self._store.metadata.read, name):
                with self._store.metadata.read() as txn:
                    objects = [(record, path) for path, segment_id in page for record in cold_objects(txn, segment_id)]
                yield from objects

    def _look_at(self, wanted: _ThawedObject, days: int, speed: ThawSpeed) -> _Looked:
        looked = (self._state_of(wanted, *place, days, speed) for place in wanted.places)
        states = [state for state in looked if state is not None]
        if not states:
            return _Looked(wanted, None)
        was_requested = any(state.was_requested for state in states)
        until_ms = min(state.until_ms for state in states)  # 0: one of them is not back
        return _Looked(wanted, replace(states[0], was_requested=was_requested, until_ms=until_ms))

    def _state_of(
        self, wanted: _ThawedObject, location_id: LocationId, name: str, days: int, speed: ThawSpeed
    ) -> Restoring | None:
        try:
            state = state_of(self._store.storage_of(location_id), name, days, speed)
        except NotFound:  # joined or moved meanwhile: then a copy that can be read was made, or a new look finds it
            return None
        if state is not None and not state.is_requested:
            raise Archived(
                f"{printable(name)} is in the archive as {printable(state.storage_class)}, and was not requested back",
                remedy=f"run: tierfs thaw --wait {as_word(wanted.segment) if wanted.segment else 'PATH'}",
            )
        return state

    def _thawed(self, record: ObjectRecord, segment: str) -> _ThawedObject:
        beside = [(record.location_id, record.index_name), (self._own, record.entries_name)]
        places = ((record.location_id, record.name), *(place for place in beside if place[1]))
        return _ThawedObject(record.id, places, record.stored_bytes, segment)

    def _note(self, looked: _Looked) -> None:
        if looked.state is None:
            return
        done, size_bytes = self._done, looked.wanted.stored_bytes
        self._done = replace(
            done,
            objects=done.objects + 1,
            bytes=done.bytes + size_bytes,
            requested=done.requested + int(looked.state.was_requested),
        )
        self._again(looked)

    def _again(self, looked: _Looked) -> None:
        """Note whether an object is back."""
        if not looked.is_ready:
            self._waiting.append(looked.wanted.id)
            return
        done, until_ms = self._done, 0 if looked.state is None else looked.state.until_ms
        times = [each for each in (done.until_ms, until_ms) if each]
        self._done = replace(
            done,
            ready=done.ready + 1,
            ready_bytes=done.ready_bytes + looked.wanted.stored_bytes,
            until_ms=min(times, default=0),
        )
