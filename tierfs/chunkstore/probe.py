"""Finding out what a cold tier honours, once, before it is trusted."""

from __future__ import annotations

import uuid
from typing import Protocol, runtime_checkable

from tierfs.chunkstore.protocol import Abilities, BufferSource, ChunkStorage
from tierfs.errors import AlreadyExists

PROBE_DIRECTORY = "probe/"

_FIRST = b"first"
_SECOND = b"second"


@runtime_checkable
class ProbeableStorage(Protocol):
    """A provider whose abilities depend on a server."""

    def probe_abilities(self, name: str) -> Abilities:
        """Find out by experiment on the object `name`; it may be left behind."""
        ...


def probe(storage: ChunkStorage) -> Abilities:
    """What `storage`, a provider and not a decorator around one, honours.

    Works on objects of random names under `probe/` and removes them. Raises what put and delete raise:
    a location that cannot be written cannot be probed.
    """
    name = f"{PROBE_DIRECTORY}{uuid.uuid4().hex}"
    try:
        if isinstance(storage, ProbeableStorage):
            return storage.probe_abilities(name)
        return _probe_put(storage, name)
    finally:
        storage.delete(name)


def _probe_put(storage: ChunkStorage, name: str) -> Abilities:
    """For providers whose puts are all of one kind and travel over no wire."""
    storage.put(name, BufferSource(_FIRST))
    try:
        storage.put(name, BufferSource(_SECOND))
    except AlreadyExists:
        return storage.abilities
    return Abilities(create_only_put=False, create_only_multipart=False, verifies_crc32c=False)
