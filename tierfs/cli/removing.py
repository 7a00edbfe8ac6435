"""tierfs rm."""

from __future__ import annotations

import sys
from dataclasses import asdict

import click

from tierfs import names
from tierfs.cli.context import Context, pass_context
from tierfs.cli.format import count, size
from tierfs.cli.output import emit, warn
from tierfs.errors import InvalidRequest
from tierfs.segments.delete import Deletion


@click.command("rm")
@click.argument("path")
@click.option("-r", "recursive", is_flag=True, help="A directory, with everything below it.")
@click.option("--dry-run", is_flag=True, help="Say what would go.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@pass_context
def rm_command(context: Context, path: str, recursive: bool, dry_run: bool, yes: bool) -> None:
    """Delete a segment, or with -r a directory. Its cold objects go after the grace period."""
    with context.open() as store:
        name = store.segment_of_path(path)
        planned = store.plan_delete(name, recursive=recursive)
        if not dry_run:
            _confirm(name, planned, yes=yes)
            planned = store.delete(name, recursive=recursive)
            reason = store.settle()
            if reason is not None and not context.as_json:
                warn(context, f"the bucket does not know of it yet: {reason}")
    if context.as_json:
        emit({"path": name, "dry_run": dry_run, **asdict(planned)})
    else:
        print(f"{'would delete' if dry_run else 'deleted'} {_describe(planned)}")


def _confirm(name: str, planned: Deletion, *, yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise InvalidRequest(
            f"rm {names.printable(name)} would delete {_describe(planned)}", remedy="add --yes to do it"
        )
    click.confirm(f"delete {_describe(planned)}?", abort=True)


def _describe(planned: Deletion) -> str:
    total = max(planned.local_bytes, planned.cold_bytes)
    return (
        f"{count(planned.segments, 'segment')} ({size(total)}; {size(planned.local_bytes)} local, "
        f"{count(planned.cold_objects, 'cold object')} of {size(planned.cold_bytes)})"
    )
