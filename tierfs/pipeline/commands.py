"""Define tierfs pipeline: heavy work on a store as Spark jobs. Spark is not imported before a job begins.

Its jobs are ingest, scrub, export, report and rebuild.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tierfs.app.store import Store
from tierfs.base.bytes.progress import OnProgress, doing
from tierfs.base.system import extras
from tierfs.base.words.errors import InvalidRequest
from tierfs.base.words.names import printable
from tierfs.faces.cli import output
from tierfs.faces.cli.errors import EXIT_DAMAGED, EXIT_UNCHECKED
from tierfs.faces.cli.group import LazyGroup, added, command, path_argument, paths_argument
from tierfs.faces.cli.progress import progress_line
from tierfs.faces.cli.session import NORMAL, Session

if TYPE_CHECKING:
    from tierfs.pipeline.spark.jobs.session import JobSession
    from tierfs.pipeline.spark.jobs.tasks import Result

_JOBS = ("ingest", "scrub", "report", "export", "rebuild")
_COMMANDS = {name: f"tierfs.pipeline.commands:{name}" for name in _JOBS}
_SCRIPT = Path(__file__).parent / "spark" / "jobs" / "submit.py"
_NEEDED = ("pyspark", "py4j", "pyarrow", "pandas", "numpy")


def _print_script(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value:
        click.echo(str(_SCRIPT))
        ctx.exit()


@click.group("pipeline", cls=LazyGroup, lazy=_COMMANDS, store_variable=None)
@click.option(
    "--script",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_script,
    help="Print the path of the program for spark-submit, which takes the same arguments.",
)
def pipeline() -> None:
    """Run heavy work on a store as Spark jobs, here or on a cluster.

    Needs PySpark, pyarrow and pandas (docs/spark.md), and Java. With spark-submit, and so with the cluster's
    settings: spark-submit $(tierfs pipeline --script) scrub --store DIR
    """


@dataclass(frozen=True, slots=True)
class _Job:
    """The cluster, the Spark settings and the file of a job's rows."""

    master: str | None
    settings: Sequence[str]
    file: Path | None

    @contextmanager
    def running(self, session: Session, name: str) -> Iterator[tuple[JobSession, Store, OnProgress]]:
        """Check the options, open the store, start Spark, and show progress for one job.

        The store is opened before Spark, to fail early. Raises InvalidRequest for a setting without a value.
        """
        settings: dict[str, str] = {}
        for setting in self.settings:
            key, equals, value = setting.partition("=")
            if not (key and equals):
                raise InvalidRequest(f"--conf {setting} is not a setting", remedy="write NAME=VALUE")
            settings[key] = value
        _check_output(self.file)
        from tierfs.pipeline.spark.jobs.session import job_session

        with session.open_store() as store, progress_line(session) as show:
            show(doing("starting Spark"))
            with job_session(name, self.master, settings, quiet=session.verbosity <= NORMAL) as spark:
                yield spark, store, show

    def finish(self, session: Session, result: Result, summary: str) -> None:
        """Write and print the result."""
        if self.file is not None:
            result.write(self.file)
        table = result.text()
        session.result(result.as_json(), f"{table}\n{summary}" if table else summary)


