"""Checks the records of objects in one pass, and keeps in a table what the other checks need of each."""

from __future__ import annotations

from collections.abc import Iterator

from tierfs.base.words.types import Tier
from tierfs.engine.metadata import tables
from tierfs.engine.metadata.message_rows import messages
from tierfs.engine.metadata.record_parts import PLACED_VERSION
from tierfs.engine.metadata.tables import OBJECTS
from tierfs.engine.metadata.transaction import ReadTransaction
from tierfs.upkeep.check.findings import RECOVER, Finding, Kind, Mend, Severity
from tierfs.upkeep.check.object_table import ObjectTable


def load_objects(txn: ReadTransaction, locations: set[int], table: ObjectTable) -> Iterator[Finding]:
    """Fill the table and yield damaged records. `locations` are the ids that exist."""
    tiers = {int(tier) for tier in Tier}
    for key, record in messages(txn, OBJECTS):
        if record is None or record.id != tables.read_u64(key) or record.tier not in tiers or not record.name:
            yield _damaged(key)
            continue
        table.add(record)
        cold = record.tier == Tier.COLD
        if record.version > PLACED_VERSION or (cold and not record.etag):
            yield _damaged(key)
        if cold and record.location_id not in locations:
            yield Finding(
                Kind.LOCATION,
                Severity.DAMAGE,
                f"object {record.id}",
                f"it is in the unknown location {record.location_id}",
                remedy=RECOVER,
                object_id=record.id,
            )


def unused_and_miscounted(table: ObjectTable) -> Iterator[Finding]:
    """Yield objects without chunks and wrong reference counts, after the chunks were counted."""
    for number, object_id in enumerate(table.ids):
        counted, recorded = table.counted[number], table.recorded[number]
        if not counted:
            yield Finding(
                Kind.OBJECT_UNUSED,
                Severity.DAMAGE,
                f"object {object_id}",
                "no chunk points to it",
                mend=Mend.COLLECT_OBJECT,
                object_id=object_id,
            )
        elif counted != recorded:
            yield Finding(
                Kind.REFERENCES,
                Severity.DAMAGE,
                f"object {object_id}",
                f"{counted} chunks point to it, its record says {recorded}",
                mend=Mend.RECOUNT_REFERENCES,
                object_id=object_id,
            )


def _damaged(key: bytes) -> Finding:
    return Finding(
        Kind.RECORD,
        Severity.DAMAGE,
        f"object {int.from_bytes(key[: tables.U64_BYTES], 'big')}",
        "its record is damaged",
        remedy=RECOVER,
        row=(OBJECTS.name, key),
    )
