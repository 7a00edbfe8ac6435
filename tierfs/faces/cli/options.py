"""Define options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from tierfs.base.words.types import ReadPriority
from tierfs.faces.cli.parameter_types import Duration, Priority, Time

F = TypeVar("F", bound=Callable[..., Any])

# How a position in a managed ledger is written in help.
POSITION = "LEDGER[:ENTRY]"

yes_option = click.option("-y", "--yes", is_flag=True, help="Do not prompt for confirmation.")

ack_option = click.option(
    "--ack",
    type=click.Choice(["local", "cold"]),
    help="Where bytes are durable when they are acknowledged: on the local disk, or in the cold tier.",
)

compression_option = click.option(
    "--compression",
    type=click.Choice(["off", "auto", "zstd"]),
    help="Compress cold objects: none, those that become smaller, or all.",
)

# Accepted out of habit: sizes are human-readable without it, and exact with --json.
human_option = click.option("-h", "--human-readable", is_flag=True, expose_value=False, hidden=True)

since_option = click.option(
    "--since", type=Time(), metavar="TIME", help="Start at data written then or later; 2h: two hours ago."
)

until_option = click.option("--until", type=Time(), metavar="TIME", help="Stop before data written then or later.")

read_priority_option = click.option(
    "--read-priority",
    "read_priority",
    type=Priority(),
    metavar="P",
    help=f"Tier to read where both have the bytes: {', '.join(ReadPriority)}.",
)

wait_option = click.option(
    "--wait",
    type=Duration(),
    metavar="TIME",
    help="Maximum wait for room on a full disk  [default: 1min while a mount or daemon runs, else none]",
)


def dry_run_option(line: str) -> Callable[[F], F]:
    """Return the decorator for the option --dry-run, with its line of the help."""
    return click.option("-n", "--dry-run", is_flag=True, help=line)


def jobs_option(default: int, line: str) -> Callable[[F], F]:
    """Return a decorator for the option --jobs, with its line of the help."""
    return click.option("--jobs", default=default, type=click.IntRange(1, 64), show_default=True, help=line)
