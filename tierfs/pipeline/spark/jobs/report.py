"""The job `report`: a store's contents and costs, as rows.

It reads metadata on the driver and needs nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator

from tierfs.app.store import Store
from tierfs.pipeline.report import Prices, Report, ReportSums, make_report
from tierfs.pipeline.spark.jobs.result import Result

# Each section (`total`, `age`, `policy`, `directory`) has all bytes once; `cost` has dollars, and bytes it is for.
COLUMNS = {
    "section": "string",
    "name": "string",
    "segments": "long",
    "bytes": "long",
    "local_bytes": "long",
    "cold_bytes": "long",
    "cold_stored_bytes": "long",
    "dollars": "double",
}

Row = tuple[str, str, int | None, int | None, int | None, int | None, int | None, float | None]


def report(store: Store, path: str = "", *, depth: int = 1, prices: Prices | None = None) -> Result:
    """Return the rows of a report; see make_report. `data_frame(spark)` of the result makes a data frame of them."""
    return result_of(make_report(store, path, depth=depth, prices=prices))


def result_of(figures: Report) -> Result:
    """Return the rows of a finished report."""
    return Result(COLUMNS, list(_rows(figures)), {"store": figures.store, "at_ms": figures.at_ms})


def _rows(figures: Report) -> Iterator[Row]:
    yield _sums("total", "", figures.total)
    for section, part in (("age", figures.ages), ("policy", figures.policies), ("directory", figures.directories)):
        for name, sums in part.items():
            yield _sums(section, name, sums)
    objects = figures.objects
    stored_bytes = objects.bytes + objects.garbage_bytes
    yield _cost("storage a month", objects.count, stored_bytes, figures.storage_month)
    yield _cost("garbage in it", objects.garbage, objects.garbage_bytes, figures.garbage_month)
    if objects.compressed:
        yield _cost("saved by compression", objects.compressed, objects.saved_bytes, figures.saved_month)
    yield _cost("uploads of the last 30 days", objects.puts_last_month, None, figures.puts_month)
    yield _cost("reading all once", objects.gets_to_read, objects.bytes, figures.read_once)


def _sums(section: str, name: str, sums: ReportSums) -> Row:
    return section, name, sums.segments, sums.bytes, sums.local_bytes, sums.cold_bytes, sums.cold_stored_bytes, None


def _cost(name: str, number: int, size_bytes: int | None, dollars: float) -> Row:
    """Return a row of `cost`; `number` of objects or requests is in the column of segments."""
    return "cost", name, number, None, None, size_bytes, None, dollars
