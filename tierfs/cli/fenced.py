"""What `tierfs status` adds for a fenced store: the bytes that only its disk holds, and how to save them."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tierfs.cli import format
from tierfs.cli.session import Session
from tierfs.names import printable

if TYPE_CHECKING:
    from tierfs.background.only_here import OnlyHere

_SHOWN = 20
"""Ranges that people see; --json has all."""


def print_fenced(session: Session, data: Mapping[str, Any], text: str, store: Path, found: Iterable[OnlyHere]) -> None:
    """Print the status of a fenced store; however many ranges there are, none is kept in memory."""
    if session.json:
        _print_json(data, store, found)
    else:
        click.echo(text)
        _print_text(store, found)


def _print_json(data: Mapping[str, Any], store: Path, found: Iterable[OnlyHere]) -> None:
    click.echo(json.dumps(data).removesuffix("}") + ', "only_here": [', nl=False)
    for number, run in enumerate(found):
        click.echo((", " if number else "") + json.dumps({**asdict(run), "export": export(store, run)}), nl=False)
    click.echo("]}")


def _print_text(store: Path, found: Iterable[OnlyHere]) -> None:
    count = size_bytes = 0
    for run in found:
        count, size_bytes = count + 1, size_bytes + run.end - run.start
        if count == 1:
            click.echo("only this disk holds, with the command that writes it to standard output:")
        if count <= _SHOWN:
            click.echo(f"  {printable(export(store, run))}")
    if count > _SHOWN:
        click.echo(f"  and {format.count(count - _SHOWN, 'range')} more; all of them: tierfs status --json")
    click.echo(f"only on this disk: {format.size(size_bytes)} in {format.count(count, 'range')}")


def export(store: Path, run: OnlyHere) -> str:
    """The command that writes a range to standard output."""
    where = f"tierfs --store {shlex.quote(str(store))} cat {shlex.quote(run.segment)}"
    return f"{where} --read-priority local-only --from {run.start} --to {run.end}"
