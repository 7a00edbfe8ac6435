"""tierfs status."""

from __future__ import annotations

from dataclasses import asdict

import click

from tierfs.cli.context import Context, pass_context
from tierfs.cli.format import count, size
from tierfs.cli.output import emit
from tierfs.mounts import mounts


@click.command("status")
@pass_context
def status_command(context: Context) -> None:
    """What the tiers hold, what waits, and who works on it."""
    with context.open() as store:
        status = store.status()
        points = [str(mount.mountpoint) for mount in mounts() if mount.store == store.path]
    if context.as_json:
        emit({**asdict(status), "mounts": points})
        return
    print(f"store     {status.path} (epoch {status.store_epoch}), cold tier {status.cold_url or 'none'}")
    print(f"holds     {count(status.segments, 'segment')}, {size(status.bytes)}")
    print(f"local     {count(status.local.chunks, 'chunk')}, {size(status.local.bytes)};", end=" ")
    print(f"{size(status.local_free_bytes)} of the disk free")
    print(f"cold      {count(status.cold.chunks, 'object')}, {size(status.cold.bytes)}")
    print(f"not cold  {size(status.not_offloaded_bytes)}")
    print(f"journal   slot {status.journal.slot}, {count(status.journal.unpublished, 'change')} to publish")
    print(f"uploads   {status.uploads_in_flight} in flight or left by a crash")
    print(f"garbage   {status.garbage:,} to delete, {size(status.garbage_bytes)}")
    for error in status.garbage_errors:
        print(f"          {error}")
    print(f"holder    {status.holder or 'none'}")
    for point in points:
        print(f"mount     {point}")
    for warning in status.warnings:
        print(f"warning   {warning}")
