"""tierfs pipeline export."""

from __future__ import annotations

from collections.abc import Sequence

import click

from tierfs.cli import format
from tierfs.cli.lazy import command
from tierfs.cli.pipeline import finish, job_of, job_options, running
from tierfs.cli.session import Session

_TYPES = ("lines", "bytes", "entries", "messages")
_COMPRESSIONS = ("zstd", "snappy", "gzip", "lz4", "none")


@command("export")
@click.argument("paths", nargs=-1, required=True)
@click.option("--to", "target", required=True, metavar="DIR", help="A directory, or a URL that Spark writes to.")
@click.option("--type", "row_type", type=click.Choice(_TYPES), default="lines", show_default=True, help="A row is one.")
@click.option("--unbatch", is_flag=True, help="With --type entries: an entry of its own for each message.")
@click.option("--partition-by", metavar="COL,COL", default="", help="Columns that become directories.")
@click.option("--compression", type=click.Choice(_COMPRESSIONS), default="zstd", show_default=True)
@click.option("--append", "if_there", flag_value="append", help="Add to what DIR holds.")
@click.option("--overwrite", "if_there", flag_value="overwrite", help="Replace what DIR holds.")
@click.option("--verify", is_flag=True, help="Read the table back and compare it.")
@job_options
def export(
    session: Session,
    paths: Sequence[str],
    target: str,
    row_type: str,
    unbatch: bool,
    partition_by: str,
    compression: str,
    if_there: str | None,
    verify: bool,
    master: str | None,
    settings: Sequence[str],
) -> None:
    """Write lines, or entries or messages of ledgers, at and below PATHs to a Parquet table.

    A DIR that holds something is refused. Rows, bytes and a checksum of all rows are counted while they are written.
    """
    job = job_of(master, settings)
    with running(session, "export", job) as (spark, store, show):
        from tierfs.scan.scrub_planning import wanted_segments
        from tierfs.spark.jobs.export import Exporting, IfThere
        from tierfs.spark.jobs.export import export as run
        from tierfs.spark.options import RowType

        columns = tuple(name for name in partition_by.split(",") if name)
        how = Exporting(RowType(row_type), unbatch, columns, compression, IfThere(if_there or "error"), verify)
        names = [store.segment_of_path(path) for path in paths]
        _, total_bytes = wanted_segments(store.metadata, names)
        result = run(spark, str(store.path), names, target, how, show=show, total_bytes=total_bytes)
    row = result.as_json()["rows"][0]
    counted = f"{row['rows']:,} rows, {format.size(row['bytes'])}, checksum {row['checksum']}"
    finish(session, result, None, f"{counted}{', read back and equal' if verify else ''}")
