"""Define tierfs pipeline export: write segments to a Parquet table."""

from __future__ import annotations

from collections.abc import Sequence

import click

from tierfs.faces.cli import output
from tierfs.faces.cli.group import command
from tierfs.faces.cli.session import Session
from tierfs.pipeline.commands.job import Job, job_options, rows_options


@command("export")
@rows_options(
    ("lines", "bytes", "entries", "messages"),
    "DIR",
    "Target directory, or a URL that Spark can write to.",
    "COL,COL",
    "Columns to partition by, as directories.",
)
@click.option("--unbatch", is_flag=True, help="With --type entries: write one entry for each message.")
@click.option(
    "--compression",
    type=click.Choice(("zstd", "snappy", "gzip", "lz4", "none")),
    default="zstd",
    show_default=True,
    help="Compression of the table.",
)
@click.option("--append", "if_there", flag_value="append", help="Add to the content of DIR; with --run.")
@click.option("--overwrite", "if_there", flag_value="overwrite", help="Replace the content of DIR.")
@click.option("--run", metavar="NAME", default="", help="Export once: repeating a run that is done writes nothing.")
@click.option("--verify", is_flag=True, help="Read the table back and compare it.")
@job_options
def export(
    session: Session,
    paths: Sequence[str],
    target: str,
    row_type: str,
    unbatch: bool,
    partition_by: Sequence[str],
    compression: str,
    if_there: str | None,
    run: str,
    verify: bool,
    job: Job,
) -> None:
    """Write segments at and below PATHs to a Parquet table.

    Rows are lines or bytes of segments, or entries or messages of ledgers. If DIR is not empty, it fails, except with
    --append or --overwrite. It counts rows and bytes while it writes, and computes a checksum of all rows. The table is
    written elsewhere and moved into DIR when it is complete; after a kill, run the same command again.
    """
    with job.running(session, "export") as (spark, store, show):
        from tierfs.pipeline.reader.scrub_waves import wanted_segments
        from tierfs.pipeline.spark.jobs.export import Exporting, IfThere
        from tierfs.pipeline.spark.jobs.export import export as write
        from tierfs.pipeline.spark.row_types import RowType

        how = Exporting(
            RowType(row_type), unbatch, tuple(partition_by), compression, IfThere(if_there or "error"), verify, run
        )
        names = store.names_of(*paths)
        _, total_bytes = wanted_segments(store.metadata, names)
        result = write(spark, str(store.path), names, target, how, show=show, total_bytes=total_bytes)
    row = result.as_json()["rows"][0]
    counted = f"{row['rows']:,} rows, {output.size(row['bytes'])}, checksum {row['checksum']}"
    text = f"{counted}{', read back and equal' if verify else ''}"
    job.finish(session, result, f"this run was already exported: {counted}" if result.summary["repeated"] else text)
