"""The objects of ledgers in a location, and whose they are.

Pulsar's names begin with a random UUID and lie at the root of the location, where a Pulsar cluster may keep its own
objects too: the name gives the form, the user metadata gives the owner.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from uuid import UUID

from tierfs.base.words import names, units
from tierfs.base.words.types import SegmentId, Tier
from tierfs.engine.chunkstore.protocol import ChunkStorage, StoredObject
from tierfs.engine.metadata import chains, empty_ledgers
from tierfs.engine.metadata.entries_object import ENTRIES_PREFIX
from tierfs.engine.metadata.epoch_numbers import MAX_EPOCH
from tierfs.engine.metadata.records import ObjectRecord
from tierfs.engine.metadata.tables import LEDGERS
from tierfs.engine.metadata.transaction import ReadTransaction

_COPY = re.compile(rf"{ENTRIES_PREFIX}entries-[0-9]{{1,20}}-e(?P<epoch>[0-9]{{1,20}})-(?P<attempt>[0-9a-f]{{32}})")

# First characters of UUIDs: one listing each, so that segments and packs are not listed to find ledgers.
_FIRST = "0123456789abcdef"


def ledger_objects(storage: ChunkStorage, *, expected: bool = True) -> Iterator[StoredObject]:
    """Yield the copies of entries, and the data and index objects of ledgers, of every writer.

    `expected` is False for a store that has no ledger: without a copy of entries, which every offload makes, it has
    offloaded none. The sixteen listings are then skipped: the root of a bucket may be shared, and large.
    """
    for listed in storage.list(ENTRIES_PREFIX):
        expected = True
        yield listed
    for first in _FIRST if expected else "":
        yield from (listed for listed in storage.list(first) if uuid_of(listed.name))


def has_ledgers(txn: ReadTransaction) -> bool:
    """Return whether the store has ledgers that may have objects."""
    return txn.count(LEDGERS.name) > 0


def uuid_of(name: str) -> UUID | None:
    """Return the attempt in the name of a data or index object; None for other names."""
    key = names.ledger_key(name)
    return None if key is None or key.ledger_id is None else key.uuid


def copy_of(name: str) -> tuple[UUID, int] | None:
    """Return the attempt and the epoch in the name of a copy of entries; None for other names."""
    match = _COPY.fullmatch(name)
    epoch = None if match is None else units.decimal(match["epoch"], MAX_EPOCH)
    return None if match is None or epoch is None else (UUID(match["attempt"]), epoch)


def is_of_ledger(name: str) -> bool:
    """Return whether a name is that of an object of a ledger."""
    return name.startswith(ENTRIES_PREFIX) or uuid_of(name) is not None


def is_ours(metadata: Mapping[str, str], store_id: str, epoch: int) -> bool:
    """Return whether an object of a ledger was written by this store, at the latest in this epoch, by its metadata."""
    return metadata.get("store") == store_id and units.decimal(metadata.get("epoch", ""), epoch) is not None


def attempts(txn: ReadTransaction) -> set[UUID]:
    """Return every attempt that a ledger's context names."""
    return {uuid for _, ledger in txn.scan(LEDGERS) if (uuid := ledger.offload.uuid) is not None}


def unchunked_names(txn: ReadTransaction) -> set[str]:
    """Return the names of our objects that no record of an object has: those of ledgers of empty entries."""
    return {name for _, ledger in txn.scan(LEDGERS) for name in empty_ledgers.own_names(ledger)}


def companions(txn: ReadTransaction) -> dict[str, ObjectRecord]:
    """Return our index objects and copies of entries by name, each with the data object that it belongs to."""
    data_objects: dict[str, ObjectRecord] = {}
    for record in _records(txn):
        if record.index_name and not record.foreign:
            data_objects[record.index_name] = record
        if record.entries_name:
            data_objects[record.entries_name] = record
    return data_objects


def _records(txn: ReadTransaction) -> Iterator[ObjectRecord]:
    """Yield the cold objects of all ledgers."""
    for _, ledger in txn.scan(LEDGERS):
        for chunk in chains.chunks(txn, SegmentId(ledger.segment_id), Tier.COLD):
            if chunk.object_id:
                yield chains.object_of(txn, chunk)
