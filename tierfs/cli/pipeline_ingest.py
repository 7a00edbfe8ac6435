"""tierfs pipeline ingest."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from tierfs.cli import format
from tierfs.cli.lazy import command
from tierfs.cli.pipeline import check_output, finish, job_of, job_options, output_option, running
from tierfs.cli.session import Session
from tierfs.errors import InvalidRequest

_FORMATS = ("parquet", "json", "csv", "orc", "text")


@command("ingest")
@click.argument("sources", nargs=-1, required=True)
@click.option("--into", metavar="DIR", default="", help="The directory of the segments  [default: the root]")
@click.option("--key", metavar="COL", help="Read SOURCEs as tables; a segment for each value of this column.")
@click.option("--value", metavar="COL", default="value", show_default=True, help="With --key: lines, or bytes.")
@click.option("--order-by", metavar="COL,COL", default="", help="With --key: the order of a segment's rows.")
@click.option("--format", "file_format", type=click.Choice(_FORMATS), default="parquet", show_default=True)
@click.option("--application", metavar="NAME", help="With --version: do it once, however often it is run.")
@click.option("--version", type=click.IntRange(0), help="Of the application; a later one is higher.")
@click.option("--skip-existing", is_flag=True, help="Leave out files whose segments are there.")
@click.option("--no-seal", is_flag=True, help="Leave the segments open.")
@job_options
@output_option
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
    skip_existing: bool,
    no_seal: bool,
    master: str | None,
    settings: Sequence[str],
    output: Path | None,
) -> None:
    """Make segments of files, or of a table's rows by key. Executors upload them; one commit makes all, or none.

    A file becomes a segment of its name, those below a directory of their paths in it; executors have to see them at
    the same paths. With --key, SOURCEs are whatever Spark reads.
    """
    if (application is None) != (version is None):
        raise click.UsageError("--application and --version belong together")
    if key is not None and skip_existing:
        raise InvalidRequest("--skip-existing is for files", remedy="leave it out with --key")
    job = job_of(master, settings)
    check_output(output)
    with running(session, "ingest", job) as (spark, store, show):
        from tierfs.spark.jobs.ingest import Batch, ingest_files
        from tierfs.spark.jobs.ingest import ingest as ingest_rows
        from tierfs.spark.jobs.tasks import explained

        batch, seal = Batch(application, version or 0), not no_seal
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
    made = f"made {format.count(sums['segments'], 'segment')} of {format.size(sums['bytes'])}"
    text = "this version was ingested before" if sums["repeated"] else made
    skipped = f"; left out {sums['skipped']:,} that exist" if sums["skipped"] else ""
    finish(session, result, output, text + skipped)
