"""The bill of docs/limits.md is computed by `tierfs report` from its amounts, and these from the table of requests."""

from __future__ import annotations

import re

from tests.structure.prose import ROOT, rows_of
from tierfs.app.costs import DAYS, GIB, BillLine, MonthlyAmounts, PriceList, bill, of_replicas, total

PAGE = ROOT / "docs/limits.md"
TABLE = "| a month | amount | price | dollars |"

PRICES = PriceList(
    storage={"STANDARD": 0.023}, requests={"write": 0.005, "list": 0.005, "read": 0.0004}, egress_gib=0.09
)
OBJECTS = 300 * 1024 // 64
MINUTES = DAYS * 24 * 60
GETS_OF_64_MIB = 32


def requests_of(what: str) -> int:
    """The first number of a row of the table of requests."""
    (row,) = [row for row in rows_of(PAGE, "| | requests |") if row[0].strip() == what]
    found = re.match(r"\d+", row[1].strip())
    assert found is not None
    return int(found[0])


def amounts() -> MonthlyAmounts:
    of_an_object, of_a_batch = requests_of("offload of an object of 64 MiB"), 4
    assert (of_an_object, requests_of("each batch of changes, of any number of objects")) == (11, of_a_batch)
    at_rest = requests_of("a mount or daemon at rest")
    assert requests_of("`cat` of 64 MiB, near the server") == GETS_OF_64_MIB
    return MonthlyAmounts(
        storage_bytes={"STANDARD": 10 * 1024 * GIB},
        requests={
            # Of an object its parts, begin and end, but not the check of the result; of a batch the slot.
            "write": OBJECTS * (of_an_object - 1 + 1),
            "list": OBJECTS * 2 + MINUTES * at_rest,
            "read": OBJECTS * (1 + of_a_batch - 3) + 100 * 1024 // 64 * GETS_OF_64_MIB,
        },
        read_bytes=100 * GIB,
        replicas=2,
        replica_requests=of_replicas(2, 5.0),
    )


def shown(line: BillLine) -> list[str]:
    of_bytes = line.unit == "bytes"
    amount = f"{line.amount / GIB:,.0f} GiB" if of_bytes else f"{line.amount:,.0f}"
    price = f"{line.price:g} {'a GiB' if of_bytes else 'for 1000'}"
    return [line.what, amount, price, f"{line.cost:,.2f}"]


def test_the_bill_of_the_page_is_the_one_that_is_computed() -> None:
    lines = bill(amounts(), PRICES)
    rows = [[cell.strip() for cell in row] for row in rows_of(PAGE, TABLE)]
    assert rows == [*map(shown, lines), ["in all", "", "", f"{total(lines):,.2f}"]]
