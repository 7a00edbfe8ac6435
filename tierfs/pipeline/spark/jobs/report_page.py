"""The page of a report: its rows as one HTML file."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from itertools import islice

from tierfs import __version__
from tierfs.base.words.names import printable
from tierfs.base.words.units import count, size
from tierfs.pipeline.report import Report, ReportSums

MOST_ROWS = 20

_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; color: #1a202c; margin: 2em auto; max-width: 960px; padding: 0 1em }
h1 { font-size: 1.5em; margin-bottom: 0 } h2 { font-size: 1.15em; margin: 1.8em 0 .4em }
p { color: #4a5568; margin-top: .2em } table { border-collapse: collapse; width: 100% }
td { padding: .25em .9em .25em 0; border-top: 1px solid #e2e8f0 } td + td { text-align: right; white-space: nowrap }
i { display: inline-block; height: .8em; background: #d9822b } i + i { background: #2b6cb0 }
td.bar { width: 40%; text-align: left; line-height: 0 }
"""


def html(report: Report, at: str) -> str:
    """Return the page, which needs no other file; `at` is the time of the report."""
    objects, prices = report.objects, report.prices
    stored_bytes = objects.bytes + objects.garbage_bytes
    costs = [
        ("Storage a month", count(objects.count, "object"), stored_bytes, report.storage_month),
        ("Garbage in it", count(objects.garbage, "object"), objects.garbage_bytes, report.garbage_month),
        *(
            [("Saved by compression", count(objects.compressed, "object"), objects.saved_bytes, report.saved_month)]
            if objects.compressed
            else []
        ),
        ("Uploads of the last 30 days", count(objects.puts_last_month, "request"), None, report.puts_month),
        (
            "One read of all bytes, 8 MiB at a time",
            count(objects.gets_to_read, "request"),
            objects.bytes,
            report.read_once,
        ),
    ]
    what = f"${prices.gib_month:g} per GiB and month, ${prices.thousand_gets:g} per 1000 GET, "
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8>",
        f"<title>{_text(f'tierfs: {report.store}')}</title><style>{_STYLE}</style><h1>{_text(report.store)}</h1>",
        f"<p>{_text(at)}, tierfs {__version__}<br>{_text(_contents(report.total))}<br>",
        "Bars show the bytes of copies: <i style='width:.8em'></i><i style='width:0'></i> local, then cold ones</p>",
        _table("Time since the last append", report.ages),
        _table("Directories, the largest first", report.directories),
        _table("Policies in force", report.policies),
        "<h2>Costs, estimated</h2><table>",
        *(
            f"<tr><td>{name}<td>{number}<td>{'' if held is None else size(held)}<td>${dollars:,.4f}"
            for name, number, held, dollars in costs
        ),
        f"</table><p>{what}${prices.thousand_puts:g} per 1000 PUT; without traffic</p></html>",
    ]
    return "\n".join(parts) + "\n"


def _table(title: str, parts: Mapping[str, ReportSums]) -> str:
    """Return a row for each part, with a bar of its local and its cold bytes, all on one scale."""
    most = max((sums.local_bytes + sums.cold_bytes for sums in parts.values()), default=0) or 1
    rows = [
        f"<tr><td>{_text(name)}<td class=bar><i style='width:{100 * sums.local_bytes / most:.1f}%'></i>"
        f"<i style='width:{100 * sums.cold_bytes / most:.1f}%'></i><td>{_contents(sums)}"
        for name, sums in islice(parts.items(), MOST_ROWS)
    ]
    rest = list(parts.values())[MOST_ROWS:]
    note = f"<p>and {count(len(rest), 'other')} with {size(sum(sums.bytes for sums in rest))}</p>" if rest else ""
    return f"<h2>{title}</h2><table>{''.join(rows)}</table>{note}"


def _contents(sums: ReportSums) -> str:
    stored = "" if sums.cold_stored_bytes == sums.cold_bytes else f", {size(sums.cold_stored_bytes)} stored"
    tiers = f"{size(sums.local_bytes)} local, {size(sums.cold_bytes)} cold{stored}"
    return f"{count(sums.segments, 'segment')}, {size(sums.bytes)}: {tiers}"


def _text(words: str) -> str:
    return escape(printable(words))
