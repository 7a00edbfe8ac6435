"""Collect: delete garbage that is due, once the journal no longer names it (invariant 4).

A row goes only after its file or object is gone; deleting twice is harmless. A deletion that fails is tried again later
and stays listed with its error, never dropped.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Container, Iterator
from dataclasses import replace
from itertools import islice, takewhile

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.bytes.parallel import Pool
from tierfs.base.bytes.progress import Meter, OnProgress, unseen
from tierfs.base.words import object_names
from tierfs.base.words.errors import Fenced, PermissionDenied, TierfsError, Unavailable
from tierfs.base.words.names import printable
from tierfs.base.words.object_names import is_about_job
from tierfs.base.words.types import LocationId, Tier
from tierfs.engine.chunkstore.local_files import ChunkFiles
from tierfs.engine.chunkstore.protocol import ChunkStorage
from tierfs.engine.journal import batch_markers
from tierfs.engine.metadata import archive_place, chains, policies, store_ownership, tables
from tierfs.engine.metadata.records import GarbageRecord
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.tables import GARBAGE, OBJECTS
from tierfs.engine.metadata.transaction import ReadTransaction, WriteTransaction
from tierfs.tiering.objects import job_of

log = logging.getLogger(__name__)

_BATCH_ROWS = 1000

# Rows whose deletion one commit records: a crash repeats at most so many requests. Files cost none.
_COMMITTED_TOGETHER = 100
_FILES_TOGETHER = _BATCH_ROWS

# Threads that delete files. Beside processes that sync, each deletion waits for the filesystem's journal: measured on
# ext4, 10,000 files took one thread 13 s and eight 1.1 s. Fewer files than these are deleted one by one.
_THREADS = 8
_LEAST_IN_THREADS = 32
_EACH = 8

# Time after which rows that waited for the journal or for the clock are looked at again, whatever changed.
_LOOK_AGAIN_MS = 60 * 1000
# Pause of a marker that is still its application's last one; a day later there may be another.
_MARKER_REST_MS = 24 * 3600 * 1000

_FIRST_RETRY_MS = 60 * 1000
# A failed deletion is tried after a minute, then twice as late each time, up to six hours.
_LAST_RETRY_MS = 6 * 3600 * 1000


@dataclass(frozen=True, slots=True)
class Collected:
    """The result of a collection."""

    deleted: int = 0
    bytes: int = 0
    failed: int = 0
    aborted: int = 0
    """Dead uploads."""
    error: str = ""
    """Of the first deletion that failed: its target, and the reason."""
    error_kind: str = ""

    def plus(self, other: Collected) -> Collected:
        """Return the sum of both."""
        first = self if self.error else other
        return Collected(
            self.deleted + other.deleted,
            self.bytes + other.bytes,
            self.failed + other.failed,
            self.aborted + other.aborted,
            first.error,
            first.error_kind,
        )

    @classmethod
    def failure(cls, name: str, error: TierfsError) -> Collected:
        """Return the result of one deletion that failed."""
        return cls(failed=1, error=f"{printable(name)}: {error}", error_kind=type(error).__name__)


@dataclass(frozen=True, slots=True)
class _Uncertain:
    """Why cold objects stay."""

    cold: TierfsError | None = None
    archive_id: LocationId = archive_place.NONE
    archive: TierfsError | None = None

    def of(self, record: GarbageRecord) -> TierfsError | None:
        """Return why what a row names stays; None if it may go."""
        if record.tier is not Tier.COLD:
            return None
        return self.archive if record.location_id == self.archive_id else self.cold


_CERTAIN = _Uncertain()


class Collector:
    """Deletes garbage. Only the holder deletes cold objects; any process deletes local files."""

    def __init__(
        self,
        metadata: MetadataStore,
        files: ChunkFiles,
        storage_of: Callable[[LocationId], ChunkStorage],
        require_ownership: Callable[[], None] | None = None,
        require_archive: Callable[[], None] | None = None,
    ) -> None:
        """Have `require_ownership` (Publisher) prove that the bucket is ours before cold objects go.

        Those in the archive place go only if `require_archive` (ArchiveProof) sees its mark, too. Without these they
        stay.
        """
        self._metadata = metadata
        self._files = files
        self.storage_of = storage_of
        self._require_ownership = require_ownership
        self._require_archive = require_archive
        self._left: dict[tuple[Tier, ...], tuple[int, bytes, int]] = {}
        """Per tiers collected: sequence published, last row looked at and time of the last pass."""
        self.deleting = threading.Lock()
        """Held while rows are looked at and what they name is deleted; taking it keeps garbage from going."""

    def is_due(self, tier: Tier) -> bool:
        """Return whether a collection of this tier's garbage would try to delete something."""
        with self._metadata.read() as txn:
            published = txn.store.journal.published_sequence
            rows = self._rows(txn, self._passed_over(txn, tuple(Tier)))
            return any(record.tier is tier and record.after_sequence <= published for _, record in rows)

    def retry_failed(self) -> None:
        """Make failed deletions due now, however long they were put off: a command asks for it."""
        self._left.clear()
        with self._metadata.read() as view:
            if view.sums is not None and not view.sums.garbage_failed:
                return
            now_ms = self._metadata.clock.now_ms()
            keys = [key for key, row in view.scan(GARBAGE) if row.attempts and row.due_ms > now_ms]
        for first in range(0, len(keys), _COMMITTED_TOGETHER):
            with self._metadata.write() as txn:
                for key in keys[first : first + _COMMITTED_TOGETHER]:
                    record = txn.get(GARBAGE, key)
                    if record is None:  # deleted meanwhile
                        continue
                    txn.delete(GARBAGE.name, key)
                    txn.put(GARBAGE, tables.pair(txn.now_ms, record.sequence), replace(record, due_ms=txn.now_ms))

    def collect(self, *, tiers: tuple[Tier, ...] = tuple(Tier), report: OnProgress = unseen) -> Collected:
        """Delete what is due in these tiers. Failures are logged, counted and put off.

        Raises Fenced, with nothing of the batch deleted, when the bucket is another store's.
        """
        with self._metadata.read() as txn:
            published, after = txn.store.journal.published_sequence, self._passed_over(txn, tiers)
        total, more = Collected(), True
        tried = Meter(report, noun="deletion")
        while more:
            with self.deleting:
                due, after, more = self._due(after, tiers)
                cold = any(record.tier is Tier.COLD for _, record in due)
                uncertain = self._uncertain({record.location_id for _, record in due}) if cold else _CERTAIN
                together = _COMMITTED_TOGETHER if cold else _FILES_TOGETHER
                for first in range(0, len(due), together):
                    some = due[first : first + together]
                    total = total.plus(self._delete_some(some, uncertain))
                    tried(sum(record.length for _, record in some), some[-1][1].name, len(some))
        # Only now, as an error above leaves rows that nobody looked at or deleted.
        self._left[tiers] = published, after, self._metadata.clock.now_ms()
        return total

    def _passed_over(self, txn: ReadTransaction, tiers: tuple[Tier, ...]) -> bytes:
        """Return the key up to which a recent pass left rows that still wait; empty for none."""
        published, key, at_ms = self._left.get(tiers, (0, b"", 0))
        recent = 0 <= self._metadata.clock.now_ms() - at_ms < _LOOK_AGAIN_MS
        return key if recent and published == txn.store.journal.published_sequence else b""

    def _rows(self, txn: ReadTransaction, after: bytes) -> Iterator[tuple[bytes, GarbageRecord]]:
        """Yield the rows that are due; keys are in that order, so the others are not looked at."""
        now_ms = self._metadata.clock.now_ms()
        rows = txn.scan_raw(GARBAGE.name, after + b"\0" if after else b"")
        for key, data in takewhile(lambda row: tables.read_u64(row[0]) <= now_ms, rows):
            yield key, GARBAGE.codec.decode(data)

    def _due(self, after: bytes, tiers: tuple[Tier, ...]) -> tuple[list[tuple[bytes, GarbageRecord]], bytes, bool]:
        """Return the next batch of rows that may go, the last key looked at, and whether more may follow."""
        with self._metadata.read() as txn:
            store_ownership.require_owner(txn.store)
            published = txn.store.journal.published_sequence
            rows = list(islice(self._rows(txn, after), _BATCH_ROWS))
            void = [key for key, record in rows if _is_linked(txn, record)]
            needed = {key for key, record in rows if _is_needed(txn, record)}
        due = [
            (key, record)
            for key, record in rows
            if record.after_sequence <= published and record.tier in tiers and key not in void and key not in needed
        ]
        self._forget(void)
        self._postpone([(key, record) for key, record in rows if key in needed and record.tier in tiers])
        return due, rows[-1][0] if rows else after, len(rows) == _BATCH_ROWS

    def _forget(self, void: list[bytes]) -> None:
        """Drop rows of objects that were linked again, as by loading a segment's dump: they are no garbage."""
        if void:
            with self._metadata.write() as txn:
                for key in void:
                    txn.delete(GARBAGE.name, key)

    def _postpone(self, rows: list[tuple[bytes, GarbageRecord]]) -> None:
        """Look at rows of markers that are still needed a day later."""
        if rows:
            with self._metadata.write() as txn:
                for key, record in rows:
                    later = replace(record, due_ms=txn.now_ms + _MARKER_REST_MS)
                    txn.delete(GARBAGE.name, key)
                    txn.put(GARBAGE, tables.pair(later.due_ms, later.sequence), later)

    def _uncertain(self, location_ids: Container[LocationId]) -> _Uncertain:
        """Return why ownership of the bucket, and of the archive place, cannot be confirmed now. Raises Fenced."""
        with self._metadata.read() as txn:
            archive_id = archive_place.id_of(txn)
        cold = _error_of(self._require_ownership)
        archive = cold or (_error_of(self._require_archive) if archive_id in location_ids else None)
        return _Uncertain(cold, archive_id, archive)

    def _delete_some(self, due: list[tuple[bytes, GarbageRecord]], uncertain: _Uncertain) -> Collected:
        """Delete what a few rows name, then commit the outcome; a crash in between repeats the deletions."""
        errors = self._delete_each([record for _, record in due], uncertain)
        left = self._left_of_jobs(due, errors)
        total = Collected()
        with self._metadata.write() as txn:
            for (key, record), error in zip(due, errors, strict=True):
                if error is None:
                    total = total.plus(Collected(deleted=1, bytes=record.length))
                else:
                    _put_off(txn, record, error)
                    total = total.plus(Collected.failure(record.name, error))
                txn.delete(GARBAGE.name, key)
            for location_id, name in left:
                chains.discard(txn, location_id, name)
        return total

    def _delete_each(self, records: list[GarbageRecord], uncertain: _Uncertain) -> list[TierfsError | None]:
        """Delete what rows name, in order; many files in threads."""
        if len(records) < _LEAST_IN_THREADS or any(record.tier is Tier.COLD for record in records):
            return [self._delete(record, uncertain.of(record)) for record in records]
        parts = [records[first : first + _EACH] for first in range(0, len(records), _EACH)]
        with Pool(_THREADS, "tierfs-delete") as pool:
            done = pool.run(lambda part: [self._delete(record, None) for record in part], parts)
        return [error for part in done for error in part]

    def _left_of_jobs(
        self, due: list[tuple[bytes, GarbageRecord]], errors: list[TierfsError | None]
    ) -> list[tuple[LocationId, str]]:
        """Return manifests and markers of the jobs whose last objects were deleted; set the errors of listings, so that
        these deletions are repeated."""
        last: dict[tuple[LocationId, str], int] = {}
        for number, ((_, record), error) in enumerate(zip(due, errors, strict=True)):
            job = job_of(record.name)
            if record.tier is Tier.COLD and error is None and job and not is_about_job(record.name):
                last[record.location_id, job] = number
        left: list[tuple[LocationId, str]] = []
        for (location_id, job), number in last.items():
            try:
                names = [stored.name for stored in self.storage_of(location_id).list(job)]
            except TierfsError as exc:
                errors[number] = exc
                continue
            if all(map(is_about_job, names)):
                left += [(location_id, name) for name in names]
        return left

    def _delete(self, record: GarbageRecord, uncertain: TierfsError | None) -> TierfsError | None:
        """Delete a file or object; return the error, or None."""
        try:
            if uncertain is not None:
                raise uncertain
            if record.tier is Tier.COLD:
                self._delete_object(record)
            else:
                self._files.delete(record.name)
        except TierfsError as exc:
            log.info("cannot delete %s yet: %s", printable(record.name), exc)
            return exc
        return None

    def _delete_object(self, record: GarbageRecord) -> None:
        """Delete a cold object of ours.

        Raises PermissionDenied in a foreign place, and DataLoss for a name that tierfs does not make.
        """
        object_names.require_ours(record.name)
        with self._metadata.read() as txn:
            location = policies.location(txn, record.location_id)
        if not location.writable:
            raise PermissionDenied(
                f"{record.name} is not deleted: {location.url} does not belong to this store",
                remedy="run: tierfs check",
            )
        self.storage_of(record.location_id).delete(record.name)


