"""The last step of a move: copy what is newer, record the new place, and tell of it in the place before.

Crash order: copied and examined -> recorded, with the place before as one where a note is missing -> no record says
that an object is in the archive -> the journal at the new place names it -> note (journal/left.py) -> forgotten. After
a crash the next holder goes on behind the record.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.bytes.parallel import Pool
from tierfs.base.bytes.progress import Meter, OnProgress
from tierfs.base.words.errors import Conflict, TierfsError
from tierfs.engine.chunkstore.protocol import ChunkStorage
from tierfs.engine.journal import cold_identity, left
from tierfs.engine.journal.publish import Publisher, look_for_other
from tierfs.engine.metadata import policies
from tierfs.engine.metadata.journal_state import NOWHERE, LeftPlace
from tierfs.engine.metadata.records import LocationRecord, StoreRecord
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.transaction import WriteTransaction
from tierfs.tiering.archive import moved_tier
from tierfs.tiering.objects import ColdTier
from tierfs.tiering.relocate import TierCopy, TierVersion, record_place

log = logging.getLogger(__name__)

# Copies. Those after the first one are of what was made during the one before, and take a few requests (a guess).
_TRIES = 10

# Longest time of a last copy, during which all other changes of the store wait (a guess).
_LAST_S = 5.0


@dataclass(frozen=True, slots=True)
class Switched:
    """The objects that were copied last, when nothing was uploaded."""

    objects: int = 0


@dataclass(frozen=True, slots=True)
class PlaceSwitch:
    """The change of one store's place, by its holder."""

    metadata: MetadataStore
    cold: ColdTier
    publisher: Publisher
    connect: Callable[[LocationRecord], ChunkStorage]
    """Connects to a place that is not the store's; closed by its user."""

    def run(self, place: LocationRecord, report: OnProgress) -> Switched:
        """Copy what a place still lacks, and record it. Where an object is linked meanwhile, it is copied too.

        Only the first copy lists both places. If others write all the time, the last one is made while they wait.
        Raises WrongColdTier for a place that another owner has written to, Conflict where objects are made faster than
        they are copied, and what the storages raise; then the place is the one before.
        """
        copied, clock = 0, self.metadata.clock
        seen: TierVersion | None = None
        with closing(self.connect(place)) as target:
            for _ in range(_TRIES):
                self.publisher.publish()
                self.publisher.require_ownership()
                with self.metadata.read() as txn:
                    version, present = TierVersion.of(txn), policies.location(txn, place.id)
                    newer = None if seen is None else seen.newer(txn, place.id)
                if present == place:  # a holder that died had recorded it
                    return Switched(copied)
                began_s = clock.boot_s()
                copied += TierCopy(self.cold.storage, target, Meter(report, noun="object")).run(
                    compares=False, newer=newer
                )
                is_short = newer is not None and clock.boot_s() - began_s <= _LAST_S / 2
                if self._record(version, present, place, target) or (
                    is_short and self._record_last(version, place, target)
                ):
                    self._tell(place, target)
                    return Switched(copied)
                seen = version
        raise Conflict(
            "objects are created faster than they are copied", remedy="run the command again at a lower write load"
        )

    def _record(
        self, version: TierVersion, present: LocationRecord, place: LocationRecord, target: ChunkStorage
    ) -> bool:
        """Record a place that was seen to be the store's; return False if objects were linked since the version."""
        with self.metadata.read() as txn:
            record, current = txn.store, version.is_current(txn)
        if not current:
            return False
        _examine(target, record)
        with self.metadata.write() as txn:
            if not version.is_current(txn):
                return False
            _change(txn, present, place)
        return True

    def _record_last(self, version: TierVersion, place: LocationRecord, target: ChunkStorage) -> bool:
        """Do so whatever is written meanwhile: all other changes wait while what is newer than the version is copied.

        Return False if that takes too long, and nothing is changed then.
        """

        def copy() -> None:  # reports nothing: a report is a change, too
            TierCopy(self.cold.storage, target, Meter()).run(compares=False, newer=newer)
            _examine(target, record)

        try:
            with Pool(1, "tierfs-last-copy") as pool, self.metadata.write() as txn:
                newer, record = version.newer(txn, place.id), txn.store
                pool.within(copy, _LAST_S)
                _change(txn, policies.location(txn, place.id), place)
        except TimeoutError:
            log.info("the last objects of a move were not copied within %.0f s", _LAST_S)
            return False
        return True

    def _tell(self, place: LocationRecord, target: ChunkStorage) -> None:
        moved_tier.correct(self.metadata, self.cold.location_id)
        with self.metadata.read() as txn:
            before = txn.store.journal.left
        try:
            Publisher(self.metadata, target, place).publish()
            left.end_moving(target)
            self._put_note(before, place)
        except TierfsError as exc:
            log.info("the previous place has no note of the new place yet: %s", exc)

    def finish(self) -> None:
        """Do what a dead holder left of that. A place that does not answer is not asked again: it may be given up."""
        moved_tier.correct(self.metadata, self.cold.location_id)
        with self.metadata.read() as txn:
            before, place = txn.store.journal.left, policies.location(txn, self.cold.location_id)
        if not before.url:
            return
        try:
            self.publisher.publish()
            left.end_moving(self.cold.storage)
        except TierfsError as exc:  # of the present place: the next holder continues
            log.info("%s is the previous place, and the current place does not respond: %s", before.url, exc)
            return
        try:
            self._put_note(before, place)
        except TierfsError as exc:
            log.warning("%s is the previous place, and has no note of the new place: %s", before.url, exc)
            self._forget(before)

    def _put_note(self, before: LeftPlace, place: LocationRecord) -> None:
        """Put the note into the place that was left for `place`, whose journal names that by now."""
        address_of = {key: getattr(before, key) for key in ("url", "endpoint_url", "region", "profile")}
        with closing(self.connect(replace(place, **address_of))) as storage:  # an earlier connection is refused by now
            # Not into the bare mount point of a disk that is away. The last slot may only have been announced.
            sighting = cold_identity.look(storage, before.slot - 1)
            if before.slot - 1 not in sighting.shown:
                cold_identity.require_shown(storage, sighting, before.slot)
            left.put(storage, left.of_place(place, before.slot, self.metadata.store_id, before.left_ms))
        self._forget(before)

    def _forget(self, before: LeftPlace) -> None:
        with self.metadata.write() as txn:
            # Another process may have changed the address meanwhile: then another place waits for its note.
            if txn.store.journal.left == before:
                txn.update_store(journal=replace(txn.store.journal, left=NOWHERE))


def _examine(target: ChunkStorage, record: StoreRecord) -> None:
    """Raise WrongColdTier unless a place is the store's."""
    cold_identity.examine(target, record)
    if look_for_other(target, record) is not None:
        raise cold_identity.wrong_cold_tier(f"another owner has written to {target!r}")


def _change(txn: WriteTransaction, present: LocationRecord, place: LocationRecord) -> None:
    """Record the place, and the present one as left. An entry that another process has announced there counts as there:
    it may be put behind the note, which would be void then."""
    record_place(txn, place)
    moved_tier.note(txn)
    journal = txn.store.journal
    slot = max(journal.newest_slot, journal.intent.slot)
    txn.update_store(journal=replace(journal, left=left.place_left(present, slot, txn.now_ms)))
