"""Probe the guarantees of a cold tier, once, before relying on them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Protocol, runtime_checkable

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words.errors import AlreadyExists, InvalidRequest, NotFound, PermissionDenied
from tierfs.base.words.types import MIB
from tierfs.base.words.units import format_size
from tierfs.engine.chunkstore.protocol import Abilities, BufferSource, ChunkStorage, supports_of

PROBE_DIRECTORY = "probe/"

# Overwritten by each probe of a location that cannot delete.
_KEPT_NAME = f"{PROBE_DIRECTORY}kept"

# Overwritten by each trace, as one may be left by a process that was killed.
_TRACE_NAME = f"{PROBE_DIRECTORY}trace"

# An entry of the journal and a part of a checkpoint aim at 4 MiB; four times that for what goes over (a guess).
LEAST_OBJECT_BYTES = 16 * MIB

_FIRST = b"first"
_SECOND = b"second"


@runtime_checkable
class ProbeableStorage(Protocol):
    """A provider whose abilities depend on a server."""

    def probe_abilities(self, name: str) -> Abilities:
        """Find out by experiment on the object `name`, which may remain."""
        ...


@dataclass(frozen=True, slots=True)
class ReadAbilities:
    """Read guarantees of a server."""

    presigned_ranges: bool | None
    """It serves byte ranges by signed URLs; None if reads do not use them (a setting, or a proxy)."""
    if_match: bool
    """It refuses a read whose If-Match names another etag than the object's."""


@dataclass(frozen=True, slots=True)
class Traits:
    """How a place does what not every place can, in words for people; "" where it cannot."""

    create_only: str = ""
    """Refuse a name that is taken, whoever writes at the same time."""
    joins: str = ""
    """Make one object of several parts that were written side by side."""
    checksum: str = ""
    """Notice bytes that were damaged on their way to it."""


@runtime_checkable
class DescribedStorage(Protocol):
    """A provider of many kinds of places."""

    @property
    def traits(self) -> Traits:
        """By which means the place does what not every place can."""
        ...


@runtime_checkable
class ServedStorage(Protocol):
    """A provider that talks to a server with a clock of its own."""

    def server_time_ms(self) -> int | None:
        """Return the server's clock to the second, even from a refusal; None if the answer has no date.

        Raises Unavailable without an answer.
        """
        ...

    def read_abilities(self, name: str) -> ReadAbilities:
        """Find out by experiment on the object `name`, which exists."""
        ...

    def lacking(self, name: str) -> Sequence[str]:
        """Find out on the object `name`, which may remain, what new objects lack of what the settings ask for.

        Each as setting and kind of upload; empty if nothing is asked for. Raises what put raises where it is refused.
        """
        ...

    def bucket_rules(self) -> BucketRules:
        """Return the bucket's rules for deleted and overwritten objects. Raises Unavailable."""
        ...


def server_time_ms(bare: ChunkStorage) -> int | None:
    """Return the time of a provider's server; None where there is no server. Raises Unavailable."""
    return bare.server_time_ms() if isinstance(bare, ServedStorage) else None


@dataclass(frozen=True, slots=True)
class BucketRules:
    """A bucket's rules for objects that are deleted or overwritten; None if the key may not ask."""

    versioned: bool | None
    """Old versions stay, and cost money."""
    lock: str | None
    """Default retention of its object lock for new objects; "" without a lock, or a lock without a default."""


def probe_reads(storage: ChunkStorage, served: ServedStorage, *, keeps: bool = False) -> ReadAbilities:
    """Return the read guarantees of `storage`, which is `served`. Works as `probe` does, and raises the same."""
    name = _name(keeps=keeps)
    try:
        storage.put(name, BufferSource(_FIRST), create_only=not keeps)
        return served.read_abilities(name)
    finally:
        _removed(storage, name)


def probe_kept(storage: ChunkStorage, served: ServedStorage, *, keeps: bool = False) -> Sequence[str]:
    """Return what `storage`, which is `served`, does not keep as the settings ask. Works and raises as `probe` does."""
    name = _name(keeps=keeps)
    try:
        return served.lacking(name)
    finally:
        _removed(storage, name)


