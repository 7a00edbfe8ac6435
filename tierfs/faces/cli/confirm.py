"""Ask for a confirmation."""

from __future__ import annotations

import sys

import click

from tierfs.base.words.errors import InvalidRequest
from tierfs.faces.cli.session import Session

_EXIT_DECLINED = 1


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
