"""The calls of the cold tier by all processes of a store, by day, as a bill counts them.

Each process adds what its metrics counted since it last did: a mount or daemon every minute, a command at its end.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.system import shared_json
from tierfs.base.system.clock import Clock
from tierfs.base.system.metrics import MetricName

if TYPE_CHECKING:
    from tierfs.base.system.prometheus import Metrics

log = logging.getLogger(__name__)

SAVE_EVERY_S = 60.0
DAYS_KEPT = 62
_MS_PER_S = 1000
_COLD = "cold"


@dataclass(frozen=True, slots=True)
class Calls:
    """Calls of one verb."""

    number: int = 0
    bytes: int = 0

    def plus(self, other: Calls, sign: int = 1) -> Calls:
        """Add others, or take them away."""
        return Calls(self.number + sign * other.number, self.bytes + sign * other.bytes)


# By day, then by verb.
DailyCalls = dict[date, dict[str, Calls]]


def read_days(path: Path) -> DailyCalls:
    """Return the calls in a store's file; none for a missing file, and a warning for a damaged one."""
    try:
        content = shared_json.read(path)
        days: Mapping[str, Mapping[str, Any]] = {} if content is None else content["days"]
        return {
            date.fromisoformat(day): {verb: Calls(int(row[0]), int(row[1])) for verb, row in verbs.items()}
            for day, verbs in days.items()
        }
    except (OSError, ValueError, TypeError, KeyError, AttributeError, IndexError) as exc:
        log.warning("%s cannot be read; the requests of earlier days are unknown: %s", path, exc)
        return {}


class RequestLog:
    """Adds the calls of one process. Used by one thread at a time."""

    def __init__(self, path: Path, lock_path: Path, clock: Clock, metrics: Metrics) -> None:
        self._path = path
        self._lock_path = lock_path
        self._clock = clock
        self._metrics = metrics
        self._saved: dict[str, Calls] = {}

    def forget(self) -> None:
        """Leave what was counted so far to the parent, in a child of fork."""
        self._saved = self._counted()

    def save(self) -> None:
        """Add what was counted since the last save. A file that cannot be written is left for the next one."""
        counted = self._counted()
        more = {verb: calls.plus(self._saved.get(verb, Calls()), -1) for verb, calls in counted.items()}
        more = {verb: calls for verb, calls in more.items() if calls != Calls()}
        if not more:
            return
        try:
            shared_json.update(self._path, self._lock_path, lambda: self._with(more))
        except OSError as exc:  # a full disk, or a read-only one: the report says since when it knows
            log.info("cannot write %s: %s", self._path, exc)
            return
        except Exception:  # what reports must not end what serves
            log.exception("cannot add to %s", self._path)
            return
        self._saved = counted

    def _with(self, more: Mapping[str, Calls]) -> object:
        today = datetime.fromtimestamp(self._clock.now_ms() / _MS_PER_S, UTC).date()
        days = read_days(self._path)
        verbs = days.setdefault(today, {})
        for verb, calls in more.items():
            verbs[verb] = verbs.get(verb, Calls()).plus(calls)
        kept = sorted(day for day in days if day > today - timedelta(days=DAYS_KEPT))
        rows = {day: {verb: (calls.number, calls.bytes) for verb, calls in days[day].items()} for day in kept}
        return {"days": {day.isoformat(): row for day, row in rows.items()}}

    def _counted(self) -> dict[str, Calls]:
        numbers = self._metrics.values(MetricName.STORAGE_REQUESTS)
        sizes = self._metrics.values(MetricName.STORAGE_BYTES)
        return {
            verb: Calls(int(number), int(sizes.get((tier, verb), 0)))
            for (tier, verb), number in numbers.items()
            if tier == _COLD
        }
