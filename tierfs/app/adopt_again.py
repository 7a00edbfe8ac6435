"""Adoptions that the store's holder repeats: remembered with their location. Part of the composition root.

One location has one timer. Each process may set or end it; the holder looks at the few locations every second, and
adopts what is due. A location that only a journal named is not used, so a recovered store repeats nothing until the
place is adopted by hand.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from tierfs.app.store import Store
from tierfs.base.bytes.progress import Meter, unseen
from tierfs.base.options.config import BackgroundSettings
from tierfs.base.words import names, units
from tierfs.base.words.errors import Conflict, Fenced, InvalidRequest, TierfsError
from tierfs.engine.metadata import changes, directories, policies, tables
from tierfs.engine.metadata.record_parts import NOT_REPEATED, AdoptionTimer
from tierfs.engine.metadata.records import LocationRecord
from tierfs.engine.metadata.transaction import ReadTransaction
from tierfs.upkeep.holder.failures import Failures
from tierfs.upkeep.holder.loop import Begin
from tierfs.upkeep.holder.tasks import Task, TaskLoop, TaskTable

if TYPE_CHECKING:
    from tierfs.app.adopt import Adopted, Adopter
    from tierfs.tiering.adoption.tail import Tails

log = logging.getLogger(__name__)

# Reads of few rows: nothing that a second cannot bear.
_LOOK_S = 1.0

# Fewer than a command's: a mount's readers are served by the same process (a guess).
_JOBS = 2

_MS_PER_S = 1000

# Names the failures of one place's adoptions, with its number; and those of the look at all of them.
ADOPT, LOOK = "adopt", "look for adoptions"


def require_places(adoptions: Iterable[Adopted]) -> None:
    """Raise InvalidRequest for a single object: adoptions of places are repeated."""
    single = next((adopted.only for adopted in adoptions if adopted.only), None)
    if single is not None:
        raise InvalidRequest(
            f"{names.printable(single)} is one object; only adoptions of directories and prefixes are repeated",
            remedy="use --every with its directory or prefix",
        )


def remember(store: Store, adopter: Adopter, adopted: Adopted, every_s: int) -> None:
    """Let the holder repeat an adoption that was done; another period replaces the one before.

    Raises Conflict when the place is adopted into another directory, or as another layout.
    """
    place, into, layout = adopted.place.record, adopter.into, adopter.kind or ""
    with store.metadata.write() as txn:
        known = policies.register_foreign(txn, place)
        entry = directories.must_find(txn, into, "directory")
        old = known.adoption
        if old.every_s and (old.directory_id, old.layout) != (entry.id, layout) and directory_of(txn, old) is not None:
            raise Conflict(
                f"{names.printable(place.url)} is adopted into {names.printable(directory_of(txn, old) or '')} as "
                f"{old.layout} every {units.format_duration(old.every_s)} already",
                remedy="stop that adoption first: tierfs adopt --stop --into its directory",
            )
        timer = AdoptionTimer(
            every_s=every_s,
            layout=layout,
            directory_id=entry.id,
            last_ms=txn.now_ms,
            accept_loss=adopter.ledgers.accept_loss,
        )
        changes.put(txn, tables.LOCATIONS, replace(known, adoption=timer))


def stop(store: Store, into: str) -> list[str]:
    """End the repeated adoptions into a directory; return the URLs of their places."""
    with store.metadata.write() as txn:
        entry = directories.must_find(txn, into, "directory")
        ended = [
            location
            for _, location in txn.scan(tables.LOCATIONS)
            if location.adoption.every_s and location.adoption.directory_id == entry.id
        ]
        for location in ended:
            changes.put(txn, tables.LOCATIONS, replace(location, adoption=NOT_REPEATED))
        return [location.url for location in ended]


def directory_of(txn: ReadTransaction, timer: AdoptionTimer) -> str | None:
    """Return the path that a timer's places are adopted into; None when the directory was removed."""
    directory = txn.get(tables.DIRECTORIES, tables.u64(timer.directory_id))
    if directory is None:
        return None
    path = directories.path_of(txn, directory.parent_id, directory.name)
    return None if names.is_removed(path) else path


