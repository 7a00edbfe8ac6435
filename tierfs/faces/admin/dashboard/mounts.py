"""Mounts: the activity of each mount of a store, between two looks at its statistics."""

from __future__ import annotations

import threading
from pathlib import Path

from tierfs.app.health import StoreHealth
from tierfs.app.mount_activity import Frame, frame
from tierfs.app.mount_stats import Stats, read_stats
from tierfs.base.bytes.frozen import dataclass
from tierfs.base.system.clock import Clock
from tierfs.base.system.mounts import MountState, asked
from tierfs.base.words.errors import TierfsError

# Age of a look at which the next one begins an interval: a shorter one shows only chance.
_LEAST_S = 2.0


@dataclass(frozen=True, slots=True)
class ColdCalls:
    """Calls of a mount to the cold tier by verb, since it began."""

    verb: str
    requests: int
    bytes: int
    errors: int


@dataclass(frozen=True, slots=True)
class MountView:
    """A mount as a page shows it."""

    point: str
    activity: Frame
    calls: tuple[ColdCalls, ...]


@dataclass(frozen=True, slots=True)
class _SeenStats:
    at_s: float
    stats: Stats
    activity: Frame


class Mounts:
    """The last looks at the mounts of one store. Thread-safe."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._looks: dict[str, _SeenStats] = {}

    def look(self, seen: StoreHealth) -> list[MountView]:
        """Return the mounts that answer; their rates are those since the last look, at first since they began."""
        with self._lock:
            alive = seen.points(MountState.ALIVE)
            self._looks = {point: look for point, look in self._looks.items() if point in alive}
            views = [view for point in alive if (view := self._look(point)) is not None]
        return sorted(views, key=lambda view: view.point)

    def _look(self, point: str) -> MountView | None:
        last = self._looks.get(point)
        if last is None or self._clock.monotonic_s() - last.at_s >= _LEAST_S:
            stats = asked(lambda: _stats_of(point))
            if stats is None:
                return None
            before: Stats = {"uptime_s": 0.0} if last is None else last.stats
            last = self._looks[point] = _SeenStats(self._clock.monotonic_s(), stats, frame(before, stats))
        calls = (ColdCalls(verb, **row) for verb, row in sorted(last.stats["storage"].items()))
        return MountView(point, last.activity, tuple(calls))


def _stats_of(point: str) -> Stats | None:
    """Return the statistics of a mount; None where they cannot be read, as of another user's or version."""
    try:
        return read_stats(Path(point))
    except TierfsError:
        return None
