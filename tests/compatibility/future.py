"""Records as a later version would write them: with fields that this one does not know."""

from __future__ import annotations

from google.protobuf.internal.encoder import TagBytes  # type: ignore[import-untyped]

from tierfs.metadata import records_pb2 as pb
from tierfs.metadata.store import MetadataStore
from tierfs.metadata.sums import SUMS_KEY
from tierfs.metadata.tables import ALL_NAMES, OUTBOX_NAME, SEGMENTS

_FIELD = 1999
_VARINT, _BYTES = 0, 2
_VALUE = b"\x2a"

EXTRA = TagBytes(_FIELD, _VARINT) + _VALUE
"""An unknown field of a record."""

_LOCAL, _COLD = 13, 14


def with_extra(database: bytes, value: bytes) -> bytes:
    """The same record with a field more, and one more in each head of a segment's chains."""
    if database == SEGMENTS.name:
        for number in (_LOCAL, _COLD):
            value += TagBytes(number, _BYTES) + bytes([len(EXTRA)]) + EXTRA
    return value + EXTRA


def age(metadata: MetadataStore) -> None:
    """Rewrite every row of a store as a later version would have."""
    with metadata.write() as txn:
        for database in ALL_NAMES:
            for key, value in list(txn.scan_raw(database)):
                changed = _change_with_extra(value) if database == OUTBOX_NAME else with_extra(database, value)
                txn.put_raw(database, key, changed)


def _change_with_extra(value: bytes) -> bytes:
    change = pb.Change.FromString(value)
    body = change.WhichOneof("body")
    if body in ("segment", "directory", "location", "policy"):
        getattr(change, body).MergeFromString(EXTRA)
    for record in (*change.cold_link.chunks, *change.cold_link.objects, *change.cold_link.checksums):
        record.MergeFromString(EXTRA)
    return change.SerializeToString()


def rows_without(metadata: MetadataStore, database: bytes) -> list[bytes]:
    """Keys of rows that lost the field, or never had it. The sums are no record: each commit counts and writes them."""
    with metadata.read() as txn:
        return [key for key, value in txn.scan_raw(database) if EXTRA not in value and key != SUMS_KEY]
