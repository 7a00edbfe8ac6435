"""Time and CPU of everyday commands on a small store, start included, next to the start of their libraries alone."""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.benchmarks.measuring import seconds
from tierfs.app.setup.create import init_store

_LIBRARIES = "import click, lmdb, google.protobuf.message"
_COMMANDS = (("--version",), ("info", "s"), ("ls",), ("cat", "s"), ("append", "s"), ("status",))
_MS_PER_S = 1000

Cost = tuple[float, float]
"""Seconds of time and of CPU."""


def bench_start(directory: Path, other: Path | None, repetitions: int) -> str:
    """Return a table of median times; commands of both versions run in turn if another checkout is given."""
    store = directory / "start"
    init_store(store, None)
    versions = {"this": (Path(sys.executable), Path.cwd())}
    if other is not None:
        versions["other"] = (other / ".venv/bin/python", other)
    calls = {
        (words, version): ([str(python), "-m", "tierfs", "--store", str(store), *words], checkout)
        for words in _COMMANDS
        for version, (python, checkout) in versions.items()
    }
    calls[("its libraries",), "this"] = ([sys.executable, "-c", _LIBRARIES], Path.cwd())
    _run(*calls[("append", "s"), "this"])
    taken: dict[tuple[tuple[str, ...], str], list[Cost]] = {key: [] for key in calls}
    for _ in range(repetitions):
        for key, (command, checkout) in calls.items():
            taken[key].append(_run(command, checkout))
    lines = [
        "### Starting a command, ms of time and of CPU (min, median, max)",
        "",
        f"| command | {' | '.join(versions)} |",
    ]
    lines.append("|---" * (1 + len(versions)) + "|")
    for words in dict.fromkeys(words for words, _ in calls):
        cells = [_cell(taken.get((words, version))) for version in versions]
        lines.append(f"| {' '.join(words)} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _run(command: list[str], checkout: Path) -> Cost:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    taken_s = seconds(
        lambda: subprocess.run(command, input=b"x\n", cwd=checkout, stdout=subprocess.DEVNULL, check=True)
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return taken_s, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _cell(taken: list[Cost] | None) -> str:
    if taken is None:
        return "-"
    return "; ".join(_three(values) for values in zip(*taken, strict=True))


def _three(values: Sequence[float]) -> str:
    return ", ".join(f"{value * _MS_PER_S:.0f}" for value in (min(values), statistics.median(values), max(values)))
