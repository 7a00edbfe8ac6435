"""Policies: settings of directories and segments that inherit downwards, and their defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tierfs.errors import InvalidRequest
from tierfs.types import MIB, ReadPriority

MAX_OBJECT_BYTES = 64 << 30
"""Of a chunk and of an object: 8192 parts of 8 MiB, and 2 MiB of checksums, which one change of the journal holds."""


@dataclass(frozen=True, slots=True)
class Policy:
    """The settings in force for one segment. Sizes in bytes, times in seconds."""

    chunk_bytes: int = 64 * MIB
    """Where the active chunk rolls. Bigger chunks cost fewer objects and records, and evict later."""
    object_bytes: int = 64 * MIB
    """Largest object an offload makes from neighbouring sealed chunks."""
    chunk_age_s: int = 600
    """How old the active chunk gets before it ends, so that a slow segment is cold in time too."""
    offload_after_s: int | None = 0
    """How long an ended chunk waits before it is offloaded; more joins small neighbours into one object. None: until a
    command or the disk wants it, or a ledger `offload_above_bytes`."""
    offload_above_bytes: int | None = None
    """How many bytes of a managed ledger may be on this disk alone before its oldest closed ledgers are offloaded."""
    deletion_lag_s: int | None = 4 * 3600
    """How long local bytes stay after they are cold, so that fresh data is read locally; None: until room is wanted."""
    seal_bytes: int | None = None
    """Length at which a segment is sealed and continued in its successor; None: it grows without end."""
    seal_age_s: int | None = None
    """How long after its first byte a segment is sealed and continued in its successor."""
    ledger_entries: int | None = None
    """Entries after which a ledger of a managed ledger is closed; besides these, seal_bytes and seal_age close it."""
    retention_age_s: int | None = None
    """How long bytes are kept after they were written; None: for ever."""
    retention_bytes: int | None = None
    """How many of a stream's newest bytes are kept."""
    read_priority: ReadPriority = ReadPriority.OFFLOADED_FIRST
    """The PIP's default; `tierfs init` writes local-first into a new store."""


BOUNDED_SIZES = ("chunk_bytes", "object_bytes")
"""Settings that decide how large one file or object gets."""

_TIMES = {"chunk_age": "chunk_age_s"}
_TIERING = {
    "offload_after": "offload_after_s",
    "offload_above_bytes": "offload_above_bytes",
    "deletion_lag": "deletion_lag_s",
}
_LIFETIMES = {
    "seal_bytes": "seal_bytes",
    "seal_age": "seal_age_s",
    "ledger_entries": "ledger_entries",
    "retention_age": "retention_age_s",
    "retention_bytes": "retention_bytes",
}

OFF = "off"
"""How a setting is stored that is switched off, so that a child can do so with what its parent sets."""

LIFETIME_KEYS = tuple(_LIFETIMES)
"""Settings that end segments or their bytes; each may be off."""

TIERING_KEYS = tuple(_TIERING)
"""Settings that move bytes between the tiers; each may be off, which Pulsar writes as a negative number."""

_OPTIONAL = {**_TIERING, **_LIFETIMES}

KEYS = (*BOUNDED_SIZES, *_TIMES, *TIERING_KEYS, *LIFETIME_KEYS, "read_priority")
"""Names under which settings are stored."""


def inherit(levels: list[Mapping[str, str]]) -> Policy:
    """The policy of a segment: `levels` are settings from the root down; the nearest one wins."""
    policy = Policy()
    for level in levels:
        for key, value in level.items():
            policy = _with(policy, key, value)
    return policy


def retention_conflict(policy: Policy) -> tuple[str, str] | None:
    """Which setting of when to offload is not below which of when to delete; None when bytes are offloaded first."""
    if _not_below(policy.offload_after_s, policy.retention_age_s):
        return "offload_after", "retention_age"
    if _not_below(policy.offload_above_bytes, policy.retention_bytes):
        return "offload_above_bytes", "retention_bytes"
    return None


def _not_below(threshold: int | None, limit: int | None) -> bool:
    return threshold is not None and limit is not None and threshold >= limit


def _with(policy: Policy, key: str, value: str) -> Policy:
    if key in BOUNDED_SIZES:
        # An older version accepted more, and stores keep what it wrote.
        return replace(policy, **{key: min(int(value), MAX_OBJECT_BYTES)})  # type: ignore[arg-type]
    if key in _TIMES:
        return replace(policy, **{_TIMES[key]: int(value)})  # type: ignore[arg-type]
    if key in _OPTIONAL:
        return replace(policy, **{_OPTIONAL[key]: None if value == OFF else int(value)})  # type: ignore[arg-type]
    if key == "read_priority":
        return replace(policy, read_priority=ReadPriority(value))
    raise InvalidRequest(f"policy {key!r} is unknown to this tierfs; it knows {', '.join(KEYS)}")
