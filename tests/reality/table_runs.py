"""One run of `tierfs pipeline table` in a drill: the steps that it tells, its processes, and their end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.children import runs
from tests.mount.waiting import eventually
from tests.servers.spark_cluster import ROOT

# What a run is in before its first step, and its last step of a round, after which it plans the next one.
START, ROUND_END = "start", "end"

# A run without a step for so long hangs: many times as long as the longest pause between two steps until then, which
# follows the machine. Of a first run, nothing is known.
_LEAST_S, _TIMES = 600.0, 20.0
_GONE_S = 120.0


@dataclass
class Pace:
    """How long steps take on this machine."""

    longest_s: float = 0.0
    start_s: float = 10.0
    lasts_s: dict[str, float] = field(default_factory=dict)
    """Of each step, the last time."""

    @property
    def patience_s(self) -> float:
        return max(_LEAST_S, _TIMES * self.longest_s)

    def saw(self, step: str, took_s: float) -> None:
        self.longest_s = max(self.longest_s, took_s)
        if step == START:
            self.start_s = took_s
        self.lasts_s[step] = took_s


class TableRun:
    """A process of `tests.reality.table_driver`, and those that it starts. A context manager: they end with it."""

    def __init__(self, words: Sequence[str], root: Path, pace: Pace) -> None:
        self._pace = pace
        self._steps: list[tuple[float, str]] = [(time.monotonic(), START)]
        self._news = threading.Condition()
        self._is_over = False
        self._errors = root / "errors"
        told, tells = os.pipe()
        with self._errors.open("wb") as errors, (root / "results").open("wb") as results:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.reality.table_driver", str(tells), *words],
                stdout=results,
                stderr=errors,
                pass_fds=(tells,),
                start_new_session=True,
                cwd=root,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
            )
        os.close(tells)
        self._reading = threading.Thread(target=self._read, args=(told,))
        self._reading.start()

    def __enter__(self) -> TableRun:
        return self

    def __exit__(self, *error: object) -> None:
        """Kill what is left of it, and wait until nothing is: a JVM that dies may still end a call."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._reading.join()
        assert eventually(lambda: not self.processes(), _GONE_S), "a process outlived its run"

    @property
    def rounds(self) -> int:
        return sum(step == ROUND_END for _, step in self._steps)

    @property
    def error(self) -> str:
        """The last words of a run."""
        return self._errors.read_text(errors="replace")[-1000:]

    def processes(self) -> list[int]:
        """Return the driver and its JVM, those that are alive."""
        return [pid for pid, session in _running() if session == self.process.pid]

    def ended(self) -> bool:
        return self.process.poll() is not None

    def wait(self, is_there: Callable[[list[str]], bool]) -> bool:
        """Wait until the steps so far fulfil a condition, or the run ends; return whether they do.

        Raises TimeoutError if it makes no step any more.
        """
        with self._news:
            while not is_there([step for _, step in self._steps]):
                seen = len(self._steps)
                if self._is_over:
                    return False
                self._news.wait(self._pace.patience_s)
                if len(self._steps) == seen and not self._is_over:
                    raise TimeoutError(f"no step for {self._pace.patience_s:.0f} s after {self._steps[-1][1]}")
            return True

    def wait_rounds(self, count: int) -> bool:
        """Wait for so many more rounds."""
        wanted = self.rounds + count
        return self.wait(lambda steps: steps.count(ROUND_END) >= wanted)

    def wait_step(self, name: str, rounds: int) -> bool:
        """Wait until a step of that name begins, or so many rounds have ended without it."""
        seen = len(self._steps)
        return self.wait(lambda steps: name in steps[seen:] or steps[seen:].count(ROUND_END) >= rounds)

    def wait_gone(self) -> None:
        """Wait until a JVM whose driver was killed has ended by itself: it sees the end of its input."""
        assert eventually(lambda: not self.processes(), _GONE_S), "the JVM outlived its driver"

    def step_at(self, at_s: float) -> str:
        """Return the step that the run was in at a time."""
        with self._news:
            return [step for told_s, step in self._steps if told_s <= at_s][-1]

    def _read(self, told: int) -> None:
        with os.fdopen(told) as lines:
            for line in lines:
                at_ns, step = line.rstrip("\n").split(" ", 1)
                with self._news:
                    before_s, before = self._steps[-1]
                    self._pace.saw(before, int(at_ns) / 1e9 - before_s)
                    self._steps.append((int(at_ns) / 1e9, step))
                    self._news.notify_all()
        with self._news:
            self._is_over = True
            self._news.notify_all()


def _running() -> list[tuple[int, int]]:
    """Return all processes that run, with their sessions."""
    listed = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it ended
            stat = path.read_text()
            if runs(stat):
                listed.append((int(path.parent.name), int(stat.rpartition(")")[2].split()[3])))
    return listed
