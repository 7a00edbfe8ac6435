"""Define tierfs's own parameter types: sizes, times and read priorities as people type them."""

from __future__ import annotations

from typing import Any

import click

from tierfs.base.system.clock import SystemClock
from tierfs.base.words import units
from tierfs.base.words.types import ReadPriority


class Size(click.ParamType[int]):
    """A number of bytes, like 4096 or 64MiB."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Parse the typed text."""
        try:
            return units.parse_size(value)
        except ValueError as exc:
            self.fail(str(exc), param, ctx)


class Duration(click.ParamType[float]):
    """A time in seconds, like 90 or 5min."""

    name = "duration"

    def __init__(self, least_s: float = 0) -> None:
        self._least_s = least_s

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Parse the typed text."""
        try:
            seconds = units.parse_duration(value)
        except ValueError as exc:
            self.fail(str(exc), param, ctx)
        if not self._least_s <= seconds <= units.MAX_S:
            self.fail(f"{value!r} is not between {units.format_duration(self._least_s)} and 36500d", param, ctx)
        return seconds


class Time(click.ParamType[int]):
    """A moment in milliseconds since the epoch, like 2h, for two hours ago, or 2026-01-31T12:00Z."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Parse the typed text."""
        try:
            return units.parse_time(str(value), SystemClock().now_ms())
        except ValueError as exc:
            self.fail(str(exc), param, ctx)


class MetadataPair(click.ParamType[tuple[str, str]]):
    """A pair like KEY=VALUE."""

    name = "key=value"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        """Split the typed text."""
        if isinstance(value, tuple):
            return value
        key, equals, text = str(value).partition("=")
        if not (key and equals):
            self.fail(f"{value!r} is not KEY=VALUE", param, ctx)
        return key, text


class Priority(click.ParamType[ReadPriority]):
    """A read priority."""

    name = "priority"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> ReadPriority:
        """Parse the typed text."""
        try:
            return ReadPriority(value)
        except ValueError:
            self.fail(f"{value!r} is not one of {', '.join(ReadPriority)}", param, ctx)
