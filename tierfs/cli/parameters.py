"""Types of parameters that click does not know."""

from __future__ import annotations

from typing import Any

import click

from tierfs import units
from tierfs.types import ReadPriority


class Size(click.ParamType[int]):
    """A number of bytes, like 4096 or 64MiB."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Parse what was typed."""
        try:
            return units.parse_size(value)
        except ValueError as exc:
            self.fail(str(exc), param, ctx)


class Duration(click.ParamType[float]):
    """A time in seconds, like 90 or 5min."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Parse what was typed."""
        try:
            return units.parse_duration(value)
        except ValueError as exc:
            self.fail(str(exc), param, ctx)


class Priority(click.ParamType[ReadPriority]):
    """A read priority."""

    name = "priority"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> ReadPriority:
        """Parse what was typed."""
        try:
            return ReadPriority(value)
        except ValueError:
            self.fail(f"{value!r} is none of {', '.join(ReadPriority)}", param, ctx)


read_priority_option = click.option(
    "--read-priority",
    "read_priority",
    type=Priority(),
    metavar="P",
    help=f"Which tier serves a byte both hold: {', '.join(ReadPriority)}.",
)
