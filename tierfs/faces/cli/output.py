"""Format numbers, times and tables for people; `units` has what programs get."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence

import click

from tierfs.base.words import json_data, texts, units
from tierfs.base.words.names import printable

# A number of things: `1 segment`, `2 directories`. Messages of lower layers use it too.
count = units.count

size = units.size
checksum, fields, plain, timestamp = json_data.checksum, json_data.fields, json_data.plain, json_data.timestamp

clock_time, duration, run = texts.clock_time, texts.duration, texts.run
tiers, cold_place = texts.tiers, texts.cold_place


def path(name: str) -> str:
    """Return the name of a segment or directory, `/` for the whole store, printable."""
    return printable(name) or "/"


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
