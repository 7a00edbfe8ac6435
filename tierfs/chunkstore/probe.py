"""Finding out what a cold tier honours, once, before it is trusted."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

from tierfs.chunkstore.protocol import Abilities, BufferSource, ChunkStorage
from tierfs.errors import AlreadyExists, PermissionDenied

PROBE_DIRECTORY = "probe/"

_KEPT_NAME = f"{PROBE_DIRECTORY}kept"
"""Written again by each probe of a place where nothing can be deleted."""

_FIRST = b"first"
_SECOND = b"second"


@runtime_checkable
class ProbeableStorage(Protocol):
    """A provider whose abilities depend on a server."""

    def probe_abilities(self, name: str) -> Abilities:
        """Find out by experiment on the object `name`; it may be left behind."""
        ...


@dataclass(frozen=True, slots=True)
class ReadAbilities:
    """What a server honours of reads."""

    presigned_ranges: bool | None
    """It serves byte ranges by signed URLs; None where reads do not use them (a setting, or a proxy)."""
    if_match: bool
    """It refuses to read an object whose etag is another than the one named."""


@runtime_checkable
class ServedStorage(Protocol):
    """A provider with a server behind it, which has a clock of its own."""

    def server_time_ms(self) -> int | None:
        """The server's clock to the second, even where it refuses us; None where it does not tell.

        Raises Unavailable when it does not answer.
        """
        ...

    def read_abilities(self, name: str) -> ReadAbilities:
        """Find out by experiment on the object `name`, which exists."""
        ...

    def bucket_rules(self) -> BucketRules:
        """What the bucket does with what is deleted. Raises Unavailable."""
        ...


@dataclass(frozen=True, slots=True)
class BucketRules:
    """What a bucket does with objects that are deleted or overwritten; None where the key may not ask."""

    versioned: bool | None
    """Old versions stay, and are paid for."""
    lock: str | None
    """How long its object lock holds every new object by default; "" without a lock, or a lock without default."""


def probe_reads(storage: ChunkStorage, served: ServedStorage, *, keeps: bool = False) -> ReadAbilities:
    """What reads of `storage`, which is `served`, may rely on. Works as `probe` does, and raises the same."""
    name = _name(keeps=keeps)
    try:
        storage.put(name, BufferSource(_FIRST), create_only=not keeps)
        return served.read_abilities(name)
    finally:
        _removed(storage, name)


def probe(storage: ChunkStorage, *, keeps: bool = False) -> Abilities:
    """What `storage`, a provider and not a wrapper around one, honours.

    Works on objects of random names under `probe/` and removes them; where it is known to keep everything, on one
    object that stays. Raises what put raises: a location that cannot be written cannot be probed.
    """
    name = _name(keeps=keeps)
    deletes = False
    try:
        found = storage.probe_abilities(name) if isinstance(storage, ProbeableStorage) else _probe_put(storage, name)
    finally:
        deletes = _removed(storage, name)
    return replace(found, deletes=deletes)


def _name(*, keeps: bool) -> str:
    return _KEPT_NAME if keeps else f"{PROBE_DIRECTORY}{uuid.uuid4().hex}"


def _removed(storage: ChunkStorage, name: str) -> bool:
    """Remove what a probe wrote; False when that is not allowed."""
    try:
        storage.delete(name)
    except PermissionDenied:
        return False
    return True


def _probe_put(storage: ChunkStorage, name: str) -> Abilities:
    """For providers whose puts are all of one kind and travel over no wire."""
    storage.put(name, BufferSource(_FIRST), create_only=False)
    try:
        storage.put(name, BufferSource(_SECOND))
    except AlreadyExists:
        return Abilities()
    return Abilities(create_only_put=False, create_only_multipart=False, verifies_crc32c=False)
