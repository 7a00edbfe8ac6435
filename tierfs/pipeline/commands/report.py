"""Define tierfs pipeline report: sum up bytes and costs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tierfs.base.words.names import printable
from tierfs.faces.cli import output
from tierfs.faces.cli.group import command
from tierfs.faces.cli.paths import path_argument
from tierfs.faces.cli.progress import progress_line
from tierfs.faces.cli.session import Session
from tierfs.pipeline.commands.job import check_output, output_option

_HTML = ".html"
_SHOWN = 20
_TITLES = {"total": "", "age": "since the last append", "policy": "policy in force", "directory": "directory"}
_COLUMNS = (">10", ">10", ">10", ">10", ">10", "<")
_COST_COLUMNS = (">10", ">10", ">10", "<")


@command("report")
@path_argument("path", optional=True)
@click.option(
    "--depth", type=click.IntRange(1), default=1, show_default=True, help="Number of directory levels below PATH."
)
@output_option("Also write the report: .parquet, .csv, .json (an object per line), or .html with charts.")
@click.option("--gib-month", type=float, default=0.023, show_default=True, help="Dollars per GiB and month.")
@click.option("--thousand-gets", type=float, default=0.0004, show_default=True, help="Dollars per 1000 GET.")
@click.option("--thousand-puts", type=float, default=0.005, show_default=True, help="Dollars per 1000 PUT.")
def report(session: Session, path: str, depth: int, file: Path | None, **prices: float) -> None:
    """Sum up bytes below PATH, and estimate the costs of the cold tier.

    Sums are by tier, age, policy and directory. Only metadata is read, so Spark is not started. Default
    prices: S3 Standard, us-east-1, the first 50 TB, January 2025. Costs are for the whole store: its objects, garbage
    that waits for deletion, the uploads of the last 30 days, and the GETs to read all bytes once, 8 MiB each.
    """
    check_output(file, [_HTML])
    from tierfs.pipeline.report import Prices, make_report
    from tierfs.pipeline.spark.jobs.report import result_of
    from tierfs.pipeline.spark.jobs.report_page import html

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
        cells: list[tuple[str, ...]] = [("segments", "bytes", "local", "cold", "stored", title)]
        own = [row for row in rows if row["section"] == section]
        for row in own[:_SHOWN]:
            sizes = [output.size(row[name]) for name in ("bytes", "local_bytes", "cold_bytes", "cold_stored_bytes")]
            cells.append((f"{row['segments']:,}", *sizes, printable(row["name"]) or "all"))
        tables.append(output.table(cells, *_COLUMNS))
        if len(own) > _SHOWN:
            tables[-1] += f"\nand {len(own) - _SHOWN:,} more; to write all: --output FILE"
    costs = [("number", "bytes", "dollars", "cost, estimated")]
    for row in rows:
        if row["section"] == "cost":
            size = "-" if row["cold_bytes"] is None else output.size(row["cold_bytes"])
            costs.append((f"{row['segments']:,}", size, f"{row['dollars']:,.4f}", row["name"]))
    return "\n\n".join([*tables, output.table(costs, *_COST_COLUMNS)])
