"""Define tierfs's own parameter types, shared options, and confirmations."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from tierfs.base.system.clock import SystemClock
from tierfs.base.words import units
from tierfs.base.words.errors import InvalidRequest
from tierfs.base.words.types import ReadPriority
from tierfs.faces.cli.session import Session

F = TypeVar("F", bound=Callable[..., Any])


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
            self.fail(f"{value!r} is not from {units.format_duration(self._least_s)} to 36500d", param, ctx)
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


since_option = click.option(
    "--since", type=Time(), metavar="TIME", help="Begin with what was written since; 2h: two hours ago."
)
until_option = click.option("--until", type=Time(), metavar="TIME", help="End before what was written then or later.")


class Priority(click.ParamType[ReadPriority]):
    """A read priority."""

    name = "priority"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> ReadPriority:
        """Parse the typed text."""
        try:
            return ReadPriority(value)
        except ValueError:
            self.fail(f"{value!r} is not one of {', '.join(ReadPriority)}", param, ctx)


read_priority_option = click.option(
    "--read-priority",
    "read_priority",
    type=Priority(),
    metavar="P",
    help=f"Tier that serves bytes held by both: {', '.join(ReadPriority)}.",
)


# How a position in a managed ledger is written in help.
POSITION = "LEDGER[:ENTRY]"

_EXIT_DECLINED = 1

yes_option = click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")


def dry_run_option(line: str) -> Callable[[F], F]:
    """Return the decorator for the option --dry-run, with its line of the help."""
    return click.option("-n", "--dry-run", is_flag=True, help=line)


def is_terminal() -> bool:
    """Return whether a user can be asked."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def ask(verb: str, question: str) -> None:
    """Return after a yes; exit with 1 after a no. Raises InvalidRequest without a terminal."""
    if not is_terminal():
        session = click.get_current_context().ensure_object(Session)
        raise InvalidRequest(
            f"{verb} needs a confirmation, and there is no terminal: {question}",
            remedy=f"to confirm: {session.command_with('--yes')}",
        )
    if not click.confirm(question, err=True):
        click.echo("nothing was changed", err=True)
        raise click.exceptions.Exit(_EXIT_DECLINED)


wait_option = click.option(
    "--wait",
    type=Duration(),
    metavar="TIME",
    help="Maximum wait for room on a full disk  [default: 1min while a mount or daemon runs, else none]",
)
