"""Define the group that loads a command's module on its call, and the options of all commands."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import click
from click.core import ParameterSource

from tierfs.base.system.store_paths import ALLOW_OTHER_OWNER
from tierfs.faces.cli import errors
from tierfs.faces.cli.session import DEBUG, QUIET, Session

F = TypeVar("F", bound=Callable[..., None])
_HELP = "help"


class NoSuchCommand(click.UsageError):
    """A word that names no command, and perhaps what it may mean."""

    def __init__(self, message: str, ctx: click.Context, meant: str | None) -> None:
        super().__init__(message, ctx)
        self.remedy = meant


class LazyGroup(click.Group):
    """A group whose commands are given by module and attribute; errors.report prints their errors."""

    def __init__(
        self,
        *arguments: Any,
        lazy: Mapping[str, str],
        lines: Mapping[str, Mapping[str, str]] | None = None,
        aliases: Mapping[str, str] | None = None,
        others: Mapping[str, str] | None = None,
        store_variable: str | None = "TIERFS_STORE",
        **named: Any,
    ) -> None:
        """Map command names to `module:attribute` in `lazy`, and to their lines in `--help`, by section, in `lines`.

        `aliases` are other words for commands, which no help lists; `others` are no commands, and what does it.

        A nested group has no `store_variable`: it would override the --store given before it.
        """
        super().__init__(*arguments, **named)
        self._lazy = lazy
        self._lines = lines
        self._aliases = aliases or {}
        self._others = others
        self.params.extend(shared_options(store_variable))

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of `lazy`: that of a segment's life."""
        return list(self._lazy)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, of a group within another its own alone, and the commands."""
        if ctx.parent is None:
            super().format_options(ctx, formatter)
            return
        _write_own_options(self, ctx, formatter)
        self.format_commands(ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write sections from `lines` without an import, or else a line of each command's own help."""
        if self._lines is None:
            super().format_commands(ctx, formatter)
            return
        width = max(map(len, self._lazy))
        for title, lines in self._lines.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), line) for name, line in lines.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the words name: `help VERB` is its help, and other tools' words name one.

        Raises NoSuchCommand, which tells what may be meant.
        """
        word, *rest = args
        if word == _HELP and word not in self._lazy:
            if not rest:
                click.echo(ctx.get_help())
                ctx.exit()
            word, *rest = *rest, "--help"
        word = self._aliases.get(word, word)
        if word in self._lazy or word.startswith("-"):
            return super().resolve_command(ctx, [word, *rest])
        from tierfs.faces.cli.guesses import meant

        raise NoSuchCommand(f"no such command {word!r}", ctx, meant(word, self._lazy, self._others))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command."""
        if cmd_name not in self._lazy:
            return None
        module, _, attribute = self._lazy[cmd_name].partition(":")
        command = getattr(import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; report the errors that click would print in its own way."""
        session: Session = ctx.obj
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except (BrokenPipeError, KeyboardInterrupt, BaseExceptionGroup) as exc:  # trio wraps Ctrl-C too
            raise click.exceptions.Exit(errors.report(exc, session)) from exc
        return result

    def main(  # type: ignore[override]  # ends the process however it was called
        self, args: Sequence[str] | None = None, prog_name: str | None = None, **extra: Any
    ) -> NoReturn:
        """Run the command line and exit."""
        arguments = list(sys.argv[1:] if args is None else args)
        session = Session(words=arguments)
        extra["standalone_mode"] = False
        try:
            code = super().main(arguments, prog_name, obj=session, **extra)
        except Exception as exc:
            # A usage error may come before the option was seen.
            session.json = session.json or "--json" in arguments
            code = errors.report(exc, session)
        sys.exit(code if isinstance(code, int) else 0)


class Command(click.Command):
    """A command that accepts the global options too."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.params.extend(shared_options())

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options of this command alone."""
        _write_own_options(self, ctx, formatter)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the command's examples."""
        from tierfs.faces.cli.examples import EXAMPLES

        shown = EXAMPLES.get(ctx.command_path.partition(" ")[2])
        if shown is not None:
            with formatter.section("Examples"):
                formatter.write("".join(f"  {line}\n" for line in shown.strip().splitlines()))

    def invoke(self, ctx: click.Context) -> Any:
        """Start logging, which needs all options, and run the command."""
        session: Session = ctx.obj
        session.start_logging()
        return super().invoke(ctx)


def _write_own_options(command: click.Command, ctx: click.Context, formatter: click.HelpFormatter) -> None:
    every = {option for param in shared_options() for option in param.opts} | {"--help"}
    shown = [param for param in command.get_params(ctx) if isinstance(param, click.Option)]
    options = [option for option in shown if every.isdisjoint(option.opts)]
    records = [record for record in (option.get_help_record(ctx) for option in options) if record is not None]
    if records:
        with formatter.section("Options"):
            formatter.write_dl(records)
    formatter.write_paragraph()
    formatter.write_text("Options of all commands, such as --store DIR and --json: tierfs --help")


def command(name: str) -> Callable[[F], click.Command]:
    """Return a decorator that makes a function a command; its first argument is the session."""

    def decorate(function: F) -> click.Command:
        return click.command(name, cls=Command)(click.pass_obj(function))

    return decorate


def shared_options(store_variable: str | None = None) -> list[click.Parameter]:
    """Return the global options, which set the session; accepted before and after the command's name."""

    def set_store(ctx: click.Context, parameter: click.Parameter, value: str | None) -> None:
        if value:
            ctx.obj.store_path = Path(value)
            ctx.obj.names_store = ctx.get_parameter_source("store") is ParameterSource.COMMANDLINE

    def allow_other_owner(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:
        if value:
            os.environ[ALLOW_OTHER_OWNER] = "1"  # processes that the command starts open the store too

    def set_json(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:
        ctx.obj.json = ctx.obj.json or value

    def set_quiet(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:
        if value:
            ctx.obj.verbosity = QUIET

    def ignored(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:
        """Accept an option out of habit: it asks for what tierfs does anyway."""

    def set_debug(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:
        if value:
            ctx.obj.verbosity = DEBUG

    def add_verbose(ctx: click.Context, parameter: click.Parameter, value: int) -> None:
        if value:
            ctx.obj.verbosity = min(max(ctx.obj.verbosity, 0) + value, DEBUG)

    def option(*names: str, callback: Callable[..., None], **named: Any) -> click.Option:
        return click.Option(names, expose_value=False, callback=callback, **named)

    store = "Directory of the store  [default: $TIERFS_STORE]"
    short = ("-C", "-s") if store_variable is not None else ("-C",)  # other commands have an -s of their own
    owner = "Open a store of another user; that user can then act with your rights."
    return [
        option(*short, "--store", metavar="DIR", envvar=store_variable, callback=set_store, help=store),
        option("--allow-other-owner", is_flag=True, callback=allow_other_owner, help=owner),
        option("--json", is_flag=True, callback=set_json, help="Print JSON."),
        option("-q", "--quiet", is_flag=True, callback=set_quiet, help="Print only results and errors."),
        option("-v", "--verbose", count=True, callback=add_verbose, help="Verbose output; -vv for debug output."),
        option("--debug", is_flag=True, callback=set_debug, hidden=True),
        option("--no-color", "--no-colour", is_flag=True, callback=ignored, hidden=True),  # there are no colours
    ]
