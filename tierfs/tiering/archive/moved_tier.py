"""Correct the records after a move of the cold tier, which brings every object into the class of new ones.

The move's commit notes that records are wrong, and the holder corrects them behind it, some hundred per transaction: a
million at once would keep every writer waiting. A holder that died in between has the note, and the next one goes on.
Afterwards the policies move the objects again.

Records are wrong, too, in a place without storage classes: a bucket that was copied there by other means, or recovered
from such a copy. Objects in the archive place are not in the tier, and stay where they are.
"""

from __future__ import annotations

from dataclasses import replace

from tierfs.base.words.types import IN_PLACE, LocationId, ObjectId
from tierfs.engine.metadata import changes, policies, tables
from tierfs.engine.metadata.records import RECORD_VERSION, ObjectRecord
from tierfs.engine.metadata.row_batches import batches
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.tables import OBJECTS
from tierfs.engine.metadata.transaction import ReadTransaction, WriteTransaction

# Rows per transaction: some 10 ms.
_BATCH = 500


def note(txn: WriteTransaction) -> None:
    """Note that no object of the tier is in another class any more."""
    if _has_classes(txn):
        txn.update_store(archive_left=True)


def correct(metadata: MetadataStore, location_id: LocationId) -> None:
    """Correct the records, if a move noted it, or the place has no classes. Idempotent."""
    with metadata.read() as txn:
        right = not _has_classes(txn) or policies.has_classes(policies.location(txn, location_id))
        if not txn.store.archive_left and right:
            return

    def wrong(_: ReadTransaction, rows: list[tuple[bytes, ObjectRecord]]) -> list[ObjectId]:
        return [record.id for _, record in rows if record.archive_class not in ("", IN_PLACE)]

    for ids in batches(metadata.read, OBJECTS, _BATCH, wrong):
        if ids:
            with metadata.write() as txn:
                _correct(txn, ids)
    with metadata.write() as txn:
        txn.update_store(archive_left=False)


def _has_classes(txn: ReadTransaction) -> bool:
    """Return whether records may name a class of the tier."""
    return txn.sums is None or txn.sums.archived_objects > txn.sums.placed_objects


def _correct(txn: WriteTransaction, ids: list[ObjectId]) -> None:
    for object_id in ids:
        record = txn.get(OBJECTS, tables.u64(object_id))
        if record is not None and record.archive_class not in ("", IN_PLACE):
            changes.move_object(txn, replace(record, archive_class="", version=RECORD_VERSION))
