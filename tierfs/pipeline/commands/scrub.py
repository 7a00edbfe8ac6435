"""Define tierfs pipeline scrub: check every byte of every copy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from tierfs.faces.cli import output
from tierfs.faces.cli.errors import EXIT_DAMAGED, EXIT_UNCHECKED
from tierfs.faces.cli.group import command
from tierfs.faces.cli.paths import paths_argument
from tierfs.faces.cli.session import Session
from tierfs.pipeline.commands.job import Job, job_options, rows_option


@command("scrub")
@paths_argument(optional=True, metavar="[PATHS]...")
@job_options
@rows_option
def scrub(session: Session, paths: Sequence[str], job: Job) -> None:
    """Check every byte of every copy in both tiers.

    Checks segments at and below PATHs; without a PATH, the whole store. Prints a row for each run of bytes that is
    damaged, missing, not reachable, or not visible: only executors that see the store's directory check local copies.
    Nothing is changed; to repair: tierfs check --repair.

    \b
    Exit codes:
       0  all copies were read and are valid
      11  no damage, but some copies could not be checked
      74  a copy is damaged or missing
    """
    with job.running(session, "scrub") as (spark, store, show):
        from tierfs.pipeline.spark.jobs.scrub import scrub as run

        names = store.names_of(*paths)
        result = run(spark, store, names, show=show)
    sums = result.summary
    job.finish(session, result, _scrubbed(sums))
    unchecked = any(sums[each] for each in ("unseen_bytes", "unreachable_bytes", "unreachable_objects"))
    damaged = sums["damaged_bytes"] or sums["absent_objects"]
    raise click.exceptions.Exit(EXIT_DAMAGED if damaged else EXIT_UNCHECKED if unchecked else 0)


def _scrubbed(sums: Mapping[str, Any]) -> str:
    read_bytes, seconds = sums["local_bytes"] + sums["cold_bytes"], sums["seconds"]
    tiers = f"{output.size(sums['local_bytes'])} local, {output.size(sums['cold_bytes'])} cold"
    per_second = f"{output.size(int(read_bytes / seconds))}/s" if seconds else "-"
    lines = [f"checked {output.count(sums['segments'], 'segment')}: {tiers} ({output.duration(seconds)}, {per_second})"]
    if sums["damaged_bytes"]:
        damaged = output.size(sums["damaged_bytes"])
        lines.append(f"{damaged} damaged or missing; to repair: tierfs check --read --repair")
    if sums["absent_objects"]:
        lines.append(f"{output.count(sums['absent_objects'], 'object')} of empty ledgers missing or damaged")
    if sums["unreachable_objects"]:
        lines.append(f"not checked: {output.count(sums['unreachable_objects'], 'object')} not reachable")
    if sums["unseen_bytes"]:
        lines.append(f"not checked: {output.size(sums['unseen_bytes'])} not visible to executors")
    if sums["unreachable_bytes"]:
        lines.append(f"not checked: {output.size(sums['unreachable_bytes'])} in places that are not reachable")
    return "\n".join(lines if len(lines) > 1 else [*lines, "no problem"])
