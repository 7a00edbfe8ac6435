"""The group that loads a command's module when the command is called, and what all commands share."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import click

from tierfs.cli import edge
from tierfs.cli.session import DEBUG, QUIET, Session

F = TypeVar("F", bound=Callable[..., None])


class LazyGroup(click.Group):
    """A group whose commands are named by module and attribute; errors end at the edge."""

    def __init__(
        self,
        *arguments: Any,
        lazy: Mapping[str, str],
        lines: Mapping[str, Mapping[str, str]] | None = None,
        store_variable: str | None = "TIERFS_STORE",
        **named: Any,
    ) -> None:
        """`lazy` maps a command's name to `module:attribute`; `lines` has what `--help` says of each, by section.

        A group inside a group takes no `store_variable`: it would override the --store given before it.
        """
        super().__init__(*arguments, **named)
        self._lazy = lazy
        self._lines = lines
        self.params.extend(shared_options(store_variable))

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order in which they were given: that of a segment's life."""
        return list(self._lazy)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Sections with the lines that were given, and no import; else a line of each command's own help."""
        if self._lines is None:
            super().format_commands(ctx, formatter)
            return
        width = max(map(len, self._lazy))
        for title, lines in self._lines.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), line) for name, line in lines.items()])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command."""
        if cmd_name not in self._lazy:
            return None
        module, _, attribute = self._lazy[cmd_name].partition(":")
        command = getattr(import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; what click would print in its own way ends at the edge first."""
        session: Session = ctx.obj
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except (BrokenPipeError, KeyboardInterrupt, BaseExceptionGroup) as exc:  # trio wraps Ctrl-C too
            raise click.exceptions.Exit(edge.report(exc, session)) from exc
        return result

    def main(  # type: ignore[override]  # ends the process however it was called
        self, args: Sequence[str] | None = None, prog_name: str | None = None, **extra: Any
    ) -> NoReturn:
        """Run the command line and exit."""
        arguments = list(sys.argv[1:] if args is None else args)
        session = Session()
        extra["standalone_mode"] = False
        try:
            code = super().main(arguments, prog_name, obj=session, **extra)
        except Exception as exc:
            # A usage error may come before the option was seen.
            session.json = session.json or "--json" in arguments
            code = edge.report(exc, session)
        sys.exit(code if isinstance(code, int) else 0)


class Command(click.Command):
    """A command that takes the global options too."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.params.extend(shared_options())

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command, once all options are known."""
        session: Session = ctx.obj
        session.start_logging()
        return super().invoke(ctx)


def command(name: str) -> Callable[[F], click.Command]:
    """Make a function a command; it gets the session first."""

    def decorate(function: F) -> click.Command:
        return click.command(name, cls=Command)(click.pass_obj(function))

    return decorate


def shared_options(store_variable: str | None = None) -> list[click.Parameter]:
    """The global options, which set the session; accepted before and after the command's name."""
    return [
        click.Option(
            ["--store"],
            metavar="DIR",
            envvar=store_variable,
            expose_value=False,
            callback=_set_store,
            help="The store's directory  [default: $TIERFS_STORE]",
        ),
        click.Option(["--json"], is_flag=True, expose_value=False, callback=_set_json, help="Print JSON."),
        click.Option(
            ["-q", "--quiet"], is_flag=True, expose_value=False, callback=_set_quiet, help="Only results and errors."
        ),
        click.Option(["-v", "--verbose"], count=True, expose_value=False, callback=_add_verbose, help="Tell more."),
    ]


def _set_store(ctx: click.Context, parameter: click.Parameter, value: str | None) -> None:
    if value:
        ctx.obj.store_path = Path(value)


def _set_json(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:
    ctx.obj.json = ctx.obj.json or value


def _set_quiet(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value:
        ctx.obj.verbosity = QUIET


def _add_verbose(ctx: click.Context, parameter: click.Parameter, value: int) -> None:
    if value:
        ctx.obj.verbosity = min(max(ctx.obj.verbosity, 0) + value, DEBUG)
