"""Define tierfs pipeline table: a table that follows segments, once or for as long as it runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from tierfs.base.system import extras
from tierfs.base.words.errors import InvalidRequest
from tierfs.faces.cli import output
from tierfs.faces.cli.group import command
from tierfs.faces.cli.parameter_types import Duration, Size
from tierfs.faces.cli.session import Session
from tierfs.pipeline.commands.job import Job, job_options, rows_options

if TYPE_CHECKING:
    from tierfs.pipeline.spark.jobs.rounds_end import RoundsEnd
    from tierfs.pipeline.spark.jobs.session import JobSession
    from tierfs.pipeline.spark.jobs.table import RoundSums, TableJob
    from tierfs.pipeline.spark.tables.followed_table import FollowedTable

KeepUp: TypeAlias = Callable[[int], dict[str, int]]

_BAD = "_bad"
_COUNTS = ("rounds", "rows", "bad", "bytes", "files", "dropped")
_NOTHING_KEPT = {"compacted": 0, "into": 0, "expired": 0}

# Small files of a partition that a run which does not end waits for before it compacts them (a guess).
_MANY_FILES = 16


class TableFormat(StrEnum):
    """What a table is made of."""

    ICEBERG = "iceberg"
    PARQUET = "parquet"
    DELTA = "delta"


def format_of(kind: str | None, target: str) -> TableFormat:
    """Return the format of a table. Raises InvalidRequest for a format that has no such names, and MissingPackage."""
    if "/" not in target:
        if kind is not None:
            raise InvalidRequest("--format is for a table in a directory", remedy="write --to DIR, with a /")
        return TableFormat.ICEBERG
    if kind == TableFormat.DELTA:
        extras.require("a table of Delta", "delta", "deltalake")
    return TableFormat(kind or TableFormat.PARQUET)


@command("table")
@rows_options(
    ("lines", "json", "messages", "entries", "rocketmq"),
    "TABLE",
    "CATALOG.NAMESPACE.TABLE of Iceberg, or a directory or URL.",
    "FIELD,FIELD",
    "Columns, or day(COL), hour(COL), month(COL), year(COL).",
)
@click.option(
    "--format",
    "kind",
    type=click.Choice(("parquet", "delta")),
    help="Format of a table in a directory or URL  [default: parquet].",
)
@click.option("--schema", metavar="DDL", help="With --type json: columns  [default: as in the first round].")
@click.option("--evolve", is_flag=True, help="With --type json: add columns for new fields.")
@click.option("--column", "columns", metavar="NAME=SQL", multiple=True, help="Add a column; repeatable.")
@click.option("--recursive", is_flag=True, help="Follow all segments below PATHs.")
@click.option("--every", "every_s", type=Duration(), metavar="TIME", help="Do not end: look for new bytes so often.")
@click.option("--round-bytes", type=Size(), metavar="SIZE", help="Commit after so many bytes  [default: all].")
@click.option("--skip-lost", is_flag=True, help="Continue if bytes are gone that were not read yet.")
@click.option(
    "--dropped",
    type=click.Choice(("keep", "delete")),
    default="keep",
    show_default=True,
    help="Rows whose bytes are permanently deleted.",
)
@click.option("--compact", is_flag=True, help="Make large files of small ones.")
@click.option(
    "--expire", "expire_s", type=Duration(), metavar="TIME", help="Delete versions of a table older than TIME."
)
@click.option("--warehouse", metavar="PATH", help="Directory or URL of a catalog of files for Iceberg.")
@job_options
def table(
    session: Session,
    paths: Sequence[str],
    target: str,
    row_type: str,
    kind: str | None,
    schema: str | None,
    evolve: bool,
    columns: Sequence[str],
    partition_by: Sequence[str],
    recursive: bool,
    every_s: float | None,
    round_bytes: int | None,
    skip_lost: bool,
    dropped: str,
    compact: bool,
    expire_s: float | None,
    warehouse: str | None,
    job: Job,
) -> None:
    """Add the rows of segments to a table, each once, from where the table ends.

    Segments in PATHs become rows of an Iceberg or Delta table, or of Parquet files in a directory. The table has the
    offset up to which it has the rows, so run the same command again at any time, also after a kill. With --every it
    continues.

    With --type json, each line is a row. Other lines are in a second table, TABLE_bad, with the reason.
    """
    if row_type != "json" and (schema is not None or evolve):
        raise click.UsageError("--schema and --evolve need --type json")
    form = format_of(kind, target)
    job = replace(job, settings=[*_catalog(target, warehouse), *job.settings])
    with job.running(session, "table") as (spark, store, show):
        from tierfs.pipeline.spark.jobs.rounds_end import RoundsEnd
        from tierfs.pipeline.spark.jobs.table import TableJob, TableRows, TableWanted
        from tierfs.pipeline.spark.tables.partition_fields import parse_fields

        what = TableWanted(
            tuple(store.names_of(*paths)),
            TableRows(row_type),
            schema,
            evolve,
            tuple(_column(text) for text in columns),
            parse_fields(partition_by),
            recursive,
            round_bytes,
            skip_lost,
            dropped == "delete",
        )
        bad = _open(spark, form, target.rstrip("/") + _BAD) if row_type == "json" else None
        with TableJob(spark, store, what, _open(spark, form, target), bad, show=show) as follower:
            keep_up = partial(_keep_up, follower, compact, expire_s)
            if every_s is None:
                sums = _run_once(follower, keep_up)
            else:
                sums = run_until(RoundsEnd(spark.sparkContext.cancelAllJobs), session, follower, form, every_s, keep_up)
    session.result({"table": target, **sums}, f"{target}: {_told(sums, form)}")


def _keep_up(follower: TableJob, compact: bool, expire_s: float | None, least: int) -> dict[str, int]:
    """Compact at least so many small files, and expire versions, as wanted; return the sums."""
    old, new = follower.compact(least) if compact else (0, 0)
    expired = 0 if expire_s is None else follower.expire(expire_s)
    return {"compacted": old, "into": new, "expired": expired}


def _run_once(follower: TableJob, keep_up: KeepUp) -> dict[str, int]:
    """Run rounds until nothing is left; return their sums."""
    follower.freeze()
    sums = dict.fromkeys(_COUNTS, 0)
    while (done := follower.round()) is not None:
        _add(sums, _numbers(done))
    return sums | keep_up(2)


def run_until(
    end: RoundsEnd, session: Session, follower: TableJob, form: TableFormat, every_s: float, keep_up: KeepUp
) -> dict[str, int]:
    """Run rounds until a signal, and print each; return their sums."""
    sums, new_files = dict.fromkeys(_COUNTS, 0) | _NOTHING_KEPT, 0
    with end.heard():
        while not end.is_due:
            done = None
            with end.abandoning():
                done = follower.round()
            if done is None:
                end.wait(every_s)
                continue
            _add(sums, _numbers(done))
            # A list of all files, which takes longer than a small round, shows nothing new before.
            is_due = (new_files := new_files + done.files) >= _MANY_FILES
            new_files = 0 if is_due else new_files
            kept: dict[str, int] = {}
            with end.abandoning():
                kept = keep_up(_MANY_FILES) if is_due else kept
            session.result(_numbers(done) | kept, _told(_numbers(done) | _NOTHING_KEPT | kept, form))
            _add(sums, kept)
    return sums


def _add(sums: dict[str, int], numbers: Mapping[str, int]) -> None:
    for name, value in numbers.items():
        sums[name] += value


def _numbers(done: RoundSums) -> dict[str, int]:
    return {"rounds": 1} | {name: getattr(done, name) for name in _COUNTS[1:]}


def _told(sums: Mapping[str, Any], form: TableFormat) -> str:
    more = [f"deleted {output.count(sums['dropped'], 'row')} of dropped bytes"] if sums["dropped"] else []
    if sums["compacted"]:
        more.append(f"compacted {output.count(sums['compacted'], 'file')} into {sums['into']}")
    if sums["expired"]:
        noun = "file" if form is TableFormat.DELTA else "version"
        more.append(f"expired {output.count(sums['expired'], noun)}")
    return ", ".join([_added(sums), *more])


def _added(sums: Mapping[str, Any]) -> str:
    if not sums["bytes"]:
        return "no new rows"
    bad = f", {output.count(sums['bad'], 'bad line')}" if sums["bad"] else ""
    rounds = f" in {output.count(sums['rounds'], 'round')}" if sums["rounds"] > 1 else ""
    return f"added {output.count(sums['rows'], 'row')} of {output.size(sums['bytes'])}{bad}{rounds}"


def _open(spark: JobSession, form: TableFormat, target: str) -> FollowedTable:
    if form is TableFormat.PARQUET:
        from tierfs.pipeline.spark.tables.parquet_table import ParquetTable

        return ParquetTable(spark, target)
    if form is TableFormat.DELTA:
        from tierfs.pipeline.spark.tables.delta_table import DeltaTable

        return DeltaTable(spark, target)
    from tierfs.pipeline.spark.tables.iceberg_table import IcebergTable

    return IcebergTable(spark, target)


def _catalog(target: str, warehouse: str | None) -> list[str]:
    """Return the settings of a catalog of files."""
    if warehouse is None:
        return []
    if "/" in target:
        raise InvalidRequest("--warehouse is for tables of Iceberg", remedy="write --to CATALOG.NAMESPACE.TABLE")
    prefix = f"spark.sql.catalog.{target.partition('.')[0]}"
    return [
        f"{prefix}=org.apache.iceberg.spark.SparkCatalog",
        f"{prefix}.type=hadoop",
        f"{prefix}.warehouse={warehouse}",
    ]


def _column(text: str) -> tuple[str, str]:
    name, equals, expression = text.partition("=")
    if not (name and equals and expression):
        raise InvalidRequest(f"invalid --column {text}", remedy="write NAME=EXPRESSION, as in SQL")
    return name, expression
