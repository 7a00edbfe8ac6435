"""tierfs offload, evict."""

from __future__ import annotations

from dataclasses import asdict

import click

from tierfs import names
from tierfs.cli.context import Context, pass_context
from tierfs.cli.format import count, size
from tierfs.cli.output import emit, progress


@click.command("offload")
@click.argument("path", default="")
@pass_context
def offload_command(context: Context, path: str) -> None:
    """Make every byte below PATH cold, verified and named by the journal. The root by default."""
    with context.open() as store, progress(context, "offload") as report:
        name = store.segment_of_path(path)
        done = store.offload(name, report)
    if context.as_json:
        emit({"path": name, **asdict(done)})
    elif not done.objects:
        print(f"nothing to offload below {names.printable(name) or '/'}: {size(done.already_cold_bytes)} are cold")
    else:
        print(
            f"offloaded {size(done.bytes)} of {count(done.segments, 'segment')} in {count(done.objects, 'object')}"
            + (f"; {size(done.already_cold_bytes)} were cold already" if done.already_cold_bytes else "")
        )


@click.command("evict")
@click.argument("path", default="")
@click.option("--force", is_flag=True, help="Also segments whose read priority is local-only.")
@click.option("--dry-run", is_flag=True, help="Say what would go.")
@pass_context
def evict_command(context: Context, path: str, force: bool, dry_run: bool) -> None:
    """Drop the local bytes below PATH that are safely cold. The root by default."""
    with context.open() as store, progress(context, "evict") as report:
        name = store.segment_of_path(path)
        done = store.evict(name, force=force, dry_run=dry_run, report=report)
    if context.as_json:
        emit({"path": name, "dry_run": dry_run, **asdict(done)})
        return
    verb = "would evict" if dry_run else "evicted"
    if done.chunks:
        print(f"{verb} {size(done.bytes)} in {count(done.chunks, 'chunk')}")
    else:
        print(f"nothing to evict below {names.printable(name) or '/'}")
    for reason, kept in done.reasons.items():
        print(f"  {size(kept)} stay: {reason}")
