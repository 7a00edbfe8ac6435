"""Format numbers, times and tables for people; `units` has what programs get."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

import click

from tierfs.base.words import json_data, units
from tierfs.base.words.names import printable
from tierfs.base.words.types import ByteRange

_MS_PER_S = 1000
_SECONDS_PER_UNIT = {"d": 86_400, "h": 3600, "min": 60, "s": 1}

# A number of things: `1 segment`, `2 directories`. Messages of lower layers use it too.
count = units.count

size = units.size
checksum, fields, plain, timestamp = json_data.checksum, json_data.fields, json_data.plain, json_data.timestamp

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


def path(name: str) -> str:
    """Return the name of a segment or directory, `/` for the whole store, printable."""
    return printable(name) or "/"


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


def table(rows: Iterable[Sequence[str]], *columns: str) -> str:
    """Lay out a table as one text."""
    return "\n".join(lines(rows, *columns))


def lines(rows: Iterable[Sequence[str]], *columns: str) -> list[str]:
    """Lay out a line for each row, with columns two spaces apart and no trailing spaces.

    A column is `<` (left) or `>` (right), optionally with its least width: `>10`. The default is two left columns.
    rich is not used for tables: its import takes 35 ms, and each row about a millisecond, and a listing may have
    100,000 rows.
    """
    cells = list(rows)
    if not cells:
        return []
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    specs = [
        f"{column[0]}{max(width, int(column[1:] or 0))}" for column, width in zip(columns or "<<", widths, strict=True)
    ]
    return ["  ".join(map(format, row, specs)).rstrip() for row in cells]


def wrapped(line: str, indent: str) -> str:
    """Return a line unchanged, or on a terminal wrapped between words, with `indent` before its later lines."""
    if not sys.stdout.isatty():
        return line
    width = shutil.get_terminal_size().columns
    return textwrap.fill(line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def painted(text: str, colour: str) -> str:
    """Return a text in a colour, or unchanged where standard output is no terminal with colours, or NO_COLOR is set."""
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return text
    return click.style(text, fg=colour, bold=True)


def cold_place(cold_url: str | None, store: Path) -> str:
    """Return the place of cold bytes: a URL, a directory or `none`."""
    if cold_url is None:
        return "none"
    if cold_url.startswith(_FILE_SCHEME):
        return printable(str(store / cold_url.removeprefix(_FILE_SCHEME)))
    return printable(cold_url)
