"""Define the group that loads a command's module on its call, and what all commands share.

They share options, and arguments that name segments and directories: what may be typed for one, and several in a call.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import reduce, wraps
from glob import escape
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from tierfs.base.system.store_paths import ALLOW_OTHER_OWNER
from tierfs.base.words.errors import Conflict, DataLoss, InvalidRequest, NotFound
from tierfs.base.words.names import join, split
from tierfs.faces.cli import errors
from tierfs.faces.cli.session import DEBUG, QUIET, Session

if TYPE_CHECKING:
    from tierfs.app.store import Store

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
    formatter.write_text("Options of all commands, such as --store DIR and --json, are in: tierfs --help")


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

    def add_verbose(ctx: click.Context, parameter: click.Parameter, value: int) -> None:
        if value:
            ctx.obj.verbosity = min(max(ctx.obj.verbosity, 0) + value, DEBUG)

    def option(*names: str, callback: Callable[..., None], **named: Any) -> click.Option:
        return click.Option(names, expose_value=False, callback=callback, **named)

    store = "Directory of the store  [default: $TIERFS_STORE]"
    owner = "Open a store of another user, who then acts with your rights."
    return [
        option("--store", metavar="DIR", envvar=store_variable, callback=set_store, help=store),
        option("--allow-other-owner", is_flag=True, callback=allow_other_owner, help=owner),
        option("--json", is_flag=True, callback=set_json, help="Print JSON."),
        option("-q", "--quiet", is_flag=True, callback=set_quiet, help="Print only results and errors."),
        option("-v", "--verbose", count=True, callback=add_verbose, help="Verbose output; -vv for debug output."),
    ]


# Errors after which the next path may well succeed; of the others each path would tell the same again.
_OF_THE_PATH = (Conflict, DataLoss, InvalidRequest, NotFound)


class StoreName(click.ParamType[str]):
    """A name in the store, or a path under a mount, which names the store too."""

    name = "name"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Remember the text: the store is looked for only when it is opened."""
        if ctx is not None:
            ctx.ensure_object(Session).typed.append(value)
        return str(value)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Complete a name of the store that is named before it, or by TIERFS_STORE; paths are left to the shell."""
        from tierfs.base.system.places import is_path
        from tierfs.base.words.types import EntryKind
        from tierfs.engine.metadata import directories

        if is_path(incomplete):
            return [CompletionItem(incomplete, type="file")]
        with ctx.ensure_object(Session).open_store(looks=True) as store, store.metadata.read() as txn:
            below = directories.matching(txn, f"{escape(incomplete)}*")
        return [CompletionItem(path + ("/" if entry.kind is EntryKind.DIRECTORY else "")) for path, entry in below]


_NAME = StoreName()


def added(*options: Callable[[F], F]) -> Callable[[F], F]:
    """Return a decorator that adds several options, in the order of the help."""

    def decorate(function: F) -> F:
        return reduce(lambda inner, option: option(inner), reversed(options), function)

    return decorate


def server_options(endpoint: str = "URL of the S3 server; only for servers other than AWS.") -> Callable[[F], F]:
    """Return a decorator for the options of an S3 server: `endpoint_url`, `region` and `profile`."""
    return added(
        click.option("--endpoint-url", metavar="URL", help=endpoint),
        click.option("--region", metavar="R", help="Region of the bucket."),
        click.option("--profile", metavar="P", help="Profile in ~/.aws with the credentials."),
    )


def jobs_option(default: int, line: str) -> Callable[[F], F]:
    """Return a decorator for the option --jobs, with its line of the help."""
    return click.option("--jobs", default=default, type=click.IntRange(1, 64), show_default=True, help=line)


def place_options(bucket: str, cold_url: str, cold_dir: str) -> Callable[[F], F]:
    """Return a decorator for the options that name a cold tier, each with its line of the help."""
    return added(
        click.option("--bucket", metavar="s3://B/PREFIX", help=bucket),
        click.option("--cold-url", metavar="URL", help=cold_url),
        click.option("--cold-dir", type=click.Path(path_type=Path), metavar="DIR", help=cold_dir),
    )


ack_option = click.option(
    "--ack",
    type=click.Choice(["local", "cold"]),
    help="Where bytes are durable when they are acknowledged: on the local disk, or in the cold tier.",
)


def require_bucket(bucket: str | None, cold_url: str | None, needing: Mapping[str, object]) -> None:
    """Raise UsageError for an option of a bucket that is given without one; a URL says itself what it needs."""
    given = next((key for key, value in needing.items() if value), None)
    if bucket is None and cold_url is None and given is not None:
        raise click.UsageError(f"--{given.replace('_', '-')} needs --bucket")


# Accepted out of habit: sizes are human-readable without it, and exact with --json.
human_option = click.option("-h", "--human-readable", is_flag=True, expose_value=False, hidden=True)


def path_argument(name: str, *, optional: bool = False, metavar: str | None = None) -> Callable[[F], F]:
    """Return a decorator for one name; without it, and `optional`, the whole store."""
    whole: dict[str, Any] = {"default": ""} if optional else {}
    return click.argument(name, type=_NAME, metavar=metavar, **whole)


# The paths of a command to which none was given.
WHOLE = ("",)


def paths_argument(name: str = "paths", *, optional: bool = False, metavar: str) -> Callable[[F], F]:
    """Return a decorator for several names; without any, and `optional`, the whole store."""

    def whole(ctx: click.Context, param: click.Parameter, typed: tuple[str, ...]) -> tuple[str, ...]:
        return typed or WHOLE

    return click.argument(
        name, nargs=-1, type=_NAME, required=not optional, metavar=metavar, callback=whole if optional else None
    )


def each_command(name: str, metavar: str, *, looks: bool = False) -> Callable[[Callable[..., None]], click.Command]:
    """Return a decorator as `command`, for a function of the session, the open store and a name, called for each name.

    Brackets around `metavar` make the names optional: without one it is called for the whole store.
    """

    def decorate(function: Callable[..., None]) -> click.Command:
        @wraps(function)
        def call(session: Session, paths: tuple[str, ...], **options: Any) -> None:
            with session.open_store(looks=looks) as store:
                each(session, store, paths, lambda path: function(session, store, path, **options))

        return command(name)(paths_argument(optional=metavar.startswith("["), metavar=metavar)(call))

    return decorate


def each(session: Session, store: Store, typed: Sequence[str], work: Callable[[str], None]) -> None:
    """Call `work` with each name that paths and patterns stand for, as `each_name`."""
    each_name(session, *names_of(session, store, typed), work)


def names_of(
    session: Session, store: Store, typed: Sequence[str], *, missing_ok: bool = False
) -> tuple[list[str], int]:
    """Return the names that paths and patterns stand for, each once, and the exit code of what stands for none.

    The error of a path that is alone is raised, others are reported. With `missing_ok` a pattern may match nothing.
    """
    names: dict[str, None] = {}
    code = 0
    for text in typed:
        try:
            names.update(dict.fromkeys(join(split(name)) for name in store.names_of(text)))
        except _OF_THE_PATH as exc:
            if missing_ok and isinstance(exc, NotFound):
                continue
            if len(typed) == 1:
                raise
            reported = errors.report(exc, session)
            code = code or reported
    return list(names), code


def each_name(session: Session, names: Sequence[str], code: int, work: Callable[[str], None]) -> None:
    """Call `work` with each name; exit with `code`, or the code of the first failure, if there is one.

    What fails is reported and the next is tried, as by rm(1). The error of a name that is alone is raised.
    """
    for name in names:
        try:
            work(name)
        except _OF_THE_PATH as exc:
            if len(names) == 1 and not code:
                raise
            reported = errors.report(exc, session)
            code = code or reported
    if code:
        raise click.exceptions.Exit(code)
