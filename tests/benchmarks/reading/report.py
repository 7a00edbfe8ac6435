"""The report: what was found, as markdown between two markers of docs/benchmarks.md."""

from __future__ import annotations

import itertools
from pathlib import Path

from tests.benchmarks.measuring import GIB
from tests.benchmarks.reading.figures import DIGITS, DIRECTORY, LOOPBACK, RESULTS_NAME, Answer, Part, Results
from tests.benchmarks.reading.links import BY_NAME
from tests.benchmarks.reading.targets import Verdict, verdicts
from tierfs.base.words.types import MIB

DOCUMENT = "benchmarks.md"
BEGIN = "<!-- reading: begin, written by `python -m tests.benchmarks reading` -->"
END = "<!-- reading: end -->"

_HELD = {True: "yes", False: "**no**", None: "not measured"}


class ReportPlaceMissing(Exception):
    """The document has no place for the report."""


def plot_name(answer: Answer) -> str:
    """File name of a question's plot."""
    link = "" if answer.link == LOOPBACK else f"{answer.link}-"
    return f"reading-{link}{answer.number}.png"


def write(results: Results, docs: Path) -> None:
    """Replace what is between the markers. Raises ReportPlaceMissing where they are not."""
    before, after = _around(docs / DOCUMENT)
    (docs / DOCUMENT).write_text(f"{before}{BEGIN}\n\n{markdown(results, docs)}\n{END}{after}")


def require_place(docs: Path) -> None:
    """Raises ReportPlaceMissing where the document has no markers: better before a long run than after it."""
    _around(docs / DOCUMENT)


def _around(document: Path) -> tuple[str, str]:
    """What stands before and after the report."""
    before, begin, rest = document.read_text().partition(BEGIN) if document.exists() else ("", "", "")
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ReportPlaceMissing(f"{document} has no lines `{BEGIN}` and `{END}`: add them where the report belongs")
    return before, after


def markdown(results: Results, docs: Path) -> str:
    """All of it; plots that exist are shown."""
    programs = ", ".join(_version(name, version) for name, version in results.programs.items())
    machine = ", ".join(f"{name} {value}" for name, value in results.machine.items())
    every = f"All figures, of every repetition: [{RESULTS_NAME}]({DIRECTORY}/{RESULTS_NAME})."
    lines = [f"Machine: {machine}.", f"Programs: {programs}.", every, "", *_list(results.notes), *_summary(results)]
    for link, answers in itertools.groupby(results.answers, key=lambda answer: answer.link):
        lines += [f"### {BY_NAME[link].title}", "", BY_NAME[link].method, ""]
        for answer in answers:
            lines += _section(answer, docs)
    return "\n".join(lines)


def _summary(results: Results) -> list[str]:
    lines = ["| link | | target | must be | found | held |", "|---|---|---|---|---|---|"]
    for answer in results.answers:
        where = f"{BY_NAME[answer.link].title} | {answer.number}"
        lines += [f"| {where} | {_target_row(verdict)} |" for verdict in verdicts(answer)]
    return [*lines, ""]


def _target_row(verdict: Verdict) -> str:
    target = verdict.target
    what = f"{target.part}: " if target.part else ""
    what += f"{target.subject}, {target.metric}" + (f", {target.against}" if target.against else "")
    digits = 2 if target.against else DIGITS[target.metric]
    found = "" if verdict.found is None else f"{verdict.found:.{digits}f}"
    return f"{what} | {'≥' if target.at_least else '≤'} {target.bound:g} | {found} | {_HELD[verdict.held]}"


def _section(answer: Answer, docs: Path) -> list[str]:
    lines = [f"#### {answer.number}. {answer.title}", "", answer.method]
    if answer.parts:
        lines += [f"File size {_size(answer.size_bytes)}; medians of {answer.repetitions} (least to most)."]
    lines += ["", *_list(answer.remarks)]
    for part in answer.parts:
        lines += _table(part)
    if (docs / DIRECTORY / plot_name(answer)).exists():
        lines += [f"![{answer.title}]({DIRECTORY}/{plot_name(answer)})", ""]
    return lines


def _table(part: Part) -> list[str]:
    title = [f"**{part.title}**", ""] if part.title else []
    metrics = part.metrics
    lines = [f"| | {' | '.join(metrics)} | ratio |", f"|---{'|---' * len(metrics)}|---|"]
    for subject in part.found:
        cells = [_cell(part, subject, metric) for metric in metrics]
        ratio = part.ratio(subject)
        lines.append(f"| {subject} | {' | '.join(cells)} | {'' if ratio is None else f'{ratio:.2f}'} |")
    lines += [
        f"| {subject} | failed, see above{' |' * len(metrics)} |"
        for subject in part.failed
        if subject not in part.found
    ]
    return [*title, *lines, ""]


def _cell(part: Part, subject: str, metric: str) -> str:
    values = part.found[subject].get(metric)
    if not values:
        return ""
    digits = DIGITS[metric]
    text = f"{part.median(subject, metric):.{digits}f}"
    return text if len(values) == 1 else f"{text} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def _version(name: str, version: str) -> str:
    return version if version.lower().startswith(name.lower()) else f"{name} {version}"


def _list(items: list[str]) -> list[str]:
    return [*(f"* {item}" for item in items), ""] if items else []


def _size(size_bytes: int) -> str:
    return f"{size_bytes // GIB} GiB" if size_bytes % GIB == 0 else f"{size_bytes // MIB} MiB"
