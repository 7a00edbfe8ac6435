"""The reading benchmark: asks the chosen questions in one run and keeps what it finds as JSON."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import date
from pathlib import Path

from tests.benchmarks.reading import machine, stage
from tests.benchmarks.reading.figures import DIRECTORY, LOOPBACK, RESULTS_NAME, Answer, Part, Results, load
from tests.benchmarks.reading.links import BY_NAME
from tests.benchmarks.reading.peers import ENVIRONMENT, find_peers
from tests.benchmarks.reading.plan import Plan
from tests.benchmarks.reading.stage import say
from tests.benchmarks.reading.subjects import Question


def run(plan: Plan) -> None:
    """Ask all questions in turn, link after link; the results on disk grow with every answer.

    A subject that fails is remarked and the run goes on. Raises what keeps the whole from starting.
    """
    prepare_environment()
    peers, notes = find_peers(plan.peers)
    if not plan.compares:
        peers = []
    path = plan.docs / DIRECTORY / RESULTS_NAME
    path.parent.mkdir(parents=True, exist_ok=True)
    results = load(path) if path.exists() else Results({})
    results.machine, results.notes = machine.machine(), notes if plan.compares else results.notes
    programs, today = machine.programs(peers), date.today().isoformat()
    with working_directory(plan.keep) as directory, stage.built(plan, directory, peers) as built:
        for link in plan.links:
            with built.questions(BY_NAME[link]) as questions:
                for number in sorted(plan.on(link)):
                    answer = ask(questions[number](), plan, link)
                    results.put(replace(answer, programs=programs, measured=today))
                    results.save(path)


def ask(question: Question, plan: Plan, link: str = LOOPBACK) -> Answer:
    """All repetitions: in each, every subject of every part in turn, so that all share the conditions."""
    parts = {title: Part(title, table.limit) for title, table in question.parts.items()}
    remarks = [question.left_out] if question.left_out else []
    for repetition in range(plan.repetitions):
        for title, table in question.parts.items():
            for subject, measure in table.runs.items():
                where = f"{link}, question {question.number}, {repetition + 1} of {plan.repetitions}"
                say(f"{where}: {title or 'all'}: {subject}")
                try:
                    parts[title].add(subject, measure(repetition))
                except Exception as exc:  # anything a subject does ends its run only, and is reported
                    parts[title].fail(subject)
                    remarks.append(f"{subject} failed ({title or question.title}): {type(exc).__name__}: {exc}")
                    say(remarks[-1])
    return Answer(
        question.number,
        question.title,
        question.method,
        plan.size_bytes,
        plan.repetitions,
        tuple(parts.values()),
        list(dict.fromkeys(remarks)),
        link,
    )


@contextmanager
def working_directory(keep: Path | None) -> Iterator[Path]:
    """A directory for a run: `keep`, a new one which stays, or one that goes."""
    if keep is not None:
        keep.mkdir(parents=True)
        yield keep.absolute()
        return
    directory = Path(tempfile.mkdtemp(prefix="tierfs-bench-", dir="/var/tmp"))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def prepare_environment() -> None:
    """Set the credentials of the test server."""
    os.environ.update(ENVIRONMENT)
    os.environ.pop("AWS_CA_BUNDLE", None)  # rclone refuses plain HTTP with it
