"""What each test takes of the processor, with all of its children: what the suite's length is made of.

    make test ARGS="-p tests.core_seconds --core-seconds costs.tsv"
    python -m tests.core_seconds costs.tsv

A control group counts, also for processes that fork and outlive the test: only root makes one. What servers do that
tests share counts for the test that runs meanwhile. Needs cgroup v1's `cpuacct`, or v2 with `cpu.stat`.
"""

from __future__ import annotations

import os
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import pytest

_V1, _V2 = Path("/sys/fs/cgroup/cpuacct"), Path("/sys/fs/cgroup")
_DEAREST = 60


class CpuGroup:
    """A control group of this process and all that it starts from now on."""

    def __init__(self) -> None:
        self._parent = _V1 if _V1.exists() else _V2
        self._path = self._parent / f"tierfs-costs-{os.getpid()}"
        self._path.mkdir()
        (self._path / "cgroup.procs").write_text(str(os.getpid()))

    def used_s(self) -> float:
        """Return the core-seconds so far."""
        if self._parent == _V1:
            return int((self._path / "cpuacct.usage").read_text()) / 1e9
        return int((self._path / "cpu.stat").read_text().split()[1]) / 1e6

    def close(self) -> None:
        """Remove the group; what still runs in it goes on outside."""
        for process in (self._path / "cgroup.procs").read_text().split():
            with suppress(ProcessLookupError):  # it has ended since
                (self._parent / "cgroup.procs").write_text(process)
        self._path.rmdir()


@dataclass(eq=False)
class Costs:
    """The plugin: a line for each test, and one for all before the first (`collecting`)."""

    file: Path
    group: CpuGroup = field(default_factory=CpuGroup)
    setup_s: float = 0

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self) -> None:
        """Write what finding the tests took."""
        self._write(self.group.used_s(), 0, 0, f"collecting {os.environ.get('PYTEST_XDIST_WORKER', '')}")

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self) -> Iterator[None]:
        """Count the fixtures."""
        before = self.group.used_s()
        try:
            return (yield)
        finally:
            self.setup_s = self.group.used_s() - before

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Count a test with its fixtures, and those of its module that end with it."""
        before, began = self.group.used_s(), time.monotonic()
        try:
            return (yield)
        finally:
            self._write(self.group.used_s() - before, self.setup_s, time.monotonic() - began, item.nodeid)

    def pytest_unconfigure(self) -> None:
        """Leave the group."""
        self.group.close()

    def _write(self, core_s: float, setup_s: float, wall_s: float, name: str) -> None:
        with self.file.open("a") as file:
            file.write(f"{core_s:.4f}\t{setup_s:.4f}\t{wall_s:.3f}\t{ascii(name)[1:-1]}\n")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the file's name."""
    parser.addoption("--core-seconds", type=Path, help="append what each test takes of the processor to this file")


def pytest_configure(config: pytest.Config) -> None:
    """Count in the processes that run tests."""
    file = config.getoption("--core-seconds")
    parallel = getattr(config.option, "numprocesses", None) and not hasattr(config, "workerinput")
    if file is not None and not parallel:
        config.pluginmanager.register(Costs(Path(file).resolve()))


class Cost(NamedTuple):
    """A line of the file."""

    core_s: float
    setup_s: float
    wall_s: float
    name: str


def read(file: Path) -> list[Cost]:
    """Return its lines."""
    lines = (line.split("\t", 3) for line in file.read_text().splitlines())
    return [Cost(float(core), float(setup), float(wall), name) for core, setup, wall, name in lines]


def folder(name: str) -> str:
    """Return the first two steps below tests/."""
    steps = name.partition("::")[0].split("/")[1:-1]
    return "/".join(steps[:2]) or name


def main(file: Path) -> None:
    """Print the folders, and the dearest tests."""
    costs = read(file)
    folders: dict[str, list[Cost]] = defaultdict(list)
    for cost in costs:
        folders[folder(cost.name)].append(cost)
    print(f"{sum(cost.core_s for cost in costs):8.1f} core-seconds, {len(costs)} tests")
    for name, those in sorted(folders.items(), key=lambda each: -sum(cost.core_s for cost in each[1])):
        sums = [sum(cost[column] for cost in those) for column in range(3)]
        print(f"{sums[0]:8.1f} (set-up {sums[1]:7.1f}, wall {sums[2]:7.1f}) {len(those):5} {name}")
    for cost in sorted(costs, reverse=True)[:_DEAREST]:
        print(f"{cost.core_s:8.2f} (set-up {cost.setup_s:7.2f}, wall {cost.wall_s:7.1f}) {cost.name}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
