"""A cold tier that was copied: the same bytes with other etags, and no user metadata."""

from __future__ import annotations

from dataclasses import replace

from tests.stores import TestStore
from tierfs.base.words.types import Tier
from tierfs.engine.chunkstore.memory import MemoryStorage
from tierfs.engine.metadata.tables import OBJECTS

SUFFIX = "-copied"


def copy_tier(storage: object, suffix: str = SUFFIX) -> None:
    """Make a copy of a storage in memory, or of one within a double; `suffix` is appended to each etag."""
    storage = getattr(storage, "inner", storage)
    assert isinstance(storage, MemoryStorage)
    for name, held in list(storage.objects.items()):
        stored = replace(held.stored, etag=held.stored.etag + suffix, metadata={})
        storage.objects[name] = replace(held, stored=stored)


def recorded_etags(store: TestStore) -> set[str]:
    """Return the etags of the cold objects' records."""
    with store.metadata.read() as txn:
        return {holder.etag for _, holder in txn.scan(OBJECTS) if holder.tier is Tier.COLD}


def all_adopted(store: TestStore) -> bool:
    """Return whether every record has the etag of the copy."""
    return all(etag.endswith(SUFFIX) for etag in recorded_etags(store))
