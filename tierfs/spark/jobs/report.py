"""The job `report`: what a store holds and costs, as rows. It reads metadata on the driver; nothing else is needed."""

from __future__ import annotations

from collections.abc import Iterator

from tierfs.app import Store
from tierfs.composition.reporting import Prices, Report, Sums, make_report
from tierfs.spark.jobs.results import Result

COLUMNS = {
    "section": "string",
    "name": "string",
    "segments": "long",
    "bytes": "long",
    "local_bytes": "long",
    "cold_bytes": "long",
    "dollars": "double",
}
"""Each section (`total`, `age`, `policy`, `directory`) has all bytes once; `cost` has dollars, and bytes it is for."""

Row = tuple[str, str, int | None, int | None, int | None, int | None, float | None]


def report(store: Store, path: str = "", *, depth: int = 1, prices: Prices | None = None) -> Result:
    """Rows of a report; see make_report. `data_frame(spark)` of the result makes a data frame of them."""
    return result_of(make_report(store, path, depth=depth, prices=prices))


def result_of(found: Report) -> Result:
    """The rows of a report that was made."""
    return Result(COLUMNS, list(_rows(found)), {"store": found.store, "at_ms": found.at_ms})


def _rows(found: Report) -> Iterator[Row]:
    yield _sums("total", "", found.total)
    for section, part in (("age", found.ages), ("policy", found.policies), ("directory", found.directories)):
        for name, sums in part.items():
            yield _sums(section, name, sums)
    objects = found.objects
    stored_bytes = objects.bytes + objects.garbage_bytes
    yield _cost("storage a month", objects.count, stored_bytes, found.storage_month)
    yield _cost("garbage in it", objects.garbage, objects.garbage_bytes, found.garbage_month)
    yield _cost("uploads of the last 30 days", objects.puts_last_month, None, found.puts_month)
    yield _cost("reading all once", objects.gets_to_read, objects.bytes, found.read_once)


def _sums(section: str, name: str, sums: Sums) -> Row:
    return section, name, sums.segments, sums.bytes, sums.local_bytes, sums.cold_bytes, None


def _cost(name: str, number: int, size_bytes: int | None, dollars: float) -> Row:
    """`number` of objects or requests stands in the column of segments."""
    return "cost", name, number, None, None, size_bytes, dollars
