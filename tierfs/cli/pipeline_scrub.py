"""tierfs pipeline scrub."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from tierfs.cli import format
from tierfs.cli.lazy import command
from tierfs.cli.pipeline import check_output, finish, job_of, job_options, output_option, per_second, running
from tierfs.cli.session import Session

_EXIT_UNCHECKED = 11
_EXIT_DAMAGED = 74


@command("scrub")
@click.argument("paths", nargs=-1)
@job_options
@output_option
def scrub(
    session: Session, paths: Sequence[str], master: str | None, settings: Sequence[str], output: Path | None
) -> None:
    """Check every byte of every copy, in both tiers, at and below PATHs; all of the store without one.

    A row for each run of bytes that is damaged, missing, not reachable, or not seen: local copies are checked by
    executors that see the store's directory. Nothing is changed; tierfs fsck --repair mends.

    \b
    Exit codes:
       0  all copies were read and are right
      11  nothing is wrong, but some copies could not be checked
      74  a copy is damaged or missing
    """
    job = job_of(master, settings)
    check_output(output)
    with running(session, "scrub", job) as (spark, store, show):
        from tierfs.spark.jobs.scrub import scrub as run

        names = [store.segment_of_path(path) for path in paths]
        result = run(spark, store, names, show=show)
    finish(session, result, output, _summary(result.summary))
    raise click.exceptions.Exit(_exit_code(result.summary))


def _exit_code(sums: Mapping[str, Any]) -> int:
    if sums["damaged_bytes"]:
        return _EXIT_DAMAGED
    return _EXIT_UNCHECKED if sums["unseen_bytes"] or sums["unreachable_bytes"] else 0


def _summary(sums: Mapping[str, Any]) -> str:
    read_bytes = sums["local_bytes"] + sums["cold_bytes"]
    tiers = f"{format.size(sums['local_bytes'])} local, {format.size(sums['cold_bytes'])} cold"
    segments = format.count(sums["segments"], "segment")
    speed = f"{format.duration(sums['seconds'])}, {per_second(read_bytes, sums['seconds'])}"
    lines = [f"checked {segments}: {tiers} ({speed})"]
    if sums["damaged_bytes"]:
        lines.append(f"{format.size(sums['damaged_bytes'])} damaged or missing; mend with: tierfs fsck --deep --repair")
    if sums["unseen_bytes"]:
        lines.append(f"not checked: {format.size(sums['unseen_bytes'])} that executors do not see")
    if sums["unreachable_bytes"]:
        lines.append(f"not checked: {format.size(sums['unreachable_bytes'])} in places that are not reachable")
    if len(lines) == 1:
        lines.append("all right")
    return "\n".join(lines)
