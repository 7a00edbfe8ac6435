"""The objects of an adopted ledger whose entries are all empty: no chunk of it refers to them.

They are in the context of its offload, so that they can be looked for and read. Pulsar offloads no such ledger
(BlobStoreManagedLedgerOffloader.offload refuses a length of 0); an export has them, and so may the streaming form.
"""

from __future__ import annotations

from collections.abc import Mapping

from tierfs.base.words import units
from tierfs.base.words.errors import DataLoss
from tierfs.base.words.types import LocationId, ObjectId, PayloadEncoding, Tier
from tierfs.engine.metadata.ledger_records import LedgerRecord
from tierfs.engine.metadata.records import ObjectRecord

# Properties that are for us alone begin with this: Pulsar would not know them.
OURS = "tierfs."

_LOCATION, _DATA, _INDEX = f"{OURS}location", f"{OURS}data", f"{OURS}index"
_BYTES, _ETAG, _ENCODING = f"{OURS}dataBytes", f"{OURS}dataEtag", f"{OURS}encoding"


def properties(record: ObjectRecord) -> dict[str, str]:
    """Return the properties that describe the object of such a ledger."""
    return {
        _LOCATION: str(record.location_id),
        _DATA: record.name,
        _INDEX: record.index_name,
        _BYTES: str(record.stored_length),
        _ETAG: record.etag,
        _ENCODING: str(int(record.encoding)),
    }


def foreign(recorded: Mapping[str, str]) -> dict[str, str]:
    """Return the properties of a context that its own system would know."""
    return {key: value for key, value in recorded.items() if not key.startswith(OURS)}


def object_of(ledger: LedgerRecord) -> ObjectRecord | None:
    """Return a record, which is in no table, of the object of a ledger without bytes; None where none is known.

    Raises DataLoss for properties that describe no object.
    """
    recorded = ledger.offload.driver_properties
    if _DATA not in recorded or ledger.bytes:
        return None
    try:
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
    except (KeyError, ValueError) as exc:
        raise DataLoss(f"ledger {ledger.ledger_id}: its properties describe no object") from exc


def _number(text: str) -> int:
    number = units.decimal(text)
    if number is None:
        raise ValueError(text)
    return number
