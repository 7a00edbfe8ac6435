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
    offload_after_s: int = 0
    """How long an ended chunk waits before it is offloaded; more joins small neighbours into one object."""
    deletion_lag_s: int = 4 * 3600
    """How long local bytes stay after they are cold, so that fresh data is read locally."""
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

_TIMES = {"chunk_age": "chunk_age_s", "offload_after": "offload_after_s", "deletion_lag": "deletion_lag_s"}
_OPTIONAL = {
    "seal_bytes": "seal_bytes",
    "seal_age": "seal_age_s",
    "ledger_entries": "ledger_entries",
    "retention_age": "retention_age_s",
    "retention_bytes": "retention_bytes",
}

OFF = "off"
"""How a setting is stored that is switched off, so that a child can do so with what its parent sets."""

LIFETIME_KEYS = tuple(_OPTIONAL)
"""Settings that end segments or their bytes; each may be off."""

KEYS = (*BOUNDED_SIZES, *_TIMES, *LIFETIME_KEYS, "read_priority")
"""Names under which settings are stored."""


def inherit(levels: list[Mapping[str, str]]) -> Policy:
    """The policy of a segment: `levels` are settings from the root down; the nearest one wins."""
    policy = Policy()
    for level in levels:
        for key, value in level.items():
            policy = _with(policy, key, value)
    return policy


def retention_conflict(policy: Policy) -> bool:
    """Whether bytes would be deleted before they are due to be offloaded."""
    return policy.retention_age_s is not None and policy.offload_after_s >= policy.retention_age_s


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
