"""The group that loads a command's module when the command is called, and what all commands share.

The commands of `tierfs` by what they are for: where each one is, and the line that tells of it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, TypeVar

import click

from tierfs.cli import errors
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
            raise click.exceptions.Exit(errors.report(exc, session)) from exc
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
            code = errors.report(exc, session)
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


class Line(NamedTuple):
    """One command. `--help` shows the line without an import of the command: all of them would take a second."""

    target: str
    """`module:attribute`."""
    line: str
    """At most 62 characters, so that 80 columns show it whole."""


SECTIONS: Mapping[str, Mapping[str, Line]] = {
    "Store": {
        "init": Line("tierfs.cli.commands.init_status:init", "Make a store in the directory that --store names."),
        "status": Line(
            "tierfs.cli.commands.init_status:status", "Show its tiers, what is not offloaded yet, and its holder."
        ),
        "daemon": Line("tierfs.cli.commands.mount:daemon", "Hold it: offload, publish, evict and collect by policy."),
        "policy": Line(
            "tierfs.cli.commands.policy_config:policy", "Show and change policies of directories and segments."
        ),
        "config": Line("tierfs.cli.commands.policy_config:config", "Show settings, and where each comes from."),
    },
    "Write": {
        "append": Line(
            "tierfs.cli.commands.append:append", "Append files, or stdin, to a segment; durable at the end."
        ),
        "ingest": Line("tierfs.cli.commands.ingest:ingest", "Copy files and directories into segments of their names."),
        "seal": Line("tierfs.cli.commands.seal_unseal_rm:seal", "End a segment: it takes no more bytes."),
        "unseal": Line("tierfs.cli.commands.seal_unseal_rm:unseal", "Open a sealed segment again."),
        "concat": Line(
            "tierfs.cli.commands.concat_truncate:concat", "Append a sealed segment to another one, without a copy."
        ),
        "truncate": Line(
            "tierfs.cli.commands.concat_truncate:truncate", "Drop the bytes of a segment below an offset."
        ),
        "rm": Line("tierfs.cli.commands.seal_unseal_rm:rm", "Remove a segment, or with -r a directory."),
        "ledger": Line(
            "tierfs.cli.commands.ledger.ledger:ledger", "Work with ledgers: segments that are made of entries."
        ),
    },
    "Read": {
        "mount": Line("tierfs.cli.commands.mount:mount", "Mount the store as a read-only directory."),
        "umount": Line("tierfs.cli.commands.mount:umount", "Take a mount down."),
        "ls": Line("tierfs.cli.commands.ls_info_du_map:ls", "List the names in a directory."),
        "info": Line("tierfs.cli.commands.ls_info_du_map:info", "Show a segment: its range, and where its bytes are."),
        "map": Line("tierfs.cli.commands.ls_info_du_map:map_", "Draw which bytes of a segment are in which tier."),
        "du": Line("tierfs.cli.commands.ls_info_du_map:du", "Sum up the bytes below a directory, by tier."),
        "cat": Line("tierfs.cli.commands.cat:cat", "Write a segment's bytes to stdout, or follow it."),
        "top": Line("tierfs.cli.commands.top:top", "Watch a mount: what is read, and from which tier."),
    },
    "Tiers": {
        "offload": Line(
            "tierfs.cli.commands.offload_evict_consolidate:offload",
            "Make everything below a path cold, verified and published.",
        ),
        "evict": Line("tierfs.cli.commands.offload_evict_consolidate:evict", "Drop local bytes that are safely cold."),
        "consolidate": Line(
            "tierfs.cli.commands.offload_evict_consolidate:consolidate", "Join small neighbouring cold objects."
        ),
        "warmup": Line(
            "tierfs.cli.commands.warmup_verify:warmup", "Fill the disk cache with cold bytes ahead of reads."
        ),
    },
    "Care": {
        "doctor": Line("tierfs.cli.commands.doctor_bench:doctor", "Check the machine, the store and its cold tier."),
        "verify": Line("tierfs.cli.commands.warmup_verify:verify", "Read every byte from every tier that holds it."),
        "fsck": Line("tierfs.cli.commands.fsck:fsck", "Check the store's records, files and objects; mend them."),
        "gc": Line("tierfs.cli.commands.gc:gc", "List garbage and orphans; delete what is due."),
        "bench": Line("tierfs.cli.commands.doctor_bench:bench", "Measure reading through a mount, against its limits."),
        "pipeline": Line(
            "tierfs.cli.commands.pipeline.pipeline:pipeline", "Run heavy work as Spark jobs: scrub, report, export…"
        ),
    },
    "Move": {
        "adopt": Line("tierfs.cli.commands.adopt:adopt", "Make segments of objects that others wrote, where they lie."),
        "replica": Line(
            "tierfs.cli.commands.recover:replica", "Make a read-only store that follows another one's bucket."
        ),
        "recover": Line("tierfs.cli.commands.recover:recover", "Rebuild a lost store from its bucket."),
        "dump": Line(
            "tierfs.cli.commands.dump_load:dump", "Write all metadata to a file, or a segment's to the bucket."
        ),
        "load": Line("tierfs.cli.commands.dump_load:load", "Make a store of a dump, or bring a segment back."),
    },
}
"""In the order in which `--help` shows them."""
