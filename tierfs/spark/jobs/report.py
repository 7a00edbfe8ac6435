"""The job `report`: a store's contents and costs, as rows and as one HTML file.

It reads metadata on the driver and needs nothing else. The file needs no other one: its pictures are SVG, written here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape

from tierfs import __version__
from tierfs.app.report import Prices, Report, ReportSums, make_report
from tierfs.app.store import Store
from tierfs.names import printable
from tierfs.spark.jobs.tasks import Result
from tierfs.units import count

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
    """Return the rows of a report; see make_report. `data_frame(spark)` of the result makes a data frame of them."""
    return result_of(make_report(store, path, depth=depth, prices=prices))


def result_of(found: Report) -> Result:
    """Return the rows of a finished report."""
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


def _sums(section: str, name: str, sums: ReportSums) -> Row:
    return section, name, sums.segments, sums.bytes, sums.local_bytes, sums.cold_bytes, None


def _cost(name: str, number: int, size_bytes: int | None, dollars: float) -> Row:
    """Return a row of `cost`; `number` of objects or requests is in the column of segments."""
    return "cost", name, number, None, None, size_bytes, dollars


LOCAL_COLOUR, COLD_COLOUR = "#d9822b", "#2b6cb0"
MOST_BARS = 20

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_LABEL_PX, _BAR_PX, _ROW_PX, _SIZE_PX = 330, 420, 26, 190

_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; color: #1a202c; margin: 2em auto; max-width: 960px; padding: 0 1em }
h1 { font-size: 1.5em; margin-bottom: 0 } h2 { font-size: 1.15em; margin: 1.8em 0 .4em }
p.at { color: #4a5568; margin-top: .2em } table { border-collapse: collapse } td, th { padding: .25em .9em .25em 0 }
td.n, th.n { text-align: right } th { text-align: left; color: #4a5568; font-weight: 600 }
tr + tr td { border-top: 1px solid #e2e8f0 }
svg { width: 100%; height: auto } svg text { font-size: 13px; fill: #1a202c }
svg text.size { fill: #4a5568 } .key { display: inline-block; width: .8em; height: .8em; margin: 0 .3em 0 1em }
"""


def html(report: Report, at: str) -> str:
    """Return the page; `at` is the time of the report."""
    total = report.total
    head = f"{count(total.segments, 'segment')}, {size(total.bytes)}: {_tiers(total)}"
    keys = "".join(
        f'<span class="key" style="background:{colour}"></span>{name}'
        for name, colour in (("local", LOCAL_COLOUR), ("cold", COLD_COLOUR))
    )
    parts = [
        f"<h1>{escape(printable(report.store))}</h1><p class=at>{escape(at)}, tierfs {__version__}</p>",
        f"<p>{escape(head)}<br>Bars show the bytes of copies by tier:{keys}</p>",
        _section("Time since the last append", report.ages),
        _section("Directories, the largest first", report.directories),
        f"<h2>Policies in force</h2>{_policies(report.policies)}",
        f"<h2>Costs, estimated</h2>{_costs(report)}",
    ]
    title = escape(f"tierfs: {printable(report.store)}")
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{title}</title><style>{_STYLE}</style>"
        + "\n".join(parts)
        + "</html>\n"
    )


def size(size_bytes: int) -> str:
    """Return a size with at most one decimal."""
    value, unit = float(size_bytes), 0
    while round(value, 1) >= 1024 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:.1f}".removesuffix(".0") + f" {_UNITS[unit]}"


def bars(rows: Sequence[tuple[str, ReportSums]]) -> str:
    """Return a bar for each row: local bytes, then cold ones, all on one scale."""
    most = max([sums.local_bytes + sums.cold_bytes for _, sums in rows], default=0) or 1
    height = _ROW_PX * len(rows)
    drawn = "".join(_bar(index, name, sums, most) for index, (name, sums) in enumerate(rows))
    return f'<svg viewBox="0 0 {_LABEL_PX + _BAR_PX + _SIZE_PX} {height}" role="img">{drawn}</svg>'


def _bar(index: int, name: str, sums: ReportSums, most: int) -> str:
    top = index * _ROW_PX
    local_px, cold_px = (number * _BAR_PX / most for number in (sums.local_bytes, sums.cold_bytes))
    label = escape(_short(printable(name)))
    boxes = "".join(
        f'<rect x="{x:.1f}" y="{top + 4}" width="{width:.1f}" height="{_ROW_PX - 8}" fill="{colour}"/>'
        for x, width, colour in ((_LABEL_PX, local_px, LOCAL_COLOUR), (_LABEL_PX + local_px, cold_px, COLD_COLOUR))
        if width
    )
    text_y = top + _ROW_PX - 9
    end = _LABEL_PX + local_px + cold_px + 8
    return (
        f'<g><title>{escape(printable(name))}: {_tiers(sums)}</title><text x="{_LABEL_PX - 10}" y="{text_y}" '
        f'text-anchor="end">{label}</text>{boxes}<text class="size" x="{end:.1f}" y="{text_y}">'
        f"{size(sums.bytes)}, {count(sums.segments, 'segment')}</text></g>"
    )


def _section(title: str, parts: Mapping[str, ReportSums]) -> str:
    rows = list(parts.items())
    shown = rows[:MOST_BARS]
    more = len(rows) - len(shown)
    note = f"<p class=at>and {count(more, 'other')} with {size(_bytes(rows[MOST_BARS:]))}</p>" if more else ""
    return f"<h2>{escape(title)}</h2>{bars(shown)}{note}"


def _policies(parts: Mapping[str, ReportSums]) -> str:
    """Return a table, because the settings in force are too long for a label."""
    head = "<tr><th>policy<th class=n>segments<th class=n>local<th class=n>cold"
    lines = "".join(
        f"<tr><td>{escape(printable(name))}<td class=n>{sums.segments:,}<td class=n>{size(sums.local_bytes)}"
        f"<td class=n>{size(sums.cold_bytes)}"
        for name, sums in parts.items()
    )
    return f"<table>{head}{lines}</table>"


def _costs(report: Report) -> str:
    objects, prices = report.objects, report.prices
    rows = [
        ("Storage a month", count(objects.count, "object"), size(objects.bytes + objects.garbage_bytes)),
        ("Garbage in it", count(objects.garbage, "object"), size(objects.garbage_bytes)),
        ("Uploads of the last 30 days", count(objects.puts_last_month, "request"), ""),
        ("Reading all once, 8 MiB at a time", count(objects.gets_to_read, "request"), size(objects.bytes)),
    ]
    dollars = (report.storage_month, report.garbage_month, report.puts_month, report.read_once)
    lines = "".join(
        f"<tr><td>{name}<td class=n>{number}<td class=n>{held}<td class=n>${cost:,.4f}"
        for (name, number, held), cost in zip(rows, dollars, strict=True)
    )
    what = f"${prices.gib_month:g} per GiB and month, ${prices.thousand_gets:g} per 1000 GET, "
    note = f"{what}${prices.thousand_puts:g} per 1000 PUT; traffic is not in it"
    return f"<table>{lines}</table><p class=at>{note}</p>"


def _tiers(sums: ReportSums) -> str:
    return f"{size(sums.local_bytes)} local, {size(sums.cold_bytes)} cold"


def _bytes(rows: Iterable[tuple[str, ReportSums]]) -> int:
    return sum(sums.bytes for _, sums in rows)


def _short(text: str, most: int = 40) -> str:
    return text if len(text) <= most else f"{text[: most // 2]}…{text[-most // 2 + 1 :]}"
