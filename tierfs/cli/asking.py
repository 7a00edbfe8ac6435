"""Asking before something is destroyed."""

from __future__ import annotations

import sys

import click

from tierfs.errors import InvalidRequest

_EXIT_DECLINED = 1

yes_option = click.option("--yes", is_flag=True, help="Do not ask.")


def is_terminal() -> bool:
    """Whether somebody can be asked."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def ask(verb: str, question: str) -> None:
    """Go on only after a yes; without a terminal nobody can give it: InvalidRequest."""
    if not is_terminal():
        raise InvalidRequest(
            f"{verb} asks first, and there is no terminal: {question}", remedy=f"to go on: {verb} --yes"
        )
    if not click.confirm(question, err=True):
        click.echo("nothing was changed", err=True)
        raise click.exceptions.Exit(_EXIT_DECLINED)
