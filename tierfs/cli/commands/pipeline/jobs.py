"""Define tierfs pipeline ingest, scrub, export, report and rebuild."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from tierfs.cli import output
from tierfs.cli import output as format
from tierfs.cli.commands.pipeline.pipeline import (
    check_output,
    finish,
    job_of,
    job_options,
    output_option,
    per_second,
    running,
)
from tierfs.cli.group import command, path_argument, paths_argument
from tierfs.cli.progress import progress_line
from tierfs.cli.session import Session
from tierfs.errors import InvalidRequest
from tierfs.names import printable

_FORMATS = ("parquet", "json", "csv", "orc", "text")


@command("ingest")
@click.argument("sources", nargs=-1, required=True)
@click.option("--into", metavar="DIR", default="", help="Target directory in the store  [default: the root]")
@click.option("--key", metavar="COL", help="Read SOURCEs as tables; make a segment for each value of this column.")
@click.option(
    "--value", metavar="COL", default="value", show_default=True, help="With --key: column with the lines or bytes."
)
@click.option("--order-by", metavar="COL,COL", default="", help="With --key: columns that order a segment's rows.")
@click.option(
    "--format",
    "file_format",
    type=click.Choice(_FORMATS),
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
    help="Succeed when the bucket's journal names the segments, or when this disk does.",
)
@click.option("--skip-existing", is_flag=True, help="Leave out files whose segments exist.")
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
    acknowledge: str,
    skip_existing: bool,
    no_seal: bool,
    master: str | None,
    settings: Sequence[str],
    output: Path | None,
) -> None:
    """Make segments of files, or of a table's rows by key. Executors upload them; one commit creates all, or none.

    A file becomes a segment of its name, a file below a directory one of its path in it, behind the directory's name if
    there are several SOURCEs; executors must see them at the same paths. With --key, SOURCEs are any input that Spark
    reads.
    """
    if (application is None) != (version is None):
        raise click.UsageError("--application and --version belong together")
    if key is not None and skip_existing:
        raise InvalidRequest("--skip-existing is for files", remedy="leave it out with --key")
    job = job_of(master, settings)
    check_output(output)
    with running(session, "ingest", job) as (spark, store, show):
        from tierfs.app.upload_task import Acknowledge
        from tierfs.spark.jobs.ingest import Batch, ingest_files
        from tierfs.spark.jobs.ingest import ingest as ingest_rows
        from tierfs.spark.jobs.tasks import explained

        batch, seal = Batch(application, version or 0, Acknowledge(acknowledge)), not no_seal
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


_EXIT_UNCHECKED = 11
_EXIT_DAMAGED = 74


@command("scrub")
@paths_argument(optional=True, metavar="[PATHS]...")
@job_options
@output_option
def scrub(
    session: Session, paths: Sequence[str], master: str | None, settings: Sequence[str], output: Path | None
) -> None:
    """Check every byte of every copy in both tiers.

    Checks segments at and below PATHs; without a PATH, the whole store. Prints a row for each run of bytes that is
    damaged, missing, not reachable, or not seen: local copies are checked by executors that see the store's directory.
    Nothing is changed; tierfs fsck --repair repairs.

    \b
    Exit codes:
       0  all copies were read and are good
      11  no damage, but some copies could not be checked
      74  a copy is damaged or missing
    """
    job = job_of(master, settings)
    check_output(output)
    with running(session, "scrub", job) as (spark, store, show):
        from tierfs.spark.jobs.scrub import scrub as run

        names = [name for path in paths for name in store.names_of(path)]
        result = run(spark, store, names, show=show)
    finish(session, result, output, _summary(result.summary))
    raise click.exceptions.Exit(_exit_code(result.summary))


def _exit_code(sums: Mapping[str, Any]) -> int:
    if sums["damaged_bytes"]:
        return _EXIT_DAMAGED
    return _EXIT_UNCHECKED if sums["unseen_bytes"] or sums["unreachable_bytes"] else 0


def _summary(sums: Mapping[str, Any]) -> str:
    read_bytes = sums["local_bytes"] + sums["cold_bytes"]
    tiers = f"{output.size(sums['local_bytes'])} local, {output.size(sums['cold_bytes'])} cold"
    segments = output.count(sums["segments"], "segment")
    speed = f"{output.duration(sums['seconds'])}, {per_second(read_bytes, sums['seconds'])}"
    lines = [f"checked {segments}: {tiers} ({speed})"]
    if sums["damaged_bytes"]:
        lines.append(
            f"{output.size(sums['damaged_bytes'])} damaged or missing; repair with: tierfs fsck --deep --repair"
        )
    if sums["unseen_bytes"]:
        lines.append(f"not checked: {output.size(sums['unseen_bytes'])} that executors do not see")
    if sums["unreachable_bytes"]:
        lines.append(f"not checked: {output.size(sums['unreachable_bytes'])} in places that are not reachable")
    if len(lines) == 1:
        lines.append("all right")
    return "\n".join(lines)


_TYPES = ("lines", "bytes", "entries", "messages")
_COMPRESSIONS = ("zstd", "snappy", "gzip", "lz4", "none")


@command("export")
@paths_argument(metavar="PATHS...")
@click.option(
    "--to", "target", required=True, metavar="DIR", help="Target directory, or a URL that Spark can write to."
)
@click.option(
    "--type", "row_type", type=click.Choice(_TYPES), default="lines", show_default=True, help="Content of a row."
)
@click.option("--unbatch", is_flag=True, help="With --type entries: write one entry for each message.")
@click.option("--partition-by", metavar="COL,COL", default="", help="Columns that become directories.")
@click.option(
    "--compression",
    type=click.Choice(_COMPRESSIONS),
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
    partition_by: str,
    compression: str,
    if_there: str | None,
    run: str,
    verify: bool,
    master: str | None,
    settings: Sequence[str],
) -> None:
    """Write segments at and below PATHs to a Parquet table.

    Rows are lines or bytes of segments, or entries or messages of ledgers. Fails if DIR is not empty, without --append
    or --overwrite. Rows, bytes and a checksum of all rows are counted while they are written. The table is written
    aside and moved into DIR when it is whole; an export that was killed is repeated with the same command.
    """
    job = job_of(master, settings)
    with running(session, "export", job) as (spark, store, show):
        from tierfs.scan.scrubbing import wanted_segments
        from tierfs.spark.jobs.export import Exporting, IfThere
        from tierfs.spark.jobs.export import export as write
        from tierfs.spark.row_types import RowType

        columns = tuple(name for name in partition_by.split(",") if name)
        how = Exporting(RowType(row_type), unbatch, columns, compression, IfThere(if_there or "error"), verify, run)
        names = [name for path in paths for name in store.names_of(path)]
        _, total_bytes = wanted_segments(store.metadata, names)
        result = write(spark, str(store.path), names, target, how, show=show, total_bytes=total_bytes)
    row = result.as_json()["rows"][0]
    counted = f"{row['rows']:,} rows, {output.size(row['bytes'])}, checksum {row['checksum']}"
    if result.summary["repeated"]:
        finish(session, result, None, f"this run was exported before: {counted}")
    else:
        finish(session, result, None, f"{counted}{', read back and equal' if verify else ''}")


_HTML = ".html"
_SHOWN = 20
_TITLES = {"total": "", "age": "since the last append", "policy": "policy in force", "directory": "directory"}
_COLUMNS = (">10", ">10", ">10", ">10", "<")


@command("report")
@path_argument("path", optional=True)
@click.option(
    "--depth", type=click.IntRange(1), default=1, show_default=True, help="Number of directory levels below PATH."
)
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Also write the report: .parquet, .csv, .json (an object per line), or .html with charts.",
)
@click.option("--gib-month", type=float, default=0.023, show_default=True, help="Dollars per GiB and month.")
@click.option("--thousand-gets", type=float, default=0.0004, show_default=True, help="Dollars per 1000 GET.")
@click.option("--thousand-puts", type=float, default=0.005, show_default=True, help="Dollars per 1000 PUT.")
def report(
    session: Session,
    path: str,
    depth: int,
    output: Path | None,
    gib_month: float,
    thousand_gets: float,
    thousand_puts: float,
) -> None:
    """Sum up bytes below PATH, and estimate the costs of the cold tier.

    Bytes are summed up by tier, age, policy and directory. Only metadata is read, so Spark is not started. Default
    prices: S3 Standard, us-east-1, the first 50 TB, January 2025. Costs are for the whole store: its objects, garbage
    that waits for deletion, the uploads of the last 30 days, and the GETs that read all of it once, 8 MiB each.
    """
    check_output(output, [_HTML])
    from tierfs.app.report import Prices, make_report
    from tierfs.spark.jobs.report import html, result_of

    prices = Prices(gib_month, thousand_gets, thousand_puts)
    with session.open_store() as store, progress_line(session) as show:
        facts = make_report(store, store.segment_of_path(path), depth=depth, prices=prices, show=show)
    result = result_of(facts)
    if output is not None and output.suffix == _HTML:
        output.write_text(html(facts, format.clock_time(facts.at_ms)))
    elif output is not None:
        result.write(output)
    session.result(result.as_json(), _text(result.as_json()["rows"]))


def _text(rows: list[dict[str, Any]]) -> str:
    tables: list[str] = []
    for section, title in _TITLES.items():
        own = [_sums(row) for row in rows if row["section"] == section]
        tables.append(format.table([("segments", "bytes", "local", "cold", title), *own[:_SHOWN]], *_COLUMNS))
        if len(own) > _SHOWN:
            tables[-1] += f"\nand {len(own) - _SHOWN:,} more: --output FILE has all"
    costs = [_cost(row) for row in rows if row["section"] == "cost"]
    tables.append(format.table([("number", "bytes", "dollars", "cost, estimated"), *costs], *_COLUMNS[1:]))
    return "\n\n".join(tables)


def _sums(row: dict[str, Any]) -> Sequence[str]:
    sizes = [format.size(row[name]) for name in ("bytes", "local_bytes", "cold_bytes")]
    return (f"{row['segments']:,}", *sizes, printable(row["name"]) or "all")


def _cost(row: dict[str, Any]) -> Sequence[str]:
    size = "-" if row["cold_bytes"] is None else format.size(row["cold_bytes"])
    return (f"{row['segments']:,}", size, f"{row['dollars']:,.4f}", row["name"])


@command("rebuild")
@job_options
@output_option
def rebuild(session: Session, master: str | None, settings: Sequence[str], output: Path | None) -> None:
    """Rebuild the lost rows of ledgers' entries.

    Rows are lost, for example, when a store with adopted ledgers is recovered. Executors read the copies of the rows,
    or all of the ledgers' objects, and check them against the store's checksums. Prints a row for each ledger that
    lacked its rows. Repeating it succeeds.

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
