"""Checks the superblock and the small databases: counters, policies, locations, intents, garbage, outbox."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.options.policy import check_stored
from tierfs.base.words import object_names
from tierfs.base.words.errors import DataLoss, InvalidRequest
from tierfs.base.words.names import printable
from tierfs.base.words.types import Tier
from tierfs.engine.chunkstore import local_files
from tierfs.engine.metadata import batches, tables
from tierfs.engine.metadata.message_rows import messages
from tierfs.engine.metadata.records import RECORD_VERSION
from tierfs.engine.metadata.sums import recount
from tierfs.engine.metadata.tables import (
    BATCHES,
    DIRECTORIES,
    GARBAGE,
    INTENTS,
    LOCATIONS,
    OBJECTS,
    OUTBOX_NAME,
    POLICIES,
    REQUESTS,
    SEGMENTS,
    TOUCHES,
    Table,
)
from tierfs.engine.metadata.transaction import ReadTransaction
from tierfs.upkeep.check.findings import RECOVER, Finding, Kind, Mend, Severity
from tierfs.upkeep.check.object_table import ObjectTable


@dataclass(slots=True)
class Counted:
    """The lowest valid value of each counter."""

    next_id: int = 0
    next_outbox: int = 0
    next_garbage: int = 0
    next_change: int = 0
    next_request: int = 0


def load_locations(txn: ReadTransaction) -> set[int]:
    """Return the ids of the locations that exist."""
    return {int.from_bytes(key, "big") for key, record in messages(txn, LOCATIONS) if record is not None}


def check_locations(txn: ReadTransaction, locations: set[int]) -> Iterator[Finding]:
    """Check that location records are sound and that the location of offload exists."""
    for key, record in messages(txn, LOCATIONS):
        if record is None or tables.u32(record.id) != key or not record.url:
            yield _damaged(LOCATIONS, key, f"location {int.from_bytes(key, 'big')}")
    cold = txn.store.cold_location_id
    if cold and cold not in locations:
        text = f"offload writes to the unknown location {cold}"
        yield Finding(Kind.LOCATION, Severity.DAMAGE, "superblock", text, remedy=RECOVER)


def check_policies(txn: ReadTransaction) -> Iterator[Finding]:
    """Check that settings belong to a directory or segment and can be parsed."""
    for key, record in messages(txn, POLICIES):
        subject = f"policy of {int.from_bytes(key, 'big')}"
        if record is None or tables.u64(record.target_id) != key:
            yield _damaged(POLICIES, key, subject)
            continue
        if not any(txn.get_raw(table.name, key) for table in (DIRECTORIES, SEGMENTS)):
            text = "no directory or segment has this number"
            row = (POLICIES.name, key)
            yield Finding(Kind.POLICY, Severity.DAMAGE, subject, text, mend=Mend.DROP_ROW, row=row)
        try:
            check_stored(record.settings)
        except (InvalidRequest, ValueError) as exc:
            yield Finding(Kind.POLICY, Severity.DAMAGE, subject, str(exc), remedy="tierfs config PATH NAME=", row=None)


def check_intents(txn: ReadTransaction, table: ObjectTable, locations: set[int]) -> Iterator[Finding]:
    """Check that intents are sound and that none names an existing object: a holder would delete it."""
    for key, record in messages(txn, INTENTS):
        subject = f"intent {key.decode(errors='replace')}"
        row = (INTENTS.name, key)
        if record is None or record.attempt.encode() != key:
            yield _damaged(INTENTS, key, subject)
        elif record.location_id not in locations:
            text = f"location {record.location_id} is unknown"
            yield Finding(Kind.INTENT, Severity.DAMAGE, subject, text, mend=Mend.DROP_ROW, row=row)
        elif not (object_names.is_ours(record.name) or object_names.is_job(record.name)):
            text = f"it refers to {printable(record.name)}, which is not a tierfs name"
            yield Finding(Kind.INTENT, Severity.DAMAGE, subject, text, mend=Mend.DROP_ROW, row=row)
        elif next(table.names[Tier.COLD].find(record.name), None) is not None:
            yield Finding(
                Kind.INTENT,
                Severity.DAMAGE,
                subject,
                f"it refers to an object in use, {record.name}",
                mend=Mend.DROP_ROW,
                row=row,
            )


def check_garbage(txn: ReadTransaction, table: ObjectTable, counted: Counted) -> Iterator[Finding]:
    """Check that rows of garbage are sound and that none names an existing object."""
    for key, record in messages(txn, GARBAGE):
        subject = f"garbage {int.from_bytes(key[tables.U64_BYTES :], 'big')}"
        row = (GARBAGE.name, key)
        if record is None or tables.pair(record.due_ms, record.sequence) != key or record.tier not in iter(Tier):
            yield _damaged(GARBAGE, key, subject)
            continue
        counted.next_garbage = max(counted.next_garbage, record.sequence + 1)
        if not _is_ours(record):
            text = f"it refers to {printable(record.name)}, which is not a tierfs name"
            yield Finding(Kind.GARBAGE, Severity.DAMAGE, subject, text, mend=Mend.DROP_ROW, row=row)
        elif next(table.names[Tier(record.tier)].find(record.name), None) is not None:
            yield Finding(
                Kind.GARBAGE,
                Severity.DAMAGE,
                subject,
                f"it refers to an object in use, {record.name}",
                mend=Mend.DROP_ROW,
                row=row,
            )


def _is_ours(record: Any) -> bool:
    """Return whether a row of garbage names what a store may delete."""
    if record.tier == Tier.LOCAL:
        return local_files.NAME.fullmatch(record.name) is not None
    return object_names.is_ours(record.name)


def check_batches(txn: ReadTransaction) -> Iterator[Finding]:
    """Check that rows of batches are sound: one that cannot be found would let its batch be committed twice."""
    for key, record in messages(txn, BATCHES):
        subject = f"batch {key.hex()}"
        try:
            right = None if record is None else batches.key_of(record)
        except DataLoss:
            right = None
        if right is None or (right != key and txn.get_raw(BATCHES.name, right) is None):
            yield _damaged(BATCHES, key, subject)
        elif right != key:
            text, row = "it exists under its own key too", (BATCHES.name, key)
            yield Finding(Kind.RECORD, Severity.DAMAGE, subject, text, mend=Mend.DROP_ROW, row=row)


def check_outbox(txn: ReadTransaction, counted: Counted) -> Iterator[Finding]:
    """Check that rows follow each other from the last published one to the next number to be given."""
    expected = txn.store.journal.published_sequence + 1
    for key, data in txn.scan_raw(OUTBOX_NAME):
        sequence = tables.read_u64(key)
        if sequence < expected:
            text = f"row {sequence} is published already"
            row = (OUTBOX_NAME, key)
            yield Finding(Kind.OUTBOX, Severity.DAMAGE, "outbox", text, mend=Mend.DROP_ROW, row=row)
            continue
        if sequence > expected:
            yield _outbox_gap(expected, sequence)
        if not data:
            yield _outbox_gap(sequence, sequence + 1)
        expected = sequence + 1
    counted.next_outbox = expected
    if expected < txn.store.next_outbox:
        yield _outbox_gap(expected, txn.store.next_outbox)


def check_counters(txn: ReadTransaction, counted: Counted) -> Iterator[Finding]:
    """Check that each counter of the superblock is higher than every number given."""
    for database, name in ((TOUCHES.name, "next_change"), (REQUESTS.name, "next_request")):
        setattr(counted, name, _after_last(txn, database))
    store = txn.store
    for name in Counted.__slots__:
        recorded, least = getattr(store, name), getattr(counted, name)
        if recorded < least:
            text = f"{name} is {recorded}, but {least - 1} is already in use"
            yield Finding(Kind.COUNTER, Severity.DAMAGE, "superblock", text, mend=Mend.RAISE_COUNTERS)
    if store.version > RECORD_VERSION or not store.store_id:
        yield Finding(Kind.RECORD, Severity.DAMAGE, "superblock", "its record is damaged", remedy=RECOVER)
    if store.journal.published_sequence >= store.next_outbox:
        text = "it counts more changes in the journal than were ever queued"
        yield Finding(Kind.OUTBOX, Severity.DAMAGE, "superblock", text, mend=Mend.RAISE_COUNTERS)


def check_sums(txn: ReadTransaction) -> Iterator[Finding]:
    """Check that the sums shown by `status` are those of the rows."""
    kept = txn.sums
    if kept is None:
        return  # a store of an older tierfs: its next commits count its rows
    right = recount(txn.scan_raw)
    for field in fields(right):
        recorded, counted = getattr(kept, field.name), getattr(right, field.name)
        if recorded != counted:
            text = f"{field.name} is {recorded}, but the rows add up to {counted}"
            yield Finding(Kind.SUMS, Severity.DAMAGE, "sums", text, mend=Mend.RECOUNT_SUMS)


def least_counters(txn: ReadTransaction) -> dict[str, int]:
    """Return for each counter of the superblock the value after the highest number in any record."""
    highest = 0
    for key, directory in messages(txn, DIRECTORIES):
        highest = max(highest, tables.read_u64(key), 0 if directory is None else directory.inode)
    for key, segment in messages(txn, SEGMENTS):
        highest = max(highest, tables.read_u64(key), 0 if segment is None else max(segment.inode, segment.commit_id))
    last = txn.last_key(OBJECTS.name)
    sequences = (record.sequence for _, record in messages(txn, GARBAGE) if record is not None)
    return {
        "next_id": max(highest, tables.read_u64(last) if last is not None else 0) + 1,
        "next_outbox": max(_after_last(txn, OUTBOX_NAME), txn.store.journal.published_sequence + 1),
        "next_garbage": max(sequences, default=0) + 1,
        "next_change": _after_last(txn, TOUCHES.name),
        "next_request": _after_last(txn, REQUESTS.name),
    }


def _after_last(txn: ReadTransaction, database: bytes) -> int:
    last = txn.last_key(database)
    return 0 if last is None else tables.read_u64(last) + 1


def _outbox_gap(first: int, end: int) -> Finding:
    text = f"changes {first} to {end - 1} are missing: the journal will not contain them"
    return Finding(Kind.OUTBOX, Severity.DAMAGE, "outbox", text, mend=Mend.WRITE_CHECKPOINT)


def _damaged(table: Table[Any], key: bytes, subject: str) -> Finding:
    return Finding(
        Kind.RECORD, Severity.DAMAGE, subject, "its record is damaged", remedy=RECOVER, row=(table.name, key)
    )
