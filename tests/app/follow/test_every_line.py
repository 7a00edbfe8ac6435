"""Every line of a log is in its segment once and in order, wherever follower and logrotate are interrupted."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.app.follow.rotation import MODES, RotatedLog
from tests.doubles.manual_clock import ManualClock
from tests.verbs import cat
from tierfs.app.follow import follower, local
from tierfs.app.follow.follower import LogFollower
from tierfs.app.follow.local import LocalTarget
from tierfs.app.follow.sources import sources_of
from tierfs.app.room import InLog
from tierfs.app.setup.create import init_store
from tierfs.app.store import Store, open_store
from tierfs.base.words.errors import TierfsError
from tierfs.base.words.types import ByteRange
from tierfs.engine.segments.writer import PlannedAppend, append_all

STEPS = 120

# Less than the longest write, so that a look takes several rounds.
PIECE_BYTES = 150

# Steps of the writer and of logrotate between two steps of a look.
MOST_MEANWHILE = 8


class Killed(BaseException):
    """The process ended between two of its instructions."""


class World:
    """A log, and a process that follows it from time to time."""

    def __init__(self, path: Path, mode: str, choice: random.Random, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path = path
        self.clock = ManualClock()
        self.logs = path / "logs"
        self.logs.mkdir()
        self.log = RotatedLog(self.logs, mode)
        self.random = choice
        self.gaps = 0
        self.commits = 0
        self.is_settling = False
        self._store: Store | None = None
        self._follower: LogFollower | None = None
        self._dies_after: int | None = None
        init_store(path / "store", clock=self.clock)
        self._listdir = os.listdir
        monkeypatch.setattr(local, "append_all", self._append_all)
        monkeypatch.setattr(follower, "PIECE_BYTES", PIECE_BYTES)
        monkeypatch.setattr(os, "listdir", self._list)

    def _list(self, path: str) -> list[str]:
        """List a directory, whose files may have changed since the last step of the look."""
        if self.random.random() < 1 / 4:
            self._meanwhile()
        return self._listdir(path)

    def _meanwhile(self) -> None:
        for _ in range(0 if self.is_settling else self.random.randrange(MOST_MEANWHILE)):
            self.random.choice((self.log.step, lambda: self.log.write(self.random.choice((1, 40)))))()

    def _append_all(self, appends: Sequence[PlannedAppend]) -> list[ByteRange | TierfsError]:
        """Append, during which the process may die and the log grow and be rotated."""
        if self.random.random() < 1 / 4:
            self._meanwhile()
        if self._dies_after == 0:
            raise Killed
        results = append_all(appends)
        self.commits += 1
        if self._dies_after is not None:
            self._dies_after -= 1
            if self._dies_after == 0:
                raise Killed
        return results

    def look(self, dies_after: int | None = None) -> None:
        """Let the process look; it may die before its first commit or after one of them."""
        self._dies_after = dies_after
        self.clock.advance(0.5)
        try:
            if self._follower is None:
                self._store = open_store(self.path / "store", self.clock)
                self._follower = LogFollower(
                    LocalTarget(self._store, "in", InLog()), sources_of([str(self.logs)]), InLog()
                )
            self._follower.look()
        except Killed:
            self.kill()
        self._dies_after = None

    def kill(self) -> None:
        """End the process."""
        if self._follower is not None:
            self.gaps += self._follower.summary.gaps
            self._follower.close()
            self._follower = None
        if self._store is not None:
            self._store.close()
            self._store = None

    def step(self) -> None:
        """Let something happen."""
        what = self.random.choices(("write", "half", "rotate", "look", "kill", "die"), weights=(6, 1, 8, 6, 1, 2))[0]
        if what == "write":
            self.log.write(self.random.choice((1, 2, 40)))
        elif what == "half":
            self.log.write_half()
        elif what == "rotate":
            self.log.step()
        elif what == "look":
            self.look()
        elif what == "kill":
            self.kill()
        else:
            self.look(dies_after=self.random.choice((0, 1, 2)))

    def settle(self) -> None:
        """Let everything end, and the process look until it finds nothing more."""
        self.is_settling = True
        self.log.finish()
        self.log.write(1)
        for _ in range(20):
            self.look()
        self.kill()
        self.log.close()

    def lines(self) -> list[str]:
        """The lines in the store, all segments together."""
        with open_store(self.path / "store", self.clock) as store:
            return _text(store, "in/app.log").splitlines()


def _text(store: Store, segment: str) -> str:
    parts: list[bytes] = []
    cat(store, segment, None, None, None, lambda data: parts.append(bytes(data)))
    return b"".join(parts).decode()


@pytest.mark.parametrize("seed", [0, 1, 2, *(pytest.param(seed, marks=pytest.mark.whole) for seed in range(3, 12))])
@pytest.mark.parametrize("mode", MODES)
def test_every_line_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, seed: int) -> None:
    world = World(tmp_path, mode, random.Random(f"{mode} {seed}"), monkeypatch)
    world.log.write(1)
    world.look()
    for _ in range(STEPS):
        world.step()
    world.settle()
    assert world.lines() == [f"{number:>9}" for number in range(world.log.written)]
    assert world.gaps == 0
    assert world.log.rotations > 2, "a test without rotations shows nothing"
