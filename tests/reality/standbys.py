"""Failovers in a row under load: owners die, are stopped, or go on; standbys take over, and some die in the attempt.

After each, every record that the bucket acknowledged is there once, in its place, on the next owner.
"""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tests import forked, verbs
from tests.commands import tierfs
from tests.mount.waiting import eventually
from tests.reality.acks import Progress
from tests.reality.expected import AllExpected
from tests.reality.lives import Places
from tierfs.app.store import open_store
from tierfs.base.system.store_paths import StorePaths
from tierfs.base.words.types import Ack
from tierfs.upkeep.holder import lock, standby_note
from tierfs.upkeep.holder.standby_note import Phase

ENDINGS = ("killed", "stopped", "by a person", "standby killed")
SEGMENTS = tuple(f"d{number}/s{each}" for number in range(2) for each in range(2))
SETTINGS = ("replica_refresh_s=200ms", "owner_check_s=200ms", "tick_s=100ms")
AFTER = "3s"
WITHIN_S = 120.0
"""Of a machine that does a lot else."""


@dataclass
class Failovers:
    """A row of owners of one bucket."""

    root: Path
    places: Places
    seed: str
    seen: Counter[str] = field(default_factory=Counter)
    pauses_s: list[float] = field(default_factory=list)
    """From the end of an owner to the next one's first moment."""

    def __post_init__(self) -> None:
        self.chosen = random.Random(f"{self.seed} standbys")
        self.expected = AllExpected(self.seed)
        self.acknowledged = {name: Progress() for name in SEGMENTS}
        self.place = self.places()
        self.processes: list[forked.Talking] = []
        self.owner = self.root / "host0"
        tierfs("-q", "init", *self.place.options, store=self.owner)
        self._set(self.owner)
        self.load = self._start(self.owner)

    def _set(self, store: Path) -> None:
        tierfs("-q", "config", *(f"background.{each}" for each in SETTINGS), store=store)

    def _daemon(self, store: Path) -> forked.Talking:
        self.processes.append(forked.Talking("tierfs", "--store", store, "daemon", "-f"))
        return self.processes[-1]

    def _start(self, store: Path) -> list[forked.Talking]:
        """Start an owner's daemon, unless it runs, and its appender, which is first."""
        jobs = [f"{name}={each.number}@{each.end}" for name, each in self.acknowledged.items()]
        appender = forked.Talking("tests.reality.ack_appender", store, self.seed, Ack.COLD, *jobs, most_lines=10)
        self.processes.append(appender)
        held = [process for process in self.processes[-3:-1] if is_holder(store, process)]
        return [appender, *(held or [self._daemon(store)])]

    def run(self, count: int) -> Counter[str]:
        """Fail over so many times; return how often each way, and the number of acknowledged records."""
        try:
            for number in range(1, count + 1):
                self._fail_over(self.root / f"host{number}", ENDINGS[number % len(ENDINGS)])
                print(f"{number} of {count}: {ENDINGS[number % len(ENDINGS)]}, {self.pauses_s[-1]:.1f} s", flush=True)
        finally:
            for process in list(self.processes):
                process.send_signal(signal.SIGCONT)
                self._end(process)
        self.seen["records"] = sum(progress.number for progress in self.acknowledged.values())
        return self.seen

    def _end(self, process: forked.Talking) -> list[str]:
        self.processes.remove(process)
        return process.end()[0]

    def _fail_over(self, standby: Path, ending: str) -> None:
        follower = self._follow(standby)
        for _ in range(self.chosen.randrange(4, 20)):
            self._hear(self.load[0].line(WITHIN_S))
        began_s = time.monotonic()
        if ending == "by a person":
            tierfs("-q", "standby", "--now", "--yes", store=standby, timeout_s=WITHIN_S)
        for process in self.load:
            process.send_signal(signal.SIGSTOP if ending == "stopped" else signal.SIGKILL)
        if ending == "standby killed":
            assert eventually(lambda: phase(standby) is Phase.TAKES_OVER or is_owner(standby), WITHIN_S)
            self._end(follower)
            self._daemon(standby)
        assert eventually(lambda: is_owner(standby), WITHIN_S), standby_note.read(StorePaths(standby))
        self.pauses_s.append(time.monotonic() - began_s)
        for process in self.load:
            process.send_signal(signal.SIGCONT)
        if ending == "stopped":
            fenced = tierfs("append", "late", store=self.owner, stdin=b"late", check=False)
            assert "cat late" not in fenced.out
        for process in self.load:
            for line in self._end(process):
                if line.endswith("\n") and line.split()[0] in self.acknowledged:
                    self._hear(line)
        self._compare(standby)
        self.seen[ending] += 1
        self.owner, self.load = standby, self._start(standby)

    def _follow(self, standby: Path) -> forked.Talking:
        options = ("--standby", "--takeover-after", AFTER, *self.place.options)
        tierfs("-q", "replica", *options, store=standby)
        self._set(standby)
        follower = self._daemon(standby)
        assert eventually(lambda: phase(standby) is Phase.FOLLOWS, WITHIN_S), standby_note.read(StorePaths(standby))
        return follower

    def _hear(self, line: str) -> None:
        if line.startswith("refused") or not line:
            return
        name, number, end = line.split()
        progress = self.acknowledged[name]
        assert int(number) >= progress.number, line
        progress.number, progress.end = int(number) + 1, int(end)

    def _compare(self, store: Path) -> None:
        with open_store(store) as opened:
            for name, progress in self.acknowledged.items():
                data = bytearray()
                if progress.end:
                    verbs.cat(opened, name, None, None, None, data.extend)
                assert len(data) >= progress.end, f"{name} ends at {len(data)}, not {progress.end}"
                self.expected[name].require(0, bytes(data), "cat")
                assert self.expected[name].is_end(len(data)), f"{name} ends at {len(data)}, in a record"


def phase(store: Path) -> Phase:
    return standby_note.read(StorePaths(store)).phase


def is_owner(store: Path) -> bool:
    with open_store(store) as opened:
        return not opened.is_replica


def is_holder(store: Path, process: forked.Talking) -> bool:
    holder = lock.current(StorePaths(store).holder)
    return holder is not None and holder.pid == process.pid