def probe(storage: ChunkStorage, *, keeps: bool = False) -> Abilities:
    """Return the guarantees of `storage`, a provider and not a wrapper around one.

    Works on objects of random names under `probe/` and removes them; with `keeps`, for a location known to keep
    everything, on one object that stays. Raises what put raises: a location that cannot be written cannot be probed,
    and one whose provider states that it cannot is refused before anything is sent.
    """
    require_writable(storage)
    supports = supports_of(storage)
    name = _name(keeps=keeps or not supports.deletes)
    deletes = False
    try:
        probed = storage.probe_abilities(name) if isinstance(storage, ProbeableStorage) else _probe_put(storage, name)
    finally:
        deletes = supports.deletes and _removed(storage, name)
    # One process cannot find out by a probe what another does at the same time: there the statement counts.
    return replace(
        probed,
        create_only_put=probed.create_only_put and supports.create_only,
        deletes=deletes,
        max_object_bytes=supports.max_object_bytes,
    )


def require_writable(storage: ChunkStorage) -> None:
    """Raise PermissionDenied for a place whose provider states that nothing can be written there; sends nothing.

    Raises InvalidRequest where the objects of a journal are too large for it.
    """
    most_bytes = supports_of(storage).max_object_bytes
    if 0 < most_bytes < LEAST_OBJECT_BYTES:
        raise InvalidRequest(
            f"{storage!r} stores objects of at most {format_size(most_bytes)}: "
            f"the journal of a store needs {format_size(LEAST_OBJECT_BYTES)}",
            remedy="choose another place",
        )
    if not supports_of(storage).writes:
        raise PermissionDenied(
            f"{storage!r} can only be read, so that no store can own it",
            remedy="choose another place; to read what is there: tierfs adopt, or tierfs replica",
        )


@dataclass(frozen=True, slots=True)
class Trace:
    """An object in one place that is looked for in another: where it is found, both are one."""

    token: bytes

    def is_at(self, storage: ChunkStorage) -> bool:
        """Return whether a storage shows it."""
        return self._is(storage, _TRACE_NAME)

    def is_below(self, storage: ChunkStorage, name: str, others: Sequence[str]) -> bool:
        """Return whether the object `name`, deeper in a storage, is it or stands beside it: its place lies inside.

        `others`: objects that are put into the same place, and may be listed before it.
        """
        return any(
            name.endswith(f"/{other}") and self._is(storage, name.removesuffix(other) + _TRACE_NAME)
            for other in (_TRACE_NAME, *others)
        )

    def _is(self, storage: ChunkStorage, name: str) -> bool:
        try:
            if storage.stat(name).length_bytes != len(self.token):
                return False
            there = bytearray(len(self.token))
            storage.read_into(name, 0, memoryview(there))
        except NotFound:
            return False
        return there == self.token


@contextmanager
def trace(storage: ChunkStorage) -> Iterator[Trace]:
    """Put a trace for as long as the block lasts; it stays where nothing can be deleted. Raises what put raises."""
    made = Trace(uuid.uuid4().bytes)
    storage.put(_TRACE_NAME, BufferSource(made.token), create_only=False)
    try:
        yield made
    finally:
        _removed(storage, _TRACE_NAME)


def _name(*, keeps: bool) -> str:
    return _KEPT_NAME if keeps else f"{PROBE_DIRECTORY}{uuid.uuid4().hex}"


def _removed(storage: ChunkStorage, name: str) -> bool:
    """Remove the object a probe wrote; return False when that is not allowed."""
    try:
        storage.delete(name)
    except PermissionDenied:
        return False
    return True


def _probe_put(storage: ChunkStorage, name: str) -> Abilities:
    """Probe a provider whose puts are all of one kind and cross no network."""
    storage.put(name, BufferSource(_FIRST), create_only=False)
    try:
        storage.put(name, BufferSource(_SECOND))
    except AlreadyExists:
        return Abilities()
    return Abilities(create_only_put=False, create_only_multipart=False, verifies_crc32c=False)
