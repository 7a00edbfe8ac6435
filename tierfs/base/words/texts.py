"""Format times, runs of bytes and places for people. `units` has sizes and numbers of things."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from tierfs.base.words.names import printable
from tierfs.base.words.types import ByteRange
from tierfs.base.words.units import size

_MS_PER_S = 1000
_SECONDS_PER_UNIT = {"d": 86_400, "h": 3600, "min": 60, "s": 1}

# Scheme of a cold tier in a directory, relative to the store's.
_FILE_SCHEME = "file:"


class _InTiers(Protocol):
    @property
    def local_bytes(self) -> int: ...
    @property
    def cold_bytes(self) -> int: ...


def tiers(held: _InTiers) -> str:
    """Format the bytes of something in each tier."""
    return f"{size(held.local_bytes)} local, {size(held.cold_bytes)} cold"


def run(shown: ByteRange) -> str:
    """Format a run of bytes and its size."""
    return f"bytes {shown.start} … {shown.end} ({size(shown.length_bytes)})"


def clock_time(time_ms: int) -> str:
    """Format as ISO 8601 in UTC to the second, for people; `-` for 0, which stands for never."""
    return f"{datetime.fromtimestamp(time_ms // _MS_PER_S, UTC):%Y-%m-%dT%H:%M:%SZ}" if time_ms else "-"


def duration(length_s: float) -> str:
    """Format a time span in its two largest units: `17 s`, `3 min 5 s`, `4 h 12 min`, `2 d 3 h`."""
    rest, parts = int(length_s), list[str]()
    for unit, unit_s in _SECONDS_PER_UNIT.items():
        number, rest = divmod(rest, unit_s)
        if number or parts:
            parts.append(f"{number} {unit}")
    return " ".join(parts[:2]) or "0 s"


def cold_place(cold_url: str | None, store: Path) -> str:
    """Return the place of cold bytes: a URL, a directory or `none`."""
    if cold_url is None:
        return "none"
    if cold_url.startswith(_FILE_SCHEME):
        return printable(str(store / cold_url.removeprefix(_FILE_SCHEME)))
    return printable(cold_url)
