"""tierfs pipeline report."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from tierfs.cli import format
from tierfs.cli.lazy import command
from tierfs.cli.pipeline import check_output
from tierfs.cli.session import Session
from tierfs.names import printable

_HTML = ".html"
_SHOWN = 20
_TITLES = {"total": "", "age": "since the last append", "policy": "policy in force", "directory": "directory"}
_COLUMNS = (">10", ">10", ">10", ">10", "<")


@command("report")
@click.argument("path", default="")
@click.option("--depth", type=click.IntRange(1), default=1, show_default=True, help="Levels of directories below PATH.")
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Also write it: .parquet, .csv, .json (an object per line), or .html with pictures.",
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
    """Sum up bytes by tier, age, policy and directory below PATH, and estimate what the cold tier costs.

    Only metadata are read, so no Spark is started. Default prices: S3 Standard, us-east-1, the first 50 TB, January
    2025. Costs are the whole store's: its objects, garbage that waits to be deleted, the uploads of the last 30 days,
    and the GETs that read all of it once, 8 MiB each.
    """
    check_output(output, [_HTML])
    from tierfs.composition.reporting import Prices, make_report
    from tierfs.spark.jobs.report import result_of
    from tierfs.spark.jobs.report_html import html

    prices = Prices(gib_month, thousand_gets, thousand_puts)
    with session.open_store() as store:
        found = make_report(store, store.segment_of_path(path), depth=depth, prices=prices)
    result = result_of(found)
    if output is not None and output.suffix == _HTML:
        output.write_text(html(found, format.clock_time(found.at_ms)))
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
    held = "-" if row["cold_bytes"] is None else format.size(row["cold_bytes"])
    return (f"{row['segments']:,}", held, f"{row['dollars']:,.4f}", row["name"])
