"""`python -m tests.benchmarks reading`: measure, then write results, report and plots."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TypeVar

from tests.benchmarks.measuring import GIB
from tests.benchmarks.reading import figures, machine, plan, plots, report, run
from tierfs.base.words import units

NAME = "reading"
REPETITIONS = 5
_DOCS = Path(__file__).parents[3] / "docs"

T = TypeVar("T")


def main(arguments: Sequence[str]) -> None:
    """Run it; ends the process with a message where the arguments are wrong."""
    chosen = _parser().parse_args(arguments)
    words = (chosen.questions, chosen.repetitions, chosen.size, chosen.docs, chosen.keep, chosen.peers, chosen.link)
    asked = plan.Plan(*words)
    if not any(map(asked.on, asked.links)):
        sys.exit("none of these questions is asked on these links: give others by --questions or --link")
    _require(chosen.docs)
    try:
        run.run(asked)
    except machine.TooLittleMemory as exc:
        sys.exit(str(exc))
    finally:  # a run that was broken off leaves its answers
        _publish(chosen.docs)


def _publish(docs: Path) -> None:
    path = docs / figures.DIRECTORY / figures.RESULTS_NAME
    if path.exists():
        results = figures.load(path)
        plots.draw(results, docs)
        report.write(results, docs)


def _require(docs: Path) -> None:
    """End with a message, before the long run, where its results could not be written."""
    try:
        report.require_place(docs)
    except report.ReportPlaceMissing as exc:
        sys.exit(str(exc))
    if find_spec("matplotlib") is None:
        sys.exit("matplotlib is missing: pip install -e '.[bench]'")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"python -m tests.benchmarks {NAME}",
        description="Reading, against raw GETs and other mounts of S3. New answers replace those already written.",
    )
    parser.add_argument("--repetitions", type=_checked(_positive), default=REPETITIONS)
    parser.add_argument("--size", type=_checked(_size), default=GIB, help="of a large file (1GiB)")
    every = frozenset(plan.QUESTIONS)
    parser.add_argument("--questions", type=_checked(plan.parse_questions), default=every, help="like 1,5,6 (all)")
    names = ",".join(figures.LINK_NAMES)
    parser.add_argument(
        "--link", type=_checked(plan.parse_links), default=figures.LINK_NAMES, help=f"some of {names} (all)"
    )
    parser.add_argument(
        "--peers",
        type=_checked(plan.parse_peers),
        help="only these programs, like s3fs,rclone; '' for none (all on PATH)",
    )
    parser.add_argument(
        "--keep", type=_checked(_new), metavar="DIR", help="work in DIR, a new one, and keep it with all logs"
    )
    parser.add_argument("--docs", type=Path, metavar="DIR", default=_DOCS, help="where results are written (docs)")
    return parser


def _checked(parse: Callable[[str], T]) -> Callable[[str], T]:
    """The same, with its own words in argparse's message."""

    def checked(text: str) -> T:
        try:
            return parse(text)
        except ValueError as exc:
            raise argparse.ArgumentTypeError(str(exc)) from exc

    return checked


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError(f"{text} is not at least 1")
    return number


def _new(text: str) -> Path:
    path = Path(text)
    if path.exists():
        raise ValueError(f"{path} exists already")
    return path


def _size(text: str) -> int:
    return plan.check_size(units.parse_size(text))
