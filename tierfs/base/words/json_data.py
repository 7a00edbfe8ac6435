"""Records as programs get them: the data of `--json` and of the admin API."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import fields as fields_of
from dataclasses import is_dataclass
from enum import IntEnum
from operator import attrgetter
from pathlib import Path
from typing import Any

from tierfs.base.words.types import ByteRange

_MS_PER_S = 1000

# What rows of the metadata have beside their own fields.
_OF_ROWS = ("version", "stored")


def checksum(crc32c: int | None) -> str | None:
    """Format a CRC32C; None for an unknown one."""
    return None if crc32c is None else f"{crc32c:08x}"


def fields(record: Any, names: str = "") -> dict[str, Any]:
    """Return a record as JSON data: all fields, or those of `names` in their order, `new=old` under another name.

    All are those of its own: not the version and the bytes that a row of the metadata has too.
    A time `x_ms` under a name without the unit is written as by `timestamp`.
    """
    data = {}
    for name in names.split() or [field.name for field in fields_of(record) if field.name not in _OF_ROWS]:
        new, _, old = name.partition("=")
        value = attrgetter(old or new)(record)
        data[new] = timestamp(value) if old.endswith("_ms") and not new.endswith("_ms") else plain(value)
    return data


def plain(value: Any) -> Any:
    """Return what JSON lacks as what it has: a range as `[start, end]`, a numbered kind as its name in lower case."""
    if isinstance(value, ByteRange):
        return [value.start, value.end]
    if is_dataclass(value):
        return fields(value)
    if isinstance(value, IntEnum):
        return value.name.lower()
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Collection) and not isinstance(value, str | bytes | list | tuple):
        return list(value)
    return str(value) if isinstance(value, Path | BaseException) else value


def timestamp(time_ms: int) -> str | None:
    """Format as ISO 8601 in UTC with milliseconds; None for 0, which stands for never.

    Messages and objects of others may name any number: one of no date is shown as it is.
    """
    if not time_ms:
        return None
    from datetime import UTC, datetime  # few commands print a time

    try:
        at = datetime.fromtimestamp(time_ms / _MS_PER_S, UTC)
    except (ValueError, OverflowError, OSError):
        return f"{time_ms} ms"
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
