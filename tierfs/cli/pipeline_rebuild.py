"""tierfs pipeline rebuild."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from tierfs.cli import format
from tierfs.cli.lazy import command
from tierfs.cli.pipeline import check_output, finish, job_of, job_options, output_option, running
from tierfs.cli.session import Session

_EXIT_DAMAGED = 74


@command("rebuild")
@job_options
@output_option
def rebuild(session: Session, master: str | None, settings: Sequence[str], output: Path | None) -> None:
    """Find where the entries of ledgers lie, where the store has lost it: adopted ledgers after a recovery.

    Executors read the copies of the rows, or all of the ledgers' objects, and check them against the checksums that
    the store has. A row for each ledger that lacked its rows. Run it as often as you like.

    \b
    Exit codes:
       0  every ledger has its rows
      74  one could not be rebuilt
    """
    job = job_of(master, settings)
    check_output(output)
    with running(session, "rebuild", job) as (spark, store, show):
        from tierfs.spark.jobs.rebuild import rebuild as run

        result = run(spark, store, show=show)
    failed, rebuilt = result.summary["failed"], format.count(result.summary["rebuilt"], "ledger")
    finish(session, result, output, f"rebuilt {rebuilt}" + (f", failed: {failed:,}" if failed else ""))
    raise click.exceptions.Exit(_EXIT_DAMAGED if failed else 0)