def _output_option(line: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    return click.option("--output", "file", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help=line)


def _job_options(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options of every job, which the function gets as its argument `job`."""

    @wraps(function)
    def call(
        session: Session, master: str | None, settings: Sequence[str], file: Path | None = None, **named: Any
    ) -> None:
        function(session, job=_Job(master, settings, file), **named)

    return added(
        click.option("--master", metavar="URL", help="URL of the Spark cluster  [default: local[*]]"),
        click.option("--conf", "settings", metavar="K=V", multiple=True, help="Spark setting; repeatable."),
    )(call)


_rows_option = _output_option("Also write the rows: .parquet, .csv or .json (an object per line).")


def _check_output(file: Path | None, more: Sequence[str] = ()) -> None:
    """Raise InvalidRequest for an output file that cannot be written, and MissingPackage."""
    extras.require("a job of Spark", "spark", *_NEEDED)
    from tierfs.pipeline.spark.errors import require_sources

    require_sources("tierfs pipeline")
    from tierfs.pipeline.spark.jobs.tasks import require_suffix

    if file is None:
        return
    require_suffix(file, more)
    if not file.absolute().parent.is_dir():
        raise InvalidRequest(f"{file}: its directory does not exist", remedy=f"create it: mkdir -p {file.parent}")


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
    help="Succeed when the bucket's journal names the segments, or when this disk does.",
)
@click.option("--skip-existing", is_flag=True, help="Leave out files whose segments exist.")
@click.option("--no-seal", is_flag=True, help="Leave the segments open.")
@_job_options
@_rows_option
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
    job: _Job,
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
    with job.running(session, "ingest") as (spark, store, show):
        from tierfs.app.upload_task import Acknowledge
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
    text = "this version was ingested before" if sums["repeated"] else made
    skipped = f"; left out {sums['skipped']:,} that exist" if sums["skipped"] else ""
    job.finish(session, result, text + skipped)


@command("scrub")
@paths_argument(optional=True, metavar="[PATHS]...")
@_job_options
@_rows_option
def scrub(session: Session, paths: Sequence[str], job: _Job) -> None:
    """Check every byte of every copy in both tiers.

    Checks segments at and below PATHs; without a PATH, the whole store. Prints a row for each run of bytes that is
    damaged, missing, not reachable, or not seen: local copies are checked by executors that see the store's directory.
    Nothing is changed; tierfs check --repair repairs.

    \b
    Exit codes:
       0  all copies were read and are good
      11  no damage, but some copies could not be checked
      74  a copy is damaged or missing
    """
    with job.running(session, "scrub") as (spark, store, show):
        from tierfs.pipeline.spark.jobs.scrub import scrub as run

        names = [name for path in paths for name in store.names_of(path)]
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
        lines.append(f"{damaged} damaged or missing; repair with: tierfs check --read --repair")
    if sums["absent_objects"]:
        lines.append(f"{output.count(sums['absent_objects'], 'object')} of ledgers without bytes missing or damaged")
    if sums["unreachable_objects"]:
        lines.append(f"not checked: {output.count(sums['unreachable_objects'], 'object')} that are not reachable")
    if sums["unseen_bytes"]:
        lines.append(f"not checked: {output.size(sums['unseen_bytes'])} that executors do not see")
    if sums["unreachable_bytes"]:
        lines.append(f"not checked: {output.size(sums['unreachable_bytes'])} in places that are not reachable")
    return "\n".join(lines if len(lines) > 1 else [*lines, "all right"])


@command("export")
@paths_argument(metavar="PATHS...")
@click.option(
    "--to", "target", required=True, metavar="DIR", help="Target directory, or a URL that Spark can write to."
)
@click.option(
    "--type",
    "row_type",
    type=click.Choice(("lines", "bytes", "entries", "messages")),
    default="lines",
    show_default=True,
    help="Content of a row.",
)
@click.option("--unbatch", is_flag=True, help="With --type entries: write one entry for each message.")
@click.option("--partition-by", metavar="COL,COL", default="", help="Columns that become directories.")
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
@_job_options
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
    job: _Job,
) -> None:
    """Write segments at and below PATHs to a Parquet table.

    Rows are lines or bytes of segments, or entries or messages of ledgers. Fails if DIR is not empty, without --append
    or --overwrite. Rows, bytes and a checksum of all rows are counted while they are written. The table is written
    aside and moved into DIR when it is whole; an export that was killed is repeated with the same command.
    """
    with job.running(session, "export") as (spark, store, show):
        from tierfs.pipeline.scan.scrubbing import wanted_segments
        from tierfs.pipeline.spark.jobs.export import Exporting, IfThere
        from tierfs.pipeline.spark.jobs.export import export as write
        from tierfs.pipeline.spark.row_types import RowType

        columns = tuple(name for name in partition_by.split(",") if name)
        how = Exporting(RowType(row_type), unbatch, columns, compression, IfThere(if_there or "error"), verify, run)
        names = [name for path in paths for name in store.names_of(path)]
        _, total_bytes = wanted_segments(store.metadata, names)
        result = write(spark, str(store.path), names, target, how, show=show, total_bytes=total_bytes)
    row = result.as_json()["rows"][0]
    counted = f"{row['rows']:,} rows, {output.size(row['bytes'])}, checksum {row['checksum']}"
    text = f"{counted}{', read back and equal' if verify else ''}"
    job.finish(session, result, f"this run was exported before: {counted}" if result.summary["repeated"] else text)


_HTML = ".html"
_SHOWN = 20
_TITLES = {"total": "", "age": "since the last append", "policy": "policy in force", "directory": "directory"}
_COLUMNS = (">10", ">10", ">10", ">10", "<")


@command("report")
@path_argument("path", optional=True)
@click.option(
    "--depth", type=click.IntRange(1), default=1, show_default=True, help="Number of directory levels below PATH."
)
@_output_option("Also write the report: .parquet, .csv, .json (an object per line), or .html with charts.")
@click.option("--gib-month", type=float, default=0.023, show_default=True, help="Dollars per GiB and month.")
@click.option("--thousand-gets", type=float, default=0.0004, show_default=True, help="Dollars per 1000 GET.")
@click.option("--thousand-puts", type=float, default=0.005, show_default=True, help="Dollars per 1000 PUT.")
def report(session: Session, path: str, depth: int, file: Path | None, **prices: float) -> None:
    """Sum up bytes below PATH, and estimate the costs of the cold tier.

    Bytes are summed up by tier, age, policy and directory. Only metadata is read, so Spark is not started. Default
    prices: S3 Standard, us-east-1, the first 50 TB, January 2025. Costs are for the whole store: its objects, garbage
    that waits for deletion, the uploads of the last 30 days, and the GETs that read all of it once, 8 MiB each.
    """
    _check_output(file, [_HTML])
    from tierfs.pipeline.report import Prices, make_report
    from tierfs.pipeline.spark.jobs.report import html, result_of

    with session.open_store() as store, progress_line(session) as show:
        facts = make_report(store, store.segment_of_path(path), depth=depth, prices=Prices(**prices), show=show)
    result = result_of(facts)
    if file is not None and file.suffix == _HTML:
        file.write_text(html(facts, output.clock_time(facts.at_ms)))
    elif file is not None:
        result.write(file)
    session.result(result.as_json(), _reported(result.as_json()["rows"]))


def _reported(rows: list[dict[str, Any]]) -> str:
    tables: list[str] = []
    for section, title in _TITLES.items():
        cells = [("segments", "bytes", "local", "cold", title)]
        own = [row for row in rows if row["section"] == section]
        for row in own[:_SHOWN]:
            size, local, cold = (output.size(row[name]) for name in ("bytes", "local_bytes", "cold_bytes"))
            cells.append((f"{row['segments']:,}", size, local, cold, printable(row["name"]) or "all"))
        tables.append(output.table(cells, *_COLUMNS))
        if len(own) > _SHOWN:
            tables[-1] += f"\nand {len(own) - _SHOWN:,} more: --output FILE has all"
    costs = [("number", "bytes", "dollars", "cost, estimated")]
    for row in rows:
        if row["section"] == "cost":
            size = "-" if row["cold_bytes"] is None else output.size(row["cold_bytes"])
            costs.append((f"{row['segments']:,}", size, f"{row['dollars']:,.4f}", row["name"]))
    return "\n\n".join([*tables, output.table(costs, *_COLUMNS[1:])])


@command("rebuild")
@_job_options
@_rows_option
def rebuild(session: Session, job: _Job) -> None:
    """Rebuild the lost rows of ledgers' entries.

    Rows are lost, for example, when a store with adopted ledgers is recovered. Executors read the copies of the rows,
    or all of the ledgers' objects, and check them against the store's checksums. Prints a row for each ledger that
    lacked its rows. Repeating it succeeds.

    \b
    Exit codes:
       0  every ledger has its rows
      74  one could not be rebuilt
    """
    with job.running(session, "rebuild") as (spark, store, show):
        from tierfs.pipeline.spark.jobs.rebuild import rebuild as run

        result = run(spark, store, show=show)
    failed, rebuilt = result.summary["failed"], output.count(result.summary["rebuilt"], "ledger")
    job.finish(session, result, f"rebuilt {rebuilt}" + (f", failed: {failed:,}" if failed else ""))
    raise click.exceptions.Exit(EXIT_DAMAGED if failed else 0)
