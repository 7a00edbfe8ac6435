"""Policies as people write them: `chunk_bytes=64MiB`, `deletion_lag=4h`, `read_priority=local-first`.

What is stored is plain: bytes, whole seconds, a read priority's name, or the word `off`.
"""

from __future__ import annotations

import re

from tierfs import policy, units
from tierfs.errors import InvalidRequest
from tierfs.policy import Policy
from tierfs.types import ReadPriority

Value = int | ReadPriority | None
"""Bytes, seconds, a number, a read priority, or None for what is off."""

_PRIORITY_KEY = "read_priority"
_SIZE_SUFFIX = "_bytes"
_COUNT_SUFFIX = "_entries"

_MAY_BE_OFF = (*policy.TIERING_KEYS, *policy.LIFETIME_KEYS)
_NEGATIVE = re.compile(r"-[0-9]+")

_MAX_S = 100 * 365 * 86_400
"""A hundred years: more is a slip of the finger, and far below what any sum of times can hold."""

_MAX_COUNT = 2**63 - 1

_ROUNDING_S = 1e-6
"""What floating point adds to 1.1h."""

_SIZE_UNITS = (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))
_TIME_UNITS = (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1))


def parse(key: str, text: str) -> str:
    """What to store for `key` when a user typed `text`. Raises InvalidRequest naming key and allowed values."""
    check_key(key)
    try:
        if key == _PRIORITY_KEY:
            return ReadPriority(text).value
        if key in _MAY_BE_OFF and (text == policy.OFF or (key in policy.TIERING_KEYS and _NEGATIVE.fullmatch(text))):
            return policy.OFF
        if key.endswith(_SIZE_SUFFIX):
            return str(_parse_size(text, policy.MAX_OBJECT_BYTES if key in policy.BOUNDED_SIZES else units.MAX_BYTES))
        if key.endswith(_COUNT_SUFFIX):
            return str(_parse_count(text))
        return str(_parse_time(text, at_least_s=1 if key in policy.LIFETIME_KEYS else 0))
    except ValueError as exc:
        raise InvalidRequest(f"policy {key} cannot be {text!r}", remedy=f"{key} is {allowed(key)}") from exc


def check_key(key: str) -> None:
    """Raise InvalidRequest for a key that does not exist."""
    if key not in policy.KEYS:
        raise InvalidRequest(f"policy {key!r} is unknown", remedy=f"known are: {', '.join(policy.KEYS)}")


def allowed(key: str) -> str:
    """Which values a key takes, in words."""
    if key == _PRIORITY_KEY:
        return f"one of {', '.join(ReadPriority)}"
    or_off = f", or {policy.OFF}" if key in _MAY_BE_OFF else ""
    if key.endswith(_SIZE_SUFFIX):
        up_to = f" and at most {format(key, policy.MAX_OBJECT_BYTES)}" if key in policy.BOUNDED_SIZES else ""
        return f"a size of at least one byte{up_to}: bytes, or a number with KiB, MiB, GiB ..., like 64MiB{or_off}"
    if key.endswith(_COUNT_SUFFIX):
        return f"a whole number from 1 on{or_off}"
    return (
        f"a time of whole seconds, up to a hundred years: seconds, or a number with s, min, h, d or w, like 4h{or_off}"
    )


def value_of(settings: Policy, key: str) -> Value:
    """The value of a key in a policy; times are attributes named with their unit."""
    value = getattr(settings, key if hasattr(settings, key) else f"{key}_s")
    assert value is None or isinstance(value, int | ReadPriority)
    return value


def format(key: str, value: Value) -> str:
    """A value as `parse` reads it back without loss, in the largest unit that divides it."""
    if isinstance(value, ReadPriority):
        return value.value
    if value is None:
        return policy.OFF
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
        raise ValueError(f"{text!r} is no number of entries")
    return int(text)


def _parse_time(text: str, *, at_least_s: int) -> int:
    seconds = units.parse_duration(text)
    if seconds < at_least_s:
        raise ValueError(f"{text!r} is shorter than {at_least_s} s")
    if seconds > _MAX_S or abs(seconds - round(seconds)) > _ROUNDING_S:
        raise ValueError(f"{text!r} is too long, or not of whole seconds")
    return round(seconds)
