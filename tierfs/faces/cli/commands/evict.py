"""Define tierfs evict: drop local copies of bytes that are safely cold."""

from __future__ import annotations

import click

from tierfs.app.store import Store
from tierfs.base.words.names import printable
from tierfs.faces.cli import output
from tierfs.faces.cli.options import dry_run_option
from tierfs.faces.cli.parameter_types import Size
from tierfs.faces.cli.paths import each_command
from tierfs.faces.cli.progress import perform_shown
from tierfs.faces.cli.session import Session


@each_command("evict", "[PATH]...")
@click.option("--force", is_flag=True, help="Also evict bytes whose read priority is local-only.")
@click.option("--keep", type=Size(), metavar="SIZE", help="Keep the newest bytes of each segment on this disk.")
@dry_run_option("Show the bytes to evict, and change nothing.")
def evict(session: Session, store: Store, name: str, force: bool, keep: int | None, dry_run: bool) -> None:
    """Drop the local copies of bytes below each PATH that are safe in the cold tier; without PATH, of all such bytes.

    Bytes that are not cold are never dropped. --keep SIZE keeps at least the newest SIZE bytes, counted as by offload.
    """
    from tierfs.upkeep.holder.verbs import DRY_RUN, EVICT, EVICT_PART, FORCE, KEEP, flags

    verb, options = EVICT, dict(flags({FORCE: force, DRY_RUN: dry_run}))
    if keep is not None:
        verb, options = EVICT_PART, {**options, KEEP: str(keep)}
    done = perform_shown(session, store, verb, name, options)
    evicted = f"{output.size(done.bytes)} in {output.count(done.chunks, 'chunk')}"
    nothing = f"nothing to evict below {output.path(name)}"
    lines = [f"{'would evict' if dry_run else 'evicted'} {evicted}" if done.chunks else nothing]
    lines += [f"  kept {output.size(size)}: {printable(reason)}" for reason, size in sorted(done.reasons.items())]
    session.done({"path": name, "dry_run": dry_run, **output.fields(done)}, "\n".join(lines))
