"""Policies: settings of directories and segments that inherit downwards, and their defaults.

People write them as `chunk_bytes=64MiB`, `deletion_lag=4h`, `read_priority=local-first`. The stored form is plain:
bytes, whole seconds, a read priority's name, or the word `off`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from tierfs import units
from tierfs.errors import InvalidRequest
from tierfs.types import MIB, ReadPriority

MAX_OBJECT_BYTES = 64 << 30
"""Of a chunk and of an object: 8192 parts of 8 MiB, and 2 MiB of checksums, which one change of the journal holds."""


@dataclass(frozen=True, slots=True)
class Policy:
    """The settings in force for one segment. Sizes in bytes, times in seconds."""

    chunk_bytes: int = 64 * MIB
    """Length at which the active chunk rolls. Bigger chunks cost fewer objects and records, and evict later."""
    object_bytes: int = 64 * MIB
    """Largest object an offload makes from neighbouring sealed chunks."""
    chunk_age_s: int = 600
    """Age at which the active chunk ends, so that a slow segment is cold in time too."""
    offload_after_s: int | None = 0
    """Time from the end of a chunk to its offload; more joins small neighbours into one object. None: until a command
    or the disk needs it, or a ledger `offload_above_bytes`."""
    offload_above_bytes: int | None = None
    """Bytes of a managed ledger that may be on this disk alone before its oldest closed ledgers are offloaded."""
    deletion_lag_s: int | None = 4 * 3600
    """Time that local bytes stay after they are cold, so that fresh data is read locally; None: until room is
    needed."""
    seal_bytes: int | None = None
    """Length at which a segment is sealed and continued in its successor; None: it grows without end."""
    seal_age_s: int | None = None
    """Time after its first byte at which a segment is sealed and continued in its successor."""
    ledger_entries: int | None = None
    """Entries after which a ledger of a managed ledger is closed; besides these, seal_bytes and seal_age close it."""
    retention_age_s: int | None = None
    """Time that bytes are kept after they were written; None: for ever."""
    retention_bytes: int | None = None
    """Number of a stream's newest bytes that are kept."""
    trash_age_s: int = 86_400
    """Time that what a person removed stays in the trash, from which it can be restored; 0: none."""
    read_priority: ReadPriority = ReadPriority.OFFLOADED_FIRST
    """The PIP's default; `tierfs init` writes local-first into a new store."""


BOUNDED_SIZES = ("chunk_bytes", "object_bytes")
"""Settings that decide how large one file or object gets."""

_TIMES = {"chunk_age": "chunk_age_s", "trash_age": "trash_age_s"}
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
"""Stored form of a setting that is switched off, so that a child can override what its parent sets."""

LIFETIME_KEYS = tuple(_LIFETIMES)
"""Settings that end segments or their bytes; each may be off."""

TIERING_KEYS = tuple(_TIERING)
"""Settings that move bytes between the tiers; each may be off, which Pulsar writes as a negative number."""

_OPTIONAL = {**_TIERING, **_LIFETIMES}

KEYS = (*BOUNDED_SIZES, *_TIMES, *TIERING_KEYS, *LIFETIME_KEYS, "read_priority")
"""Names under which settings are stored."""


def inherit(levels: list[Mapping[str, str]]) -> Policy:
    """Return the policy of a segment: `levels` are settings from the root down; the nearest one wins."""
    policy = Policy()
    for level in levels:
        for key, value in level.items():
            policy = _with(policy, key, value)
    return policy


def retention_conflict(policy: Policy) -> tuple[str, str] | None:
    """Return the offload setting that is not below its deletion setting, and the latter.

    None when bytes are offloaded first.
    """
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


Value = int | ReadPriority | None
"""Bytes, seconds, a number, a read priority, or None for what is off."""

_PRIORITY_KEY = "read_priority"
_SIZE_SUFFIX = "_bytes"
_COUNT_SUFFIX = "_entries"

_MAY_BE_OFF = (*TIERING_KEYS, *LIFETIME_KEYS)
_NEGATIVE = re.compile(r"-[0-9]+")

