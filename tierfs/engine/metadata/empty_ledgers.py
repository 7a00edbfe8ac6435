"""Closed ledgers whose entries are all empty, and their objects in the cold tier: no chunk refers to these.

They are in the context of the ledger's offload, so that they can be looked for, read and deleted. Of an adopted ledger
it has the names; of one that this store offloaded it has the size of the data object, and the attempt gives the names.
Those are always in the store's own place, also after a move.

Pulsar's offloader refuses a length of 0 (BlobStoreManagedLedgerOffloader.offload). PIP-17 knows no such exception.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tierfs.base.words import units
from tierfs.base.words.errors import DataLoss
from tierfs.base.words.types import LocationId, ObjectId, PayloadEncoding, SegmentKind, Tier
from tierfs.engine.ledger import keys
from tierfs.engine.metadata import entries
from tierfs.engine.metadata.ledger_records import LedgerRecord, OffloadProgress
from tierfs.engine.metadata.records import ObjectRecord, SegmentRecord
from tierfs.engine.metadata.transaction import ReadTransaction

# Properties that are for us alone begin with this: Pulsar would not know them.
OURS = "tierfs."

_LOCATION, _DATA, _INDEX = f"{OURS}location", f"{OURS}data", f"{OURS}index"
_BYTES, _ETAG, _ENCODING = f"{OURS}dataBytes", f"{OURS}dataEtag", f"{OURS}encoding"

# Of an object that this store wrote. Earlier versions do not know it: for them the ledger has no object.
_OWN_BYTES = f"{OURS}ownBytes"

# Entries of the largest such ledger that is offloaded, whose objects have 12 bytes for each. Any writer to the bucket
# can choose the number in a journal, and a recovery would upload them (a guess: Pulsar closes ledgers at 50,000).
MOST_OFFLOADED = 1 << 24


def properties(record: ObjectRecord) -> dict[str, str]:
    """Return the properties that describe the object of an adopted ledger."""
    return {
        _LOCATION: str(record.location_id),
        _DATA: record.name,
        _INDEX: record.index_name,
        _BYTES: str(record.stored_length),
        _ETAG: record.etag,
        _ENCODING: str(int(record.encoding)),
    }


def own_properties(stored_bytes: int) -> dict[str, str]:
    """Return the properties that describe an object of this store, of so many bytes."""
    return {_OWN_BYTES: str(stored_bytes)}


def foreign(recorded: Mapping[str, str]) -> dict[str, str]:
    """Return the properties of a context that its own system would know."""
    return {key: value for key, value in recorded.items() if not key.startswith(OURS)}


def find(txn: ReadTransaction, ledger: LedgerRecord) -> ObjectRecord | None:
    """Return the same as `object_of`, of a store's ledger."""
    return object_of(ledger, txn.store.cold_location_id)


def object_of(ledger: LedgerRecord, own_location: LocationId) -> ObjectRecord | None:
    """Return a record, which is in no table, of the object of a ledger without bytes; None where none is known.

    Raises DataLoss for properties that describe no object.
    """
    recorded = ledger.offload.driver_properties
    if ledger.bytes or not (_DATA in recorded or _OWN_BYTES in recorded):
        return None
    try:
        return _adopted(recorded) if _DATA in recorded else _own(ledger, _number(recorded[_OWN_BYTES]), own_location)
    except (KeyError, ValueError) as exc:
        raise DataLoss(f"ledger {ledger.ledger_id}: its properties describe no object") from exc


def own_names(ledger: LedgerRecord) -> tuple[str, ...]:
    """Return the names of the objects that this store offloaded such a ledger to; empty for any other ledger."""
    uuid, recorded = ledger.offload.uuid, ledger.offload.driver_properties
    if uuid is None or ledger.bytes or _DATA in recorded or _OWN_BYTES not in recorded:
        return ()
    return keys.data_key(uuid, ledger.ledger_id), keys.index_key(uuid, ledger.ledger_id)


def not_offloaded(ledger: LedgerRecord) -> LedgerRecord:
    """Return a ledger without those objects, to be offloaded again; any other one unchanged."""
    return replace(ledger, offload=OffloadProgress()) if own_names(ledger) else ledger


def is_due(txn: ReadTransaction, segment: SegmentRecord) -> bool:
    """Return whether a segment is such a ledger, closed and not offloaded."""
    if segment.kind is not SegmentKind.LEDGER or segment.length or not segment.sealed:
        return False
    is_offloaded = entries.find(txn, segment.id).offload.complete
    return not is_offloaded and 0 < entries.count(txn, segment.id) <= MOST_OFFLOADED


def _adopted(recorded: Mapping[str, str]) -> ObjectRecord:
    return ObjectRecord(
        id=ObjectId(0),
        tier=Tier.COLD,
        location_id=LocationId(_number(recorded[_LOCATION])),
        name=recorded[_DATA],
        length=0,
        etag=recorded[_ETAG],
        foreign=True,
        encoding=PayloadEncoding(_number(recorded[_ENCODING])),
        stored_length=_number(recorded[_BYTES]),
        index_name=recorded[_INDEX],
    )


def _own(ledger: LedgerRecord, stored_bytes: int, location_id: LocationId) -> ObjectRecord | None:
    names = own_names(ledger)
    if not names:
        return None
    return ObjectRecord(
        id=ObjectId(0),
        tier=Tier.COLD,
        location_id=location_id,
        name=names[0],
        length=0,
        encoding=PayloadEncoding.PULSAR_BLOCK,
        stored_length=stored_bytes,
        segment_id=ledger.segment_id,
        index_name=names[1],
    )


def _number(text: str) -> int:
    number = units.decimal(text)
    if number is None:
        raise ValueError(text)
    return number
