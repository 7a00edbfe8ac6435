"""Kills of appenders, of the holder, and of the whole host with its disk, while appends wait for the cold tier.

After each, every record that was acknowledged is there once, in its place, and the appenders go on where they were.
"""

from __future__ import annotations

import random
import shutil
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tests import forked, verbs
from tests.reality.expected import AllExpected
from tests.reality.lives import Life, Places
from tierfs.app import store as app
from tierfs.base.words.types import Ack
from tierfs.engine.metadata import directories

KINDS = ("appender", "appender", "holder", "host")
MOST_LINES = 10
"""Acknowledgments that an appender is ahead of us: while we compare everything it waits, else there is ever more."""


@dataclass(frozen=True)
class Appending:
    """What one appender writes; each segment has a thread."""

    names: tuple[str, ...]
    ack: Ack = Ack.COLD


APPENDING = tuple(Appending(tuple(f"d{number}/s{each}" for each in range(4))) for number in range(3))


@dataclass
class Progress:
    """Records of one segment that were acknowledged: those before `number`, up to `end`."""

    number: int = 0
    end: int = 0


@dataclass
class Drill:
    """Appenders that are killed and started again."""

    root: Path
    places: Places
    seed: str
    appending: tuple[Appending, ...] = APPENDING
    seen: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.chosen = random.Random(f"{self.seed} acks")
        self.expected = AllExpected(self.seed)
        self.life = self._life()
        self.acknowledged: dict[str, Progress] = {}
        self.appenders: dict[int, forked.Talking] = {}
        self.holder: forked.Talking | None = None

    def _life(self) -> Life:
        return Life(self.root, self.places, self.chosen)

    def run(self, kills: int) -> Counter[str]:
        """Kill so many times; return what was killed, and how many records were acknowledged."""
        try:
            for number in range(kills):
                if number % 20 == 0:
                    print(f"{number} of {kills} kills", flush=True)
                self._start()
                self._listen(self.chosen.randrange(1, 30))
                kind = self.chosen.choice(KINDS)
                self.seen[kind] += 1
                {"appender": self._kill_appender, "holder": self._kill_holder, "host": self._lose_host}[kind]()
            self._lose_host()
        finally:
            self._end()
        self.seen["records"] = sum(progress.number for progress in self.acknowledged.values())
        return self.seen

    def _start(self) -> None:
        if self.holder is None and self.chosen.random() < 0.7:
            self.holder = forked.Talking("tierfs", "--store", self.life.path, "daemon", "-f")
        self._start_appenders()

    def _start_appenders(self) -> None:
        for number, each in enumerate(self.appending):
            if number not in self.appenders:
                places = [(name, self.acknowledged.setdefault(name, Progress())) for name in each.names]
                jobs = [f"{name}={progress.number}@{progress.end}" for name, progress in places]
                words = (self.life.path, self.seed, each.ack, *jobs)
                self.appenders[number] = forked.Talking("tests.reality.ack_appender", *words, most_lines=MOST_LINES)

    def _listen(self, lines: int) -> None:
        """Wait for so many acknowledgments, of any appender."""
        for _ in range(lines):
            appender = self.chosen.choice(list(self.appenders.values()))
            self._hear(appender.line())

    def _hear(self, line: str) -> None:
        assert not line.startswith("refused"), line
        assert line, "an appender ended"
        name, number, end = line.split()
        progress = self.acknowledged[name]
        assert int(number) >= progress.number, line  # those between were there, and nobody was told
        progress.number, progress.end = int(number) + 1, int(end)

    def _kill_appender(self) -> None:
        number = self.chosen.choice(list(self.appenders))
        self._kill(number)
        self._compare()

    def _kill(self, number: int) -> None:
        lines, errors = self.appenders.pop(number).end()
        self.require_silence(errors)
        for line in lines:
            if line.endswith("\n"):  # what was told before the end
                self._hear(line)

    def require_silence(self, errors: str) -> None:
        """Raise AssertionError for what an appender should not have printed."""
        assert not errors, errors

    def _kill_holder(self) -> None:
        if self.holder is not None:
            logged = self.holder.end()[1]  # in the foreground it logs to standard error
            assert " ERROR " not in logged, logged
            assert "Traceback" not in logged, logged
            self.holder = None
        self._compare()

    def _lose_host(self) -> None:
        """The disk goes with all processes; another host has the bucket alone."""
        self._end()
        shutil.rmtree(self.life.path)
        self.life.number += 1
        done = self.life.run("recover", *self.life.place.options)
        assert done.code == 0, done
        self.life.prepare()
        self._compare()

    def _end(self) -> None:
        for number in list(self.appenders):
            self._kill(number)
        if self.holder is not None:
            self.holder.end()
            self.holder = None

    def _compare(self) -> None:
        """Read everything; the records of those that go on may be more by now."""
        with app.open_store(self.life.path) as store:
            for name, progress in self.acknowledged.items():
                with store.metadata.read() as txn:
                    if not directories.exists(txn, name):
                        assert not progress.number, f"{name} is gone"
                        continue
                data = bytearray()
                verbs.cat(store, name, None, None, None, data.extend)
                self._compare_bytes(name, bytes(data), progress)

    def _compare_bytes(self, name: str, data: bytes, progress: Progress) -> None:
        assert len(data) >= progress.end, f"{name} ends at {len(data)}, not {progress.end}"
        self.expected[name].require(0, data, "cat")
        assert self.expected[name].is_end(len(data)), f"{name} ends at {len(data)}, in a record"