_MAX_S = 100 * 365 * 86_400
"""A hundred years: more is a slip of the finger, and far below what any sum of times can hold."""

_MAX_COUNT = 2**63 - 1

_ROUNDING_S = 1e-6
"""Absorbs the excess of floating point in 1.1h."""

_SIZE_UNITS = (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))
_TIME_UNITS = (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1))


def parse(key: str, text: str) -> str:
    """Return the stored form of `text`, typed for `key`. Raises InvalidRequest naming key and allowed values."""
    check_key(key)
    try:
        if key == _PRIORITY_KEY:
            return ReadPriority(text).value
        if key in _MAY_BE_OFF and (text == OFF or (key in TIERING_KEYS and _NEGATIVE.fullmatch(text))):
            return OFF
        if key.endswith(_SIZE_SUFFIX):
            return str(_parse_size(text, MAX_OBJECT_BYTES if key in BOUNDED_SIZES else units.MAX_BYTES))
        if key.endswith(_COUNT_SUFFIX):
            return str(_parse_count(text))
        return str(_parse_time(text, at_least_s=1 if key in LIFETIME_KEYS else 0))
    except ValueError as exc:
        raise InvalidRequest(f"policy {key} cannot be {text!r}", remedy=f"{key} is {allowed(key)}") from exc


def check_key(key: str) -> None:
    """Raise InvalidRequest for a key that does not exist."""
    if key not in KEYS:
        raise InvalidRequest(f"policy {key!r} is unknown", remedy=f"known are: {', '.join(KEYS)}")


def allowed(key: str) -> str:
    """Describe the values that a key takes."""
    if key == _PRIORITY_KEY:
        return f"one of {', '.join(ReadPriority)}"
    or_off = f", or {OFF}" if key in _MAY_BE_OFF else ""
    if key.endswith(_SIZE_SUFFIX):
        up_to = f" and at most {format(key, MAX_OBJECT_BYTES)}" if key in BOUNDED_SIZES else ""
        return f"a size of at least one byte{up_to}: bytes, or a number with KiB, MiB, GiB ..., like 64MiB{or_off}"
    if key.endswith(_COUNT_SUFFIX):
        return f"a whole number from 1 on{or_off}"
    return (
        f"a time of whole seconds, up to a hundred years: seconds, or a number with s, min, h, d or w, like 4h{or_off}"
    )


def value_of(settings: Policy, key: str) -> Value:
    """Return the value of a key in a policy; times are attributes named with their unit."""
    value = getattr(settings, key if hasattr(settings, key) else f"{key}_s")
    assert value is None or isinstance(value, int | ReadPriority)
    return value


def format(key: str, value: Value) -> str:
    """Format a value as `parse` reads it back without loss, in the largest unit that divides it."""
    if isinstance(value, ReadPriority):
        return value.value
    if value is None:
        return OFF
    if key.endswith(_COUNT_SUFFIX):
        return str(value)
    sizes = key.endswith(_SIZE_SUFFIX)
    for unit, factor in _SIZE_UNITS if sizes else _TIME_UNITS:
        if value and value % factor == 0:
            return f"{value // factor}{unit}"
    return str(value) if sizes else f"{value}s"


def _parse_size(text: str, most_bytes: int) -> int:
    size = units.parse_size(text)
    if size > most_bytes:
        raise ValueError(f"{text!r} is too large")
    if size < 1:
        raise ValueError(f"{text!r} holds no byte")
    return size


def _parse_count(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or not 1 <= int(text) <= _MAX_COUNT:
        raise ValueError(f"{text!r} is not a number of entries")
    return int(text)


def _parse_time(text: str, *, at_least_s: int) -> int:
    seconds = units.parse_duration(text)
    if seconds < at_least_s:
        raise ValueError(f"{text!r} is shorter than {at_least_s} s")
    if seconds > _MAX_S or abs(seconds - round(seconds)) > _ROUNDING_S:
        raise ValueError(f"{text!r} is too long, or not of whole seconds")
    return round(seconds)
