"""Checks of storage classes: records say in which class an object is, also those of other hosts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from tests.doubles import classed_storage
from tests.simulation.world import World, Wrong
from tierfs.base.words.types import Tier
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.tables import OBJECTS


@contextmanager
def all_readable() -> Iterator[None]:
    """Let everything be readable in the block, as after a thaw of the whole bucket."""
    with patch.object(classed_storage, "is_restored_first", lambda _: False):
        yield


def recorded(metadata: MetadataStore) -> dict[str, str]:
    """Return the class of each cold object of ours, by its records."""
    with metadata.read() as txn:
        ours = [record for _, record in txn.scan(OBJECTS) if record.tier is Tier.COLD and not record.foreign]
    return {record.name: record.archive_class for record in ours}


def classes_are_known(world: World) -> None:
    """A record says the class in which the store has put its object, but for what a rule of the bucket moved."""
    with world.store.metadata.read() as txn:
        if txn.store.archive_left:  # a move of the cold tier, whose records are corrected next
            return
    for name, storage_class in recorded(world.store.metadata).items():
        held = world.storage.inner.objects.get(name)
        if held is not None and name not in world.ruled and held.stored.storage_class != storage_class:
            raise Wrong(f"{name} is {held.stored.storage_class or 'usual'}, and its record says {storage_class!r}")


def same_classes(world: World, other: MetadataStore) -> None:
    """A host that has all that is published knows the classes."""
    mine, theirs = recorded(world.store.metadata), recorded(other)
    wrong = {name for name in mine.keys() & theirs.keys() if mine[name] != theirs[name]}
    if wrong:
        raise Wrong(f"another host says other classes: { {name: (mine[name], theirs[name]) for name in wrong} }")
