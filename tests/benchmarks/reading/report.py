"""The report: all figures of reading, as markdown between two markers of docs/benchmarks.md."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from datetime import date
from pathlib import Path

from tests.benchmarks.measuring import GIB
from tests.benchmarks.reading.figures import DIRECTORY, RESULTS_NAME, Answer, Results
from tests.benchmarks.reading.links import BY_NAME
from tests.benchmarks.reading.sheets import SHEETS, Sheet, table
from tierfs.base.words.types import MIB

DOCUMENT = "benchmarks.md"
BEGIN = "<!-- reading: begin, written by `python -m tests.benchmarks reading` -->"
END = "<!-- reading: end -->"


class ReportPlaceMissing(Exception):
    """The document has no place for the report."""


def plot_name(number: int) -> str:
    """File name of a question's picture, which shows all links."""
    return f"reading-{number}.png"


def write(results: Results, docs: Path) -> None:
    """Replace the text between the markers. Raises ReportPlaceMissing without markers."""
    before, after = _around(docs / DOCUMENT)
    (docs / DOCUMENT).write_text(f"{before}{BEGIN}\n\n{markdown(results, docs)}\n{END}{after}")


def require_place(docs: Path) -> None:
    """Raise ReportPlaceMissing if the document has no markers: better before a long run than after it."""
    _around(docs / DOCUMENT)


def _around(document: Path) -> tuple[str, str]:
    """Return the text before and after the report."""
    before, begin, rest = document.read_text().partition(BEGIN) if document.exists() else ("", "", "")
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ReportPlaceMissing(f"{document} has no lines `{BEGIN}` and `{END}`: add them where the report belongs")
    return before, after


def markdown(results: Results, docs: Path) -> str:
    """Return all of it, with the pictures that exist."""
    machine = ", ".join(f"{name} {value}" for name, value in results.machine.items())
    lines = [f"Machine: {machine}. Every repetition: [{RESULTS_NAME}]({DIRECTORY}/{RESULTS_NAME}).", ""]
    lines += [*_conditions(results.answers), *_list(results.notes), *_list(_remarks(results.answers))]
    for sheet in SHEETS:
        lines += _section(sheet, results.answers, docs)
    return "\n".join(lines)


def _conditions(answers: Sequence[Answer]) -> list[str]:
    """Return a line for each run: the day, the programs, and which questions with which files."""
    runs: dict[str, dict[str, list[Answer]]] = {}
    for answer in answers:
        run = f"{_day(answer.measured)}: {', '.join(_version(*item) for item in answer.programs.items())}"
        files = f"files of {_size(answer.size_bytes)}, medians of {answer.repetitions}"
        runs.setdefault(run, {}).setdefault(files, []).append(answer)
    return _list(
        [
            f"{run}. {'. '.join(f'{_asked(asked)}: {files}' for files, asked in by_files.items())}."
            for run, by_files in runs.items()
        ]
    )


def _asked(answers: Sequence[Answer]) -> str:
    """Return the questions of each link, such as `loopback 1, 2, https 1`."""
    by_link = itertools.groupby(answers, key=lambda answer: answer.link)
    return "; ".join(f"{link} {', '.join(str(answer.number) for answer in group)}" for link, group in by_link)


def _section(sheet: Sheet, answers: Sequence[Answer], docs: Path) -> list[str]:
    lines = table(sheet, answers)
    if not lines:
        return []
    pictures = [
        f"![{sheet.title}, question {number}]({DIRECTORY}/{plot_name(number)})"
        for number in sheet.drawn
        if (docs / DIRECTORY / plot_name(number)).exists()
    ]
    return [f"### {sheet.title}", "", sheet.text, "", *lines, "", *([*pictures, ""] if pictures else [])]


def _remarks(answers: Sequence[Answer]) -> list[str]:
    return [
        f"{BY_NAME[answer.link].title}, question {answer.number}: {remark}"
        for answer in answers
        for remark in answer.remarks
    ]


def _version(name: str, version: str) -> str:
    return version if version.lower().startswith(name.lower()) else f"{name} {version}"


def _day(text: str) -> str:
    if not text:
        return "day unknown"
    day = date.fromisoformat(text)
    return f"{day.day} {day:%B %Y}"


def _list(items: Sequence[str]) -> list[str]:
    return [*(f"* {item}" for item in items), ""] if items else []


def _size(size_bytes: int) -> str:
    return f"{size_bytes // GIB} GiB" if size_bytes % GIB == 0 else f"{size_bytes // MIB} MiB"
