"""Define tierfs pipeline rebuild: rebuild the lost rows of ledgers' entries."""

from __future__ import annotations

import click

from tierfs.faces.cli import output
from tierfs.faces.cli.errors import EXIT_DAMAGED
from tierfs.faces.cli.group import command
from tierfs.faces.cli.session import Session
from tierfs.pipeline.commands.job import Job, job_options, rows_option


@command("rebuild")
@job_options
@rows_option
def rebuild(session: Session, job: Job) -> None:
    """Rebuild lost entry rows of ledgers.

    Rows are lost, for example, when a store with adopted ledgers is recovered. Executors read copies of the rows, or
    all objects of the ledgers, and check them against the store's checksums. Prints a row for each ledger whose rows
    were missing. Repeating it succeeds.

    \b
    Exit codes:
       0  every ledger has its rows
      74  a ledger's rows could not be rebuilt
    """
    with job.running(session, "rebuild") as (spark, store, show):
        from tierfs.pipeline.spark.jobs.rebuild import rebuild as run

        result = run(spark, store, show=show)
    failed, rebuilt = result.summary["failed"], output.count(result.summary["rebuilt"], "ledger")
    job.finish(session, result, f"rebuilt {rebuilt}" + (f", failed: {failed:,}" if failed else ""))
    raise click.exceptions.Exit(EXIT_DAMAGED if failed else 0)
