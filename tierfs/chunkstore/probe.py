"""Finding out what a cold tier honours, once, before it is trusted."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
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


def probe_reads(storage: ChunkStorage, served: ServedStorage) -> ReadAbilities:
    """What reads of `storage`, which is `served`, may rely on. Works as `probe` does, and raises the same."""
    with _probe_name(storage) as name:
        storage.put(name, BufferSource(_FIRST))
        return served.read_abilities(name)


def probe(storage: ChunkStorage) -> Abilities:
    """What `storage`, a provider and not a decorator around one, honours.

    Works on objects of random names under `probe/` and removes them. Raises what put and delete raise:
    a location that cannot be written cannot be probed.
    """
    with _probe_name(storage) as name:
        if isinstance(storage, ProbeableStorage):
            return storage.probe_abilities(name)
        return _probe_put(storage, name)


@contextmanager
def _probe_name(storage: ChunkStorage) -> Iterator[str]:
    """A name for an object, which is removed at the end."""
    name = f"{PROBE_DIRECTORY}{uuid.uuid4().hex}"
    try:
        yield name
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
