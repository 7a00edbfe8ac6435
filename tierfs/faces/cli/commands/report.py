"""Define tierfs report: amounts of a month of the store, and with a file of prices its costs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tierfs.base.words.errors import InvalidRequest
from tierfs.base.words.names import printable
from tierfs.faces.cli import output
from tierfs.faces.cli.group import command
from tierfs.faces.cli.progress import progress_line
from tierfs.faces.cli.session import Session

if TYPE_CHECKING:
    from tierfs.app.cost_facts import CostFacts
    from tierfs.app.costs import BillLine, PriceList

_COLUMNS = ("<", ">10", ">10", ">10")


@command("report")
@click.option("--cost", is_flag=True, help="Show costs too; needs --prices.")
@click.option(
    "--prices", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="File of prices, TOML or JSON."
)
@click.option("--replicas", type=click.IntRange(0, 1000), default=0, show_default=True, help="Replicas to include.")
@click.option("--list", "lists", is_flag=True, help="List the objects for their storage classes.")
@click.option("--example-prices", is_flag=True, help="Print a file of prices to fill in, and do nothing else.")
def report(session: Session, cost: bool, prices: Path | None, replicas: int, lists: bool, example_prices: bool) -> None:
    """Show what a month of the store takes: bytes by tier and storage class, requests and bytes read; and its costs.

    Requests and bytes read are those of the last 30 days, of mounts, daemons and commands on this host, projected to a
    month. The storage class is cold.storage_class of now; --list shows those of the objects, for a request per 1000
    objects. --cost multiplies with the prices in a file: tierfs knows no price.
    """
    from tierfs.app.price_file import EXAMPLE, read_prices

    if example_prices:
        click.echo(EXAMPLE, nl=False)
        return
    if cost and prices is None:
        raise InvalidRequest(
            "--cost needs --prices FILE", remedy="write one: tierfs report --example-prices > prices.toml"
        )
    priced = None if prices is None else read_prices(prices)
    from tierfs.app.cost_facts import facts_of
    from tierfs.app.costs import bill, saved

    with session.open_store(looks=True) as store, progress_line(session) as show:
        facts = facts_of(store, replicas=replicas, lists=lists, report=show)
    lines = bill(facts.amounts, priced)
    less = saved(facts.amounts, priced)
    session.result(_data(facts, lines, less, priced), "\n".join(_text(facts, lines, less, priced)))


def _data(facts: CostFacts, lines: list[BillLine], less: list[BillLine], prices: PriceList | None) -> dict[str, Any]:
    from tierfs.app.costs import total

    return {
        "month_days": 30,
        "measured_days": round(facts.measured_days, 3),
        "listed_objects": facts.listed_objects,
        "garbage_bytes": facts.garbage_bytes,
        "lines": lines,
        "total": None if prices is None else total(lines),
        "saved": less,
        "saved_total": None if prices is None else total(less),
        **{name: "" if prices is None else getattr(prices, name) for name in ("currency", "source", "as_of")},
    }


def _text(facts: CostFacts, lines: list[BillLine], less: list[BillLine], prices: PriceList | None) -> Iterator[str]:
    from tierfs.app.costs import total, unpriced

    header = ("a month", "amount", *(() if prices is None else ("price", "cost")))
    yield output.table([header, *_rows(lines, prices)], *_COLUMNS[: len(header)])
    yield ""
    if prices is not None:
        yield f"total: {total(lines):,.2f} {printable(prices.currency)}".rstrip()
        yield f"prices: {printable(prices.source) or 'no source'}, {printable(prices.as_of) or 'no date'}"
        missing = [line.what for line in unpriced(lines)]
        if missing:
            yield f"without a price: {', '.join(map(printable, missing))}"
    if less:
        yield f"compression saves {_saved_text(less, prices)}"
    yield facts.origin
    if facts.listed_objects is None:
        yield "storage classes: as set now (cold.storage_class); those of the objects: --list"
    if facts.garbage_bytes:
        yield f"of the stored bytes, {output.size(facts.garbage_bytes)} wait for their deletion"


def _saved_text(less: list[BillLine], prices: PriceList | None) -> str:
    from tierfs.app.costs import total

    parts = ", ".join(f"{output.size(round(line.amount))} of {printable(line.what)}" for line in less)
    return parts if prices is None else f"{total(less):,.2f} {printable(prices.currency)}".rstrip() + f": {parts}"


def _rows(lines: Iterable[BillLine], prices: PriceList | None) -> Iterator[tuple[str, ...]]:
    for line in lines:
        amount = output.size(round(line.amount)) if line.unit == "bytes" else f"{round(line.amount):,}"
        costs = () if prices is None else (_number(line.price, 5), _number(line.cost, 2))
        yield (printable(line.what), amount, *costs)


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"
