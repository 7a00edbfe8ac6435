"""What a run of pytest did not run, at its end: the number of tests for each reason, and the command that runs them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

MARKED = {
    "whole": ("repeats on one more server or at a greater size (whole)", "make test-all"),
    "slow": ("takes longer than 5 s (slow)", "make test"),
    "s3": ("needs Ceph RGW (s3)", "make test"),
    "spark": ("starts Spark (spark)", "make test"),
}
"""Reason and command of each marker that a target of make leaves out by `-m "not MARKER"`."""

COMMANDS = (
    (re.compile("make test-deps|^could not import"), "make test-deps"),
    (re.compile(r"\b(root|another user)\b|CAP_"), "the same command as root"),
    (re.compile(r"\bneeds (java|mvn)\b"), "install it, then make test-deps"),
    (re.compile("there is only one process"), "make test"),
)
"""Which command runs what was skipped with a reason, by the reason; the first that matches."""

_MACHINE = "another machine"


class NotRun:
    """A plugin that counts, in the processes of xdist and in the one that they report to."""

    def __init__(self) -> None:
        self._marked: Counter[str] = Counter()

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        for item in items:
            if item.config.option.keyword:  # a choice of the caller is no news to them
                return
            chosen = item.config.option.markexpr
            names = (name for name in MARKED if f"not {name}" in chosen and item.get_closest_marker(name) is not None)
            self._marked.update([*names][:1])

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput["marked"] = dict(self._marked)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        self._marked |= Counter(getattr(node, "workeroutput", {}).get("marked", {}))  # each process collects all

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        lines = [*_lines(self._marked, terminalreporter.getreports("skipped"))]
        if lines:
            terminalreporter.write_sep("=", "not run")
        for line in lines:
            terminalreporter.write_line(line)


def _lines(marked: Counter[str], skipped: Iterable[pytest.TestReport]) -> Iterable[str]:
    counts = Counter({MARKED[name]: number for name, number in marked.items()})
    for report in skipped:
        _, _, said = report.longrepr  # type: ignore[misc]
        reason = said.removeprefix("Skipped: ")
        counts[reason, _command(reason)] += 1
    for (reason, command), number in counts.most_common():
        yield f"{number:6}  {reason}  [{command}]"


def _command(reason: str) -> str:
    return next((command for pattern, command in COMMANDS if pattern.search(reason)), _MACHINE)
