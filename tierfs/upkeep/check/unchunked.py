"""Looks for objects that no chunk refers to, but a ledger: those of ledgers whose entries are all empty.

Such a ledger has no byte to check. It is whole while the objects that it was adopted from, or offloaded to, exist in
their size; `ledger verify` also reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words.errors import DataLoss, NotFound, PermissionDenied, Unavailable
from tierfs.base.words.names import printable
from tierfs.base.words.types import LocationId, SegmentId
from tierfs.engine.chunkstore.protocol import ChunkStorage
from tierfs.engine.metadata import empty_ledgers, entries, tables
from tierfs.engine.metadata.message_rows import messages
from tierfs.engine.metadata.records import ObjectRecord
from tierfs.engine.metadata.tables import LEDGERS
from tierfs.engine.metadata.transaction import ReadTransaction
from tierfs.upkeep.check.scrub.copy_reader import Fault

StorageOf = Callable[[LocationId], ChunkStorage]


def unchunked(txn: ReadTransaction) -> Iterator[tuple[SegmentId, ObjectRecord]]:
    """Yield each ledger that has such objects, with their record. A damaged row has none."""
    for key, message in messages(txn, LEDGERS):
        if message is None or not message.offload.driver_properties:
            continue
        segment_id = SegmentId(tables.read_u64(key))
        if (record := of_segment(txn, segment_id)) is not None:
            yield segment_id, record


def of_segment(txn: ReadTransaction, segment_id: SegmentId) -> ObjectRecord | None:
    """Return the record of a ledger's objects that no chunk refers to; None where there are none."""
    try:
        return empty_ledgers.find(txn, entries.find(txn, segment_id))
    except DataLoss:  # the check of the metadata reports it
        return None


@dataclass(frozen=True, slots=True)
class Defect:
    """What is wrong with such objects."""

    why: str
    fault: Fault


def defect(storage_of: StorageOf, record: ObjectRecord) -> Defect | None:
    """Return what is missing, has another size or cannot be reached; None if all is there."""
    try:
        storage = storage_of(record.location_id)
        for name in filter(None, (record.name, record.index_name)):
            what = f"object {printable(name)}"
            try:
                length_bytes = storage.stat(name).length_bytes
            except NotFound:
                return Defect(f"{what}: it is missing", Fault.MISSING)
            if name == record.name and length_bytes != record.stored_bytes:
                text = f"{what}: it has {length_bytes} bytes, its record says {record.stored_bytes}"
                return Defect(text, Fault.DAMAGED)
    except (NotFound, Unavailable, PermissionDenied) as exc:
        return Defect(str(exc), Fault.AWAY)
    return None
