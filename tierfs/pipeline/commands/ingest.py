"""Define tierfs pipeline ingest: make segments of files, or of a table's rows by key."""

from __future__ import annotations

from collections.abc import Sequence

import click

from tierfs.base.words.errors import InvalidRequest
from tierfs.faces.cli import output
from tierfs.faces.cli.group import command
from tierfs.faces.cli.session import Session
from tierfs.pipeline.commands.job import Job, job_options, rows_option


@command("ingest")
@click.argument("sources", nargs=-1, required=True)
@click.option("--into", metavar="DIR", default="", help="Target directory in the store  [default: the root]")
@click.option("--key", metavar="COL", help="Read SOURCEs as tables; make a segment for each value of this column.")
@click.option(
    "--value", metavar="COL", default="value", show_default=True, help="With --key: column with the lines or bytes."
)
@click.option("--order-by", metavar="COL,COL", default="", help="With --key: columns to sort a segment's rows by.")
@click.option(
    "--format",
    "file_format",
    type=click.Choice(("parquet", "json", "csv", "orc", "text")),
    default="parquet",
    show_default=True,
    help="With --key: format of SOURCEs.",
)
@click.option("--application", metavar="NAME", help="With --version: ingest once, even if the job is repeated.")
@click.option("--version", type=click.IntRange(0), help="With --application: number of the ingest.")
@click.option(
    "--acknowledge",
    type=click.Choice(("journal", "local")),
    default="journal",
    show_default=True,
    help="Return when the segments are in the bucket's journal (cold), or when they are on this disk (local).",
)
@click.option("--skip-existing", is_flag=True, help="Skip files whose segments exist.")
@click.option("--no-seal", is_flag=True, help="Do not seal the segments.")
@job_options
@rows_option
def ingest(
    session: Session,
    sources: Sequence[str],
    into: str,
    key: str | None,
    value: str,
    order_by: str,
    file_format: str,
    application: str | None,
    version: int | None,
    acknowledge: str,
    skip_existing: bool,
    no_seal: bool,
    job: Job,
) -> None:
    """Make segments of files, or of a table's rows by key. Executors upload them; one commit creates all, or none.

    A file becomes a segment of its name; a file below a directory, one of its path in it, after the directory's name if
    there are several SOURCEs; executors must see them at the same paths. With --key, SOURCEs are any input that Spark
    reads.
    """
    if (application is None) != (version is None):
        raise click.UsageError("--application and --version need each other")
    if key is not None and skip_existing:
        raise InvalidRequest("--skip-existing is only for files", remedy="do not use it with --key")
    with job.running(session, "ingest") as (spark, store, show):
        from tierfs.app.batches.executor import Acknowledge
        from tierfs.pipeline.spark.jobs.ingest import Batch, ingest_files
        from tierfs.pipeline.spark.jobs.ingest import ingest as ingest_rows
        from tierfs.pipeline.spark.jobs.tasks import explained

        batch, seal = Batch(application, version or 0, Acknowledge(acknowledge)), not no_seal
        into = store.segment_of_path(into)
        if key is None:
            result = ingest_files(
                spark, store, sources, into, batch=batch, skip_existing=skip_existing, seal=seal, show=show
            )
        else:
            with explained():
                frame = spark.read.format(file_format).load(list(sources))
            order = [name for name in order_by.split(",") if name]
            result = ingest_rows(frame, store, into, key=key, value=value, order_by=order, batch=batch, seal=seal)
    sums = result.summary
    made = f"made {output.count(sums['segments'], 'segment')} of {output.size(sums['bytes'])}"
    text = "this version was already ingested" if sums["repeated"] else made
    skipped = f"; skipped {sums['skipped']:,} that exist" if sums["skipped"] else ""
    job.finish(session, result, text + skipped)
