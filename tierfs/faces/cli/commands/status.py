"""Define tierfs status: `ok` or the problems, then the state. `--check` reduces it to a line and an exit code.

For a fenced store it adds the ranges of bytes that only its disk holds, each with the command that exports it.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tierfs.base.words.errors import TierfsError
from tierfs.base.words.names import printable
from tierfs.faces.cli import output
from tierfs.faces.cli.commands.status_watch import watch
from tierfs.faces.cli.drawing import live
from tierfs.faces.cli.drawing.problems import check_line, failed_line, head
from tierfs.faces.cli.group import command
from tierfs.faces.cli.parameter_types import Duration
from tierfs.faces.cli.session import Session, as_json
from tierfs.upkeep.holder.problem import Gravity, worst

if TYPE_CHECKING:
    from tierfs.app.health import StoreHealth
    from tierfs.app.store import Store
    from tierfs.upkeep.holder.local_only import LocalOnly

# Between two looks of --watch, in seconds, as watch(1) has it.
_INTERVAL_S = "2"

# Ranges in the text output; --json has all.
_SHOWN = 20


def _print_fenced(
    session: Session, data: Mapping[str, Any], text: str, store: Path, ranges: Iterable[LocalOnly]
) -> None:
    """Print the status of a fenced store; ranges are streamed, as there may be many."""
    if session.json:
        click.echo(as_json(data).removesuffix("}") + ', "only_here": [', nl=False)
        for number, run in enumerate(ranges):
            exported = as_json({**output.fields(run), "export": _export(store, run)})
            click.echo((", " if number else "") + exported, nl=False)
        click.echo("]}")
        return
    click.echo(text)
    count = size_bytes = 0
    for run in ranges:
        count, size_bytes = count + 1, size_bytes + run.end - run.start
        if count == 1:
            click.echo("bytes only on this disk; each command writes a range to standard output:")
        if count <= _SHOWN:
            click.echo(f"  {printable(_export(store, run))}")
    if count > _SHOWN:
        click.echo(f"  and {output.count(count - _SHOWN, 'range')} more; all of them: tierfs status --json")
    click.echo(f"only on this disk: {output.size(size_bytes)} in {output.count(count, 'range')}")


def _export(store: Path, run: LocalOnly) -> str:
    """Return the command that writes a range to standard output."""
    command_line = f"tierfs --store {shlex.quote(str(store))} cat {shlex.quote(run.segment)}"
    return f"{command_line} --read-priority local-only --from {run.start} --to {run.end}"


@command("status")
@click.option("--check", is_flag=True, help="Print one line, for cron or Nagios; exit with 0, 1 (warning) or 2.")
@click.option(
    "-w",
    "--watch",
    "interval_s",
    type=Duration(live.SHORTEST_INTERVAL_S),
    is_flag=False,
    flag_value=_INTERVAL_S,
    metavar="[TIME]",
    help=f"Show it again after TIME, in seconds or like 500ms, until q or Ctrl-C.  [default TIME: {_INTERVAL_S}]",
)
def status(session: Session, check: bool, interval_s: float | None) -> None:
    """Show `ok` or the problems, then the store: its tiers, bytes not offloaded yet, the journal, background work.

    The worst problem is first, each with its remedy. --check exits with 0 if all is well, 1 if all problems are
    warnings, and 2 if one is critical or the store cannot be opened.

    --watch shows the status live on a terminal. Without one it is printed again and again; with --json one object per
    line.
    """
    if check:
        if interval_s is not None:
            raise click.UsageError("--check and --watch are mutually exclusive")
        _check(session)
        return
    if interval_s is not None:
        watch(session, interval_s, partial(_seen, session))
        return
    with session.open_store(looks=True) as store:
        seen = _look(store)
        report, text = seen.report, _text(seen)
        if not report.journal.fenced_by_epoch:
            session.result(seen.data(), text)
            return
        from tierfs.upkeep.holder.local_only import local_only

        with store.metadata.read() as txn:
            _print_fenced(session, seen.data(), text, store.path, local_only(txn))


def _seen(session: Session) -> tuple[dict[str, Any], str]:
    with session.open_store(looks=True) as store:
        seen = _look(store)
        return seen.data(), _text(seen)


def _check(session: Session) -> None:
    """Print the line of --check and exit with its code."""
    try:
        with session.open_store(looks=True) as store:
            seen = _look(store)
    except TierfsError as exc:
        gravity = Gravity.CRITICAL
        remedy = f"; {exc.remedy}" if exc.remedy else ""
        session.result({"check": gravity.label, "error": str(exc), "remedy": exc.remedy}, failed_line(f"{exc}{remedy}"))
    else:
        gravity = worst(seen.problems)
        session.result(seen.data(), check_line(seen.report, seen.problems))
    raise click.exceptions.Exit(int(gravity))


def _look(store: Store) -> StoreHealth:
    from tierfs.app.health import health_of

    return health_of(store, store.owner_watch.ask())


def _text(seen: StoreHealth) -> str:
    """Return the status for people."""
    from tierfs.app.status_rows import rows

    return "\n".join([*head(seen.problems, output.painted), "", output.table(rows(seen))])
