"""`python -m tests.mutants`: take each safety line away and see its test fail; `--find` looks for such tests."""

from __future__ import annotations

import builtins
import os
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any

import click
import pytest

from tests.mutants.forks import in_forks
from tests.mutants.ledger import INVARIANTS, ROOT, SafetyLine, note_killer, read_ledger, wrong
from tests.mutants.swap import PROBE, mutate, place_probes

KILL_S = 60.0
"""The longest time of one killer; a line whose test hangs counts as a survivor."""
LOOK_S = 600.0
SEARCH_S = 240.0
PART_TESTS = 50
"""Tests that one process looks at: as many are lost to the search when one of them ends their process."""


@dataclass(eq=False)  # pytest hashes its plugins
class Outcome:
    """What tests did, in the process that ran them."""

    failed: dict[str, str] = field(default_factory=dict)
    took_s: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.took_s[report.nodeid] += report.duration
        if report.failed:
            self.failed.setdefault(report.nodeid, str(report.longrepr)[-2000:])


class Mutants:
    """A plugin that collects as pytest does and then runs tests its own way."""

    def __init__(self, lines: Sequence[SafetyLine], *, at_once: int, search_s: float = SEARCH_S) -> None:
        self.lines = lines
        self.at_once = at_once
        self.search_s = search_s
        self.outcome = Outcome()
        self.killed: list[SafetyLine] = []
        self.session: pytest.Session

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> None:
        """Let tests of hypothesis draw the same each time; one that fails has killed, and needs no smallest example."""
        from hypothesis import Phase, settings  # not before pytest: it rewrites assertions of what it loads first

        # Before a test module is imported, as its own settings begin with those of then; after tests/conftest.py.
        phases = (Phase.explicit, Phase.generate)
        settings.register_profile("mutants", settings(), derandomize=True, database=None, phases=phases)
        settings.load_profile("mutants")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self.session = session
        session.config.pluginmanager.register(self.outcome)
        self.run()
        return True

    def run(self) -> None:
        """Show that each killer passes with the line and fails without it."""
        known = {line.loses: self.killers(line) for line in self.lines}
        distinct = list({item.nodeid: item for items in known.values() for item in items}.values())
        parts = [distinct[at : at + PART_TESTS] for at in range(0, len(distinct), PART_TESTS)]
        failing: dict[str, str] = {}
        for _, result in in_forks(
            ((at, lambda part=part: self.run_all(part)) for at, part in enumerate(parts)),
            at_once=self.at_once,
            limit_s=LOOK_S,
        ):
            failing |= result["failed"] if "failed" in result else {"the run without a change": result["died"]}
        for name, why in failing.items():
            click.echo(f"FAILS BY ITSELF {name}: {why[-300:]}")
        trials = (
            (line, lambda line=line: self.trial(line, known[line.loses])) for line in self.lines if known[line.loses]
        )
        for line, result in in_forks(trials, at_once=self.at_once, limit_s=KILL_S):
            fails = result.get("failed", {}).items()
            if any(name not in failing and "NameError" not in why for name, why in fails):  # else it kills itself
                self.killed.append(line)
            else:
                click.echo(f"SURVIVED {line.file}: {line.loses}: {result.get('died', line.killer)}")

    def killers(self, line: SafetyLine) -> list[pytest.Item]:
        """Return the cases of a line's killer; none if it has none or they are not there."""
        chosen = [
            item
            for item in self.session.items
            if line.killer and line.killer in (item.nodeid, item.nodeid.split("[")[0])
        ]
        if not chosen:
            click.echo(f"NO KILLER {line.file}: {line.loses}: {line.killer or 'none is named'}")
        return chosen

    def trial(self, line: SafetyLine, items: Sequence[pytest.Item]) -> dict[str, Any]:
        """Run tests without a line, until one fails."""
        if not mutate(line):
            return {"died": "the change is in no function that could be swapped"}
        return self.run_all(items, stops=True)

    def run_all(self, items: Sequence[pytest.Item], *, stops: bool = False) -> dict[str, Any]:
        """Run tests in this process, a child, and print nothing."""
        reporter = self.session.config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None:
            self.session.config.pluginmanager.unregister(reporter)
        for item, following in zip_longest(items, items[1:]):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if stops and self.outcome.failed:
                break
        return {"failed": self.outcome.failed, "took_s": self.outcome.took_s}


