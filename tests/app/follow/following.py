"""A store that follows files of a test, by a clock that the test moves."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from tests.doubles.manual_clock import ManualClock
from tests.verbs import cat
from tierfs.app.follow.follower import LogFollower
from tierfs.app.follow.local import LocalTarget
from tierfs.app.follow.sources import sources_of
from tierfs.app.setup.create import init_store
from tierfs.app.store import Store, open_store
from tierfs.engine.metadata import directories

LOOK_S = 6.0
"""Longer than the time after which every file is looked at."""


@dataclass(slots=True)
class Told:
    """What a follower reports."""

    warnings: list[str] = field(default_factory=list)

    def warn(self, text: str) -> None:
        """Take a warning."""
        self.warnings.append(text)

    def note(self, text: str) -> None:
        """Take a note; no test looks at it."""


class Following:
    """Follow what is in `logs` into the directory `in` of a store. Close it."""

    def __init__(self, path: Path, *typed: str) -> None:
        self.path = path
        self.logs = path / "logs"
        self.logs.mkdir(exist_ok=True)
        self.clock = ManualClock()
        self.told = Told()
        self._typed = [str(self.logs / each) for each in typed] or [str(self.logs)]
        self._store: Store | None = None
        self._follower: LogFollower | None = None
        if not (path / "store").exists():
            init_store(path / "store", clock=self.clock)

    @property
    def store(self) -> Store:
        """The store, open."""
        if self._store is None:
            self._store = open_store(self.path / "store", self.clock)
        return self._store

    @property
    def follower(self) -> LogFollower:
        """The follower; made by the first look after a restart."""
        if self._follower is None:
            self._follower = LogFollower(LocalTarget(self.store, "in", self.told), sources_of(self._typed), self.told)
        return self._follower

    def look(self, times: int = 1, *, after_s: float = LOOK_S) -> None:
        """Look at all files."""
        for _ in range(times):
            follower = self.follower
            self.clock.advance(after_s)
            follower.look()

    def restart(self) -> None:
        """End the process; the next look is of another one."""
        if self._follower is not None:
            self._follower.close()
            self._follower = None
        if self._store is not None:
            self._store.close()
            self._store = None

    def text(self, name: str = "app.log") -> str:
        """What the segment of a log has."""
        parts: list[bytes] = []
        cat(self.store, f"in/{name}", None, None, None, lambda data: parts.append(bytes(data)))
        return b"".join(parts).decode()

    def segments(self) -> list[str]:
        """The names of the segments."""
        with self.store.metadata.read() as txn:
            return [name.removeprefix("in/") for name, _ in directories.segments_at(txn, "in")]