def _error_of(require: Callable[[], None] | None) -> TierfsError | None:
    """Return why a place is not proved to be ours, None if it is. Raises Fenced."""
    if require is None:
        return Unavailable("only the store's holder deletes cold objects")
    try:
        require()
    except Fenced:
        raise
    except TierfsError as exc:
        return exc
    return None


def _put_off(txn: WriteTransaction, record: GarbageRecord, error: TierfsError) -> None:
    """Queue a failed deletion for later, with its error."""
    pause_ms = min(_LAST_RETRY_MS, _FIRST_RETRY_MS << min(record.attempts, 16))
    later = replace(record, due_ms=txn.now_ms + pause_ms, attempts=record.attempts + 1, last_error=str(error))
    txn.put(GARBAGE, tables.pair(later.due_ms, later.sequence), later)


def _is_needed(txn: ReadTransaction, record: GarbageRecord) -> bool:
    """Return whether a row wants the marker deleted that tells the versions of an application."""
    marker = batch_markers.parse_name(record.name) if record.tier is Tier.COLD else None
    return marker is not None and batch_markers.is_needed(txn, marker)


def _is_linked(txn: ReadTransaction, record: GarbageRecord) -> bool:
    """Return whether the object that a row wants deleted has a record, so that some chunk needs it."""
    return bool(record.object_id) and txn.get(OBJECTS, tables.u64(record.object_id)) is not None