class Search(Mutants):
    """Looks for killers among all tests that were collected: those that reach the line, the shortest first."""

    def run(self) -> None:
        items = self.session.items
        parts = [items[at : at + PART_TESTS] for at in range(0, len(items), PART_TESTS)]
        reached: dict[int, set[str]] = defaultdict(set)
        failing: set[str] = set()
        took_s: dict[str, float] = {}
        looks = ((at, lambda part=part: self.look(part)) for at, part in enumerate(parts))
        for at, result in in_forks(looks, at_once=self.at_once, limit_s=LOOK_S):
            if "died" in result:
                click.echo(f"NOT LOOKED AT {parts[at][0].nodeid} and those behind it: {result['died'][-300:]}")
                continue
            failing |= set(result["failed"])
            took_s |= result["took_s"]
            for number, names in result["reached"].items():
                reached[int(number)] |= set(names)
        by_name = {item.nodeid: item for item in items}

        def trials() -> Iterator[tuple[SafetyLine, Callable[[], Any]]]:
            for number, line in enumerate(self.lines):
                names = sorted(reached[number] - failing, key=lambda name: took_s.get(name, 0.0))
                click.echo(f"{line.file}: {line.loses}: {len(names)} tests")
                if names:
                    yield line, lambda line=line, names=names: self.trial(line, [by_name[name] for name in names])

        for line, result in in_forks(trials(), at_once=self.at_once, limit_s=self.search_s):
            killer = next(iter(result.get("failed", ())), None)
            if killer is None:
                click.echo(f"SURVIVED {line.file}: {line.loses}: {result.get('died', 'no test fails')[-300:]}")
            else:
                self.killed.append(line)
                note_killer(line, killer)
                click.echo(f"killed {line.file}: {line.loses}: {killer}")

    def look(self, items: Sequence[pytest.Item]) -> dict[str, Any]:
        """Run tests and note by which of them the function of each line is called."""
        current = [""]
        reached: dict[int, set[str]] = defaultdict(set)
        setattr(builtins, PROBE, lambda number: reached[number].add(current[0]))
        by_file: dict[tuple[str, Path], dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
        for number, line in enumerate(self.lines):
            by_file[line.module, line.path][line.line_number()].append(number)
        for (module, path), numbers in by_file.items():
            place_probes(module, path, numbers)
        for item in items:
            current[0] = item.nodeid
            self.run_all([item])
        names = {number: sorted(name for name in tests if name) for number, tests in reached.items()}
        return {"failed": self.outcome.failed, "took_s": self.outcome.took_s, "reached": names}


@click.command()
@click.option("--find", multiple=True, metavar="TESTS", help="Look below TESTS for killers of lines without one.")
@click.option("--only", multiple=True, metavar="TEXT", help="Lines whose file or loss holds TEXT.")
@click.option("--search-s", default=SEARCH_S, show_default=True, help="The longest search for the killer of a line.")
@click.option("--at-once", default=os.cpu_count() or 1, show_default=True, help="Processes.")
def main(find: tuple[str, ...], only: tuple[str, ...], search_s: float, at_once: int) -> None:
    """Take each safety line away, one at a time, and show that a test fails. Exits with 1 if a line survives."""
    begin_s = time.monotonic()
    ledger = read_ledger()
    problems = wrong(ledger)
    for problem in problems:
        click.echo(problem)
    wanted = only or ("",)
    lines = [
        line
        for line in ledger
        if any(text in f"{line.file} {line.loses}" for text in wanted) and not (find and line.killer)
    ]
    plugin: Mutants = (Search if find else Mutants)(lines, at_once=at_once, search_s=search_s)
    tests = find or sorted({line.killer.split("::")[0] for line in lines if line.killer})
    os.chdir(ROOT)
    options = ["-q", "-p", "no:cacheprovider", "-m", "not s3 and not spark"]
    code = pytest.main([*options, *tests], plugins=[plugin])
    click.echo(
        f"{len(plugin.killed)} of {len(lines)} lines killed, {len(problems)} wrong,"
        f" of {len(INVARIANTS)} invariants, in {time.monotonic() - begin_s:.0f} s"
    )
    sys.exit(bool(len(plugin.killed) < len(lines) or problems or code))


if __name__ == "__main__":
    main()