class Readopter:
    """Adopts what is due, for the store's holder. In one thread at a time."""

    def __init__(self, store: Store, failures: Failures) -> None:
        self._store = store
        self._failures = failures
        self._tails: dict[int, Tails] = {}

    def look(self) -> None:
        """Adopt each place that is due; one that fails is listed, and tried again after a pause. Raises Fenced."""
        with self._store.metadata.read() as txn:
            repeated = {_row_of(location) for _, location in txn.scan(tables.LOCATIONS) if location.adoption.every_s}
            due = list(self._due(txn))
        self._failures.retain(f"{ADOPT} ", repeated.__contains__, keep_damage=False)
        for location in due:
            what = _row_of(location)
            if not self._failures.may_try(what):
                continue
            try:
                self._adopt(location)
            except Fenced:
                raise
            except TierfsError as exc:
                self._failures.failed(what, exc, name=location.url)
            else:
                self._failures.passed(what)

    def _due(self, txn: ReadTransaction) -> Iterator[LocationRecord]:
        now_ms = self._store.clock.now_ms()
        for _, location in txn.scan(tables.LOCATIONS):
            timer = location.adoption
            # A clock that was set back makes no one wait longer than the period.
            since_ms = abs(now_ms - timer.last_ms)
            if timer.every_s and not location.from_journal and since_ms >= timer.every_s * _MS_PER_S:
                yield location

    def _adopt(self, location: LocationRecord) -> None:
        """Adopt one place. Raises the error of the first segment that failed."""
        timer = location.adoption
        with self._store.metadata.read() as txn:
            into = directory_of(txn, timer)
        if into is None:
            log.info("%s: adoption stopped: its directory was removed", names.printable(location.url))
            self._put(location, NOT_REPEATED)
            return
        # Here and not above: every mount and daemon looks for timers, and few have one.
        from tierfs.app.adopt import Adopter, AdoptionSource, LedgerOptions
        from tierfs.tiering.adoption.adopt import State
        from tierfs.tiering.adoption.tail import Tails

        options = LedgerOptions(accept_loss=timer.accept_loss)
        tails = self._tails.setdefault(location.id, Tails())
        adopter = Adopter(self._store, timer.layout, into, options, grows=True, thorough=False, tails=tails)
        adopted = adopter.plan(AdoptionSource(self._store.place_of(location), location.url))
        adopter.adopt(adopted, _JOBS, Meter(unseen))
        changed = sum(outcome.state not in (State.ALREADY, State.FAILED) for outcome in adopted.outcomes)
        if changed:
            log.info("%s: %d segments were adopted or have grown", names.printable(location.url), changed)
        self._put(location, replace(timer, last_ms=self._store.clock.now_ms()))
        failed = [error for _, error in adopted.plan.refused]
        failed += [outcome.error for outcome in adopted.outcomes if outcome.error is not None]
        if failed:
            raise failed[0]

    def _put(self, location: LocationRecord, timer: AdoptionTimer) -> None:
        """Write a timer, not to the journal: the time of the last adoption is this host's. One that was set meanwhile
        stays."""
        with self._store.metadata.write_notes() as txn:
            newest = txn.must_get(tables.LOCATIONS, tables.u32(location.id), "location")
            if newest.adoption == location.adoption:
                txn.put(tables.LOCATIONS, tables.u32(location.id), replace(newest, adoption=timer))


def _row_of(location: LocationRecord) -> str:
    return f"{ADOPT} {location.id}"


def repeating(store: Store, begin: Begin) -> Begin:
    """Return the work of a holder with the repeated adoptions added."""

    def begin_all(loop: TaskLoop, settings: BackgroundSettings) -> TaskTable:
        table = begin(loop, settings)
        again = Task(_LOOK_S, {LOOK: loop.blocking(Readopter(store, loop.failures).look)})
        return replace(table, tasks=[*table.tasks, again])

    return begin_all
