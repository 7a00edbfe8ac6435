"""Collect: delete garbage that is due, once the journal no longer names it (invariant 4).

A row goes only after its file or object is gone; deleting twice is harmless. What fails is tried again
later and stays listed with its error, never dropped.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import islice

from tierfs.chunkstore.chunkfiles import ChunkFiles
from tierfs.chunkstore.protocol import ChunkStorage
from tierfs.errors import Fenced, PermissionDenied, TierfsError, Unavailable
from tierfs.metadata import chains, fence, keys, locations
from tierfs.metadata.records import GarbageRecord
from tierfs.metadata.store import MetadataStore
from tierfs.metadata.tables import GARBAGE, OBJECTS
from tierfs.metadata.transaction import ReadTransaction
from tierfs.types import LocationId, Tier

log = logging.getLogger(__name__)

_BATCH_ROWS = 1000
_FIRST_RETRY_MS = 60 * 1000
_LAST_RETRY_MS = 6 * 3600 * 1000
"""A deletion that fails is tried after a minute, then twice as late each time, up to six hours."""


@dataclass(frozen=True, slots=True)
class Collected:
    """What a collection did."""

    deleted: int = 0
    bytes: int = 0
    failed: int = 0
    aborted: int = 0
    """Dead uploads."""

    def plus(self, other: Collected) -> Collected:
        """Both together."""
        return Collected(
            self.deleted + other.deleted,
            self.bytes + other.bytes,
            self.failed + other.failed,
            self.aborted + other.aborted,
        )


class Collector:
    """Deletes garbage. Cold objects are the holder's business; local files anybody's."""

    def __init__(
        self,
        metadata: MetadataStore,
        files: ChunkFiles,
        storage_of: Callable[[LocationId], ChunkStorage],
        require_ownership: Callable[[], None] | None = None,
    ) -> None:
        """`require_ownership` makes certain that the bucket is ours (Publisher) before cold objects go.

        Without it they stay.
        """
        self._metadata = metadata
        self._files = files
        self.storage_of = storage_of
        self._require_ownership = require_ownership
        self.deleting = threading.Lock()
        """Held while rows are looked at and what they name is deleted; who takes it keeps garbage from going."""

    def is_due(self, tier: Tier) -> bool:
        """Whether a collection of this tier's garbage would try to delete something."""
        return any(record.tier is tier for _, record in self._due(b"", (tier,))[0])

    def collect(self, *, tiers: tuple[Tier, ...] = tuple(Tier)) -> Collected:
        """Delete what is due in these tiers. Failures are logged, counted and put off.

        Raises Fenced, with nothing of the batch deleted, when the bucket is another store's.
        """
        total, after = Collected(), b""
        while True:
            with self.deleting:
                due, after = self._due(after, tiers)
                cold = any(record.tier is Tier.COLD for _, record in due)
                uncertain = self._uncertain() if cold else None
                for key, record in due:
                    total = self._delete(total, key, record, uncertain if record.tier is Tier.COLD else None)
            if not after:
                return total

    def _due(self, after: bytes, tiers: tuple[Tier, ...]) -> tuple[list[tuple[bytes, GarbageRecord]], bytes]:
        """The next batch of rows that may go, and the key to go on behind; empty at the end."""
        now_ms = self._metadata.clock.now_ms()
        with self._metadata.read() as txn:
            fence.require_owner(txn.store)
            published = txn.store.journal.published_sequence
            rows = list(islice(txn.scan(GARBAGE, after + b"\0" if after else b""), _BATCH_ROWS))
            void = [key for key, record in rows if _is_linked(txn, record)]
        due = [
            (key, record)
            for key, record in rows
            if record.due_ms <= now_ms
            and record.after_sequence <= published
            and record.tier in tiers
            and key not in void
        ]
        self._forget(void)
        more = len(rows) == _BATCH_ROWS and rows[-1][1].due_ms <= now_ms
        return due, rows[-1][0] if more else b""

    def _forget(self, void: list[bytes]) -> None:
        """Drop rows of objects that were linked again, as by loading a segment's dump: they are no garbage."""
        if void:
            with self._metadata.write() as txn:
                for key in void:
                    txn.delete(GARBAGE.name, key)

    def _uncertain(self) -> TierfsError | None:
        """Why nobody can say now whose the bucket is; None when it is ours."""
        if self._require_ownership is None:
            return Unavailable("only the store's holder deletes cold objects")
        try:
            self._require_ownership()
        except Fenced:
            raise
        except TierfsError as exc:
            return exc
        return None

    def _delete(self, total: Collected, key: bytes, record: GarbageRecord, uncertain: TierfsError | None) -> Collected:
        try:
            if uncertain is not None:
                raise uncertain
            if record.tier is Tier.COLD:
                self._delete_object(record)
            elif record.object_id:
                self._files.delete(record.name)
            elif not self._delete_orphan(key, record):
                return total
        except TierfsError as exc:
            log.info("cannot delete %s yet: %s", record.name, exc)
            self._put_off(key, record, exc)
            return total.plus(Collected(failed=1))
        with self._metadata.write() as txn:
            txn.delete(GARBAGE.name, key)
        return total.plus(Collected(deleted=1, bytes=record.length))

    def _delete_orphan(self, key: bytes, record: GarbageRecord) -> bool:
        """Delete a file that an older tierfs took for an orphan, while nothing can commit; False when it was
        committed since: then the row goes and the file stays.
        """
        with self._metadata.write() as txn:
            if chains.objects_named(txn, {record.name}):
                txn.delete(GARBAGE.name, key)
                return False
            self._files.delete(record.name)
            return True

    def _delete_object(self, record: GarbageRecord) -> None:
        """Delete a cold object of ours. Raises PermissionDenied in a place of others, where nothing goes."""
        with self._metadata.read() as txn:
            location = locations.location(txn, record.location_id)
        if not location.writable:
            raise PermissionDenied(
                f"{record.name} is not deleted: {location.url} is not ours", remedy="run: tierfs fsck"
            )
        self.storage_of(record.location_id).delete(record.name)

    def _put_off(self, key: bytes, record: GarbageRecord, error: TierfsError) -> None:
        pause_ms = min(_LAST_RETRY_MS, _FIRST_RETRY_MS << min(record.attempts, 16))
        with self._metadata.write() as txn:
            later = replace(record, due_ms=txn.now_ms + pause_ms, attempts=record.attempts + 1, last_error=str(error))
            txn.delete(GARBAGE.name, key)
            txn.put(GARBAGE, keys.pair(later.due_ms, later.sequence), later)


def _is_linked(txn: ReadTransaction, record: GarbageRecord) -> bool:
    """Whether the object that a row wants deleted has a record, so that some chunk needs it."""
    return bool(record.object_id) and txn.get(OBJECTS, keys.u64(record.object_id)) is not None
