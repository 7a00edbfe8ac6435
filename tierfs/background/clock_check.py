"""Whether the wall clock can be trusted with deletions (design §7): a pure function, and what feeds it.

A clock that jumps a year ahead makes every byte a year older. Retention, the deletion lag and the grace period
of cold garbage go by the wall clock, so they pause while it disagrees with the machine's time since boot or with
the cold tier's server, and go on by themselves when it agrees again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass

from tierfs.clock import Clock
from tierfs.errors import TierfsError, Unavailable
from tierfs.metadata.store import MetadataStore

log = logging.getLogger(__name__)

_MS_PER_S = 1000

TOLERANCE_S = 300
"""Clocks that are kept by NTP differ by far less, and no lag or retention is that short. Pulled out of the air."""

_ASK_EVERY_S = 600
"""How long an answer of the server counts, carried on by the time since boot; one small request each."""

LONGEST_REST_S = 30 * 86_400
"""A store that nobody wrote to for so long may as well have been opened with a wrong clock..."""

REST_DOUBT_S = 86_400
"""...so that without a server to confirm it, deletions wait a day for an operator to notice the warning."""


@dataclass(frozen=True, slots=True)
class Instant:
    """A wall time, and the time since boot at which it was seen."""

    wall_ms: int
    boot_s: float

    def expected_ms(self, boot_s: float) -> int:
        """What the wall clock should show at another time since boot."""
        return self.wall_ms + round((boot_s - self.boot_s) * _MS_PER_S)


@dataclass(frozen=True, slots=True)
class ClockView:
    """What is known about the time."""

    now: Instant
    began: Instant
    """As this process began to look."""
    last_wall_ms: int
    """The newest wall time in the metadata at that moment."""
    server: Instant | None = None
    """What the cold tier's server said, if it did of late."""


def disagreement(view: ClockView) -> str | None:
    """Why the wall clock is not to be trusted, or None. A server that answered of late settles it."""
    if view.server is not None:
        ahead_ms = view.now.wall_ms - view.server.expected_ms(view.now.boot_s)
        return _off(ahead_ms, "the cold tier's server")
    jumped = _off(view.now.wall_ms - view.began.expected_ms(view.now.boot_s), "the time since this machine's boot")
    if jumped is not None:
        return jumped
    if view.last_wall_ms - view.now.wall_ms > TOLERANCE_S * _MS_PER_S:
        return _off(view.now.wall_ms - view.last_wall_ms, "the newest time in the store's metadata")
    rested_s = (view.began.wall_ms - view.last_wall_ms) / _MS_PER_S
    if rested_s > LONGEST_REST_S and view.now.boot_s - view.began.boot_s < REST_DOUBT_S:
        return f"by it the store's newest change is {rested_s / 86_400:,.0f} days old, and no server confirms that"
    return None


def _off(ahead_ms: int, reference: str) -> str | None:
    if abs(ahead_ms) <= TOLERANCE_S * _MS_PER_S:
        return None
    side = "ahead of" if ahead_ms > 0 else "behind"
    return f"it is {abs(ahead_ms) / _MS_PER_S:,.0f} s {side} {reference}"


ACCEPT = "tierfs gc --accept-clock"
"""What an operator types who knows that the present time is right."""


class ClockDisagrees(Unavailable):
    """Timed deletions pause."""


def _with_way_out(reason: str) -> str:
    return f"{reason}; set it, or if it is right now: {ACCEPT}"


class ClockCheck:
    """Watches the clocks for one holder. Thread-safe."""

    def __init__(self, metadata: MetadataStore, clock: Clock, server_time_ms: Callable[[], int | None]) -> None:
        """`server_time_ms` asks the cold tier's server; None where there is no server."""
        self._metadata = metadata
        self._clock = clock
        self._server_time_ms = server_time_ms
        self._lock = threading.Lock()
        self._server: Instant | None = None
        self._asked_s: float | None = None
        self._told = False
        self._begin()

    def reason(self) -> str | None:
        """Why timed deletions pause now, or None. Cheap; asks nobody. The first time is a warning in the log."""
        with self._metadata.read() as txn:
            accepted = txn.store.clock_accepted_ms != self._accepted_ms
        if accepted:
            self._begin()
        now = self._now()
        server = self._server
        if server is not None and now.boot_s - server.boot_s > 2 * _ASK_EVERY_S:
            server = None
        found = disagreement(ClockView(now, self._began, self._last_wall_ms, server))
        with self._lock:
            told, self._told = self._told, found is not None
        if found is not None and not told:
            log.warning("the wall clock is not trusted, so timed deletions pause: %s", _with_way_out(found))
        if found is None and told:
            log.info("the clocks agree again: timed deletions go on")
        return found

    def ask(self) -> None:
        """Ask the server for its time, if the last answer is old. One that does not answer says nothing."""
        boot_s = self._clock.boot_s()
        if self._asked_s is not None and boot_s - self._asked_s < _ASK_EVERY_S:
            return
        self._asked_s = boot_s
        try:
            server_ms = self._server_time_ms()
        except TierfsError as exc:
            log.info("the cold tier does not tell its time: %s", exc)
            return
        # The middle of the request is when the server looked.
        middle_s = (boot_s + self._clock.boot_s()) / 2
        self._server = None if server_ms is None else Instant(server_ms, middle_s)

    def require(self) -> None:
        """Raise ClockDisagrees while timed deletions pause, for the list of what is stuck."""
        self.ask()
        found = self.reason()
        if found is not None:
            raise ClockDisagrees(f"timed deletions pause, as the wall clock is not trusted: {_with_way_out(found)}")

    def require_server_agrees(self) -> None:
        """Raise ClockDisagrees when the server shows another time: then nobody may take ours for right."""
        self.ask()
        view = ClockView(self._now(), self._began, self._last_wall_ms, self._server)
        found = disagreement(view) if self._server is not None else None
        if found is not None:
            raise ClockDisagrees(f"the wall clock is not taken for right: {found}", remedy="set this machine's clock")

    def _begin(self) -> None:
        """What the wall clock is compared with from now on."""
        with self._metadata.read() as txn:
            self._last_wall_ms, self._accepted_ms = txn.store.last_wall_ms, txn.store.clock_accepted_ms
        self._began = self._now()

    def _now(self) -> Instant:
        return Instant(self._clock.now_ms(), self._clock.boot_s())
