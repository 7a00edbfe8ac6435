"""Objects of ledgers in a cold tier: the names that Pulsar finds them by, and our copies of their entries.

Pulsar's names begin with a random UUID and lie beside everything else, and a Pulsar cluster may keep its own in the
same place: a name tells the form, what the object says of itself tells whose it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from uuid import UUID

from tierfs import names
from tierfs.chunkstore.protocol import ChunkStorage, StoredObject
from tierfs.metadata import chains
from tierfs.metadata.entries_copy import ENTRIES_PREFIX
from tierfs.metadata.records import ObjectRecord
from tierfs.metadata.tables import LEDGERS
from tierfs.metadata.transaction import ReadTransaction
from tierfs.types import SegmentId, Tier

_FIRST = "0123456789abcdef"
"""What a UUID begins with: one listing each, so that segments and packs are not listed for the sake of ledgers."""


def ledger_objects(storage: ChunkStorage, *, expected: bool = True) -> Iterator[StoredObject]:
    """Copies of entries, and data and index objects of ledgers, whoever wrote them.

    `expected` is False for a store that has no ledger: without a copy of entries, which every offload makes, it
    offloaded none. The sixteen listings are then left out: the root of a bucket may be shared, and large.
    """
    for listed in storage.list(ENTRIES_PREFIX):
        expected = True
        yield listed
    for first in _FIRST if expected else "":
        yield from (listed for listed in storage.list(first) if uuid_of(listed.name))


def has_ledgers(txn: ReadTransaction) -> bool:
    """Whether the store has ledgers that may have objects."""
    return txn.count(LEDGERS.name) > 0


def uuid_of(name: str) -> UUID | None:
    """The attempt in the name of a data or index object; None for other names."""
    key = names.ledger_key(name)
    return None if key is None or key.ledger_id is None else key.uuid


def is_of_ledger(name: str) -> bool:
    """Whether an object has the name of a ledger's."""
    return name.startswith(ENTRIES_PREFIX) or uuid_of(name) is not None


def is_ours(metadata: Mapping[str, str], store_id: str, epoch: int) -> bool:
    """Whether an object of a ledger says that this store wrote it, and no owner after this one."""
    said = metadata.get("epoch", "")
    return metadata.get("store") == store_id and said.isascii() and said.isdigit() and int(said) <= epoch


def attempts(txn: ReadTransaction) -> set[UUID]:
    """Every attempt that a ledger's context names."""
    return {uuid for _, ledger in txn.scan(LEDGERS) if (uuid := ledger.offload.uuid) is not None}


def companions(txn: ReadTransaction) -> dict[str, ObjectRecord]:
    """Names of our objects that belong to another one, and that one: index objects and copies of entries."""
    found: dict[str, ObjectRecord] = {}
    for holder in _holders(txn):
        if holder.index_name and not holder.foreign:
            found[holder.index_name] = holder
        if holder.entries_name:
            found[holder.entries_name] = holder
    return found


def _holders(txn: ReadTransaction) -> Iterator[ObjectRecord]:
    """The cold objects of all ledgers."""
    for _, ledger in txn.scan(LEDGERS):
        for chunk in chains.chunks(txn, SegmentId(ledger.segment_id), Tier.COLD):
            if chunk.object_id:
                yield chains.object_of(txn, chunk)
