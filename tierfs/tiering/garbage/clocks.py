"""Decide whether the wall clock can be trusted with deletions (design §7): a pure function, and its inputs.

A clock that jumps a year ahead makes every byte a year older. Retention, the deletion lag and the grace period of cold
garbage go by the wall clock, so they pause while it disagrees with the machine's time since boot or with the cold
tier's server, and continue by themselves when it agrees again. The metadata keep the last reading that was not in
doubt, bound to the start of the machine (clock.py): a process that begins with a wrong clock is compared with it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.system.clock import LONGEST_REST_S, NO_READING, TOLERANCE_S, Clock, ClockReading
from tierfs.base.words.errors import TierfsError, Unavailable
from tierfs.engine.metadata.store import MetadataStore

log = logging.getLogger(__name__)

_MS_PER_S = 1000

# Lifetime of a server's answer, carried on by the time since boot; one small request each.
_ASK_EVERY_S = 600

# While the machine was off for longer than LONGEST_REST_S, as the wall clock says, or was started with a wrong clock,
# deletions wait a day for an operator to notice the warning, unless a server confirms the time.
REST_DOUBT_S = 86_400

# A store at rest has one commit in this time, so that a restart of the machine is compared with a time before it.
_KEEP_EVERY_MS = 3600 * _MS_PER_S

# The command of an operator who knows that the present time is right.
ACCEPT = "tierfs gc --accept-clock"


@dataclass(frozen=True, slots=True)
class ClockView:
    """Knowledge about the time."""

    now: ClockReading
    began: ClockReading
    """At this process's first look."""
    last_wall_ms: int
    """The newest wall time in the metadata at that moment."""
    seen: ClockReading = NO_READING
    """The newest reading that was not in doubt, of any process."""
    server: ClockReading | None = None
    """The time of a server, if one answered of late, and when by the time since boot."""


def disagreement(view: ClockView) -> str | None:
    """Return why the wall clock is not to be trusted, or None. A server that answered of late settles it."""
    if view.server is not None:
        return _off(view.server.gained_ms(view.now), "the cold tier's server")
    since_seen_ms = view.seen.ahead_ms(view.now)
    for gained_ms in (view.began.gained_ms(view.now), since_seen_ms or 0):
        jumped = _off(gained_ms, "the time since this machine's boot")
        if jumped is not None:
            return jumped
    last_ms = max(view.last_wall_ms, view.seen.wall_ms)
    if last_ms - view.now.wall_ms > TOLERANCE_S * _MS_PER_S:
        return _off(view.now.wall_ms - last_ms, "the newest time in the store's metadata")
    rested_s = (view.began.wall_ms - (view.seen.wall_ms or view.last_wall_ms)) / _MS_PER_S
    doubted_s = (view.now.boot_ms - view.began.boot_ms) / _MS_PER_S
    if since_seen_ms is None and rested_s > LONGEST_REST_S and doubted_s < REST_DOUBT_S:
        shown = f"{rested_s / 3600:,.0f} hours" if rested_s < 2 * 86_400 else f"{rested_s / 86_400:,.0f} days"
        return f"the store's newest change, before a restart, would be {shown} old, and no server confirms this"
    return None


def _off(ahead_ms: int, reference: str) -> str | None:
    if abs(ahead_ms) <= TOLERANCE_S * _MS_PER_S:
        return None
    side = "later than" if ahead_ms > 0 else "earlier than"
    return f"it is {abs(ahead_ms) / _MS_PER_S:,.0f} s {side} {reference}"


class ClockDisagrees(Unavailable):
    """Timed deletions pause."""


def _with_way_out(reason: str) -> str:
    return f"{reason}; set it, or if it is right now: {ACCEPT}"


class ClockCheck:
    """Watches the clocks for one holder. Thread-safe."""

    def __init__(self, metadata: MetadataStore, clock: Clock, server_time_ms: Callable[[], int | None]) -> None:
        """Take `server_time_ms`, which asks the cold tier's server; it returns None where there is no server."""
        self._metadata = metadata
        self._clock = clock
        self._server_time_ms = server_time_ms
        self._lock = threading.Lock()
        self._asking = threading.Lock()
        self._server: ClockReading | None = None
        self._asked_s: float | None = None
        self._warned = False
        self._begin()

    @property
    def asked(self) -> bool:
        """Whether the server was asked, answered or not."""
        return self._asked_s is not None

    def trusts(self) -> bool:
        """Return whether what falls due by time may go now. Asks the server, if the last answer is old."""
        self.ask()
        trusted = self.reason() is None
        if trusted:
            self._keep()
        return trusted

    def reason(self) -> str | None:
        """Return why timed deletions pause now, or None.

        Cheap: asks no server. The first time is a warning in the log.
        """
        with self._metadata.read() as txn:
            seen, accepted = txn.store.clock_seen, txn.store.clock_accepted_ms != self._accepted_ms
        if accepted:
            self._begin()
        cause = disagreement(self._view(seen))
        with self._lock:
            warned, self._warned = self._warned, cause is not None
        if cause is not None and not warned:
            log.warning("the wall clock is not trusted, timed deletions are paused: %s", _with_way_out(cause))
        if cause is None and warned:
            log.info("the clocks agree again: timed deletions continue")
        return cause

    def ask(self) -> None:
        """Ask the server for its time, if the last answer is old. Without an answer nothing changes.

        A thread that comes while another asks waits for the same answer: it would judge without it.
        """
        with self._asking:
            boot_s = self._clock.boot_s()
            if self._asked_s is not None and boot_s - self._asked_s < _ASK_EVERY_S:
                return
            try:
                server_ms = self._server_time_ms()
            except TierfsError as exc:
                log.info("the cold tier does not report its time: %s", exc)
            else:
                # The middle of the request is when the server looked.
                middle_ms = round((boot_s + self._clock.boot_s()) / 2 * _MS_PER_S)
                known = server_ms is not None
                self._server = ClockReading(boot_ms=middle_ms, wall_ms=server_ms or 0) if known else None
            finally:
                self._asked_s = boot_s

    def require(self) -> None:
        """Raise ClockDisagrees while timed deletions pause, for the list of what is stuck."""
        if not self.trusts():
            cause = _with_way_out(self.reason() or "")
            raise ClockDisagrees(f"timed deletions are paused because the wall clock is not trusted: {cause}")

    def require_server_agrees(self) -> None:
        """Raise ClockDisagrees when the server shows another time: then ours may not be accepted."""
        self.ask()
        cause = disagreement(self._view(NO_READING)) if self._server is not None else None
        if cause is not None:
            raise ClockDisagrees(f"the wall clock is not trusted: {cause}", remedy="set this machine's clock")

    def _view(self, seen: ClockReading) -> ClockView:
        now, server = ClockReading.of(self._clock), self._server
        if server is not None and now.boot_ms - server.boot_ms > 2 * _ASK_EVERY_S * _MS_PER_S:
            server = None
        return ClockView(now, self._began, self._last_wall_ms, seen, server)

    def _begin(self) -> None:
        """Note the times that the wall clock is compared with from now on."""
        with self._metadata.read() as txn:
            self._last_wall_ms, self._accepted_ms = txn.store.last_wall_ms, txn.store.clock_accepted_ms
        self._began = ClockReading.of(self._clock)

    def _keep(self) -> None:
        """Keep a reading that is trusted, in a store at rest too, and one that a server or a person found right."""
        with self._metadata.read() as txn:
            seen = txn.store.clock_seen
        now = ClockReading.of(self._clock)
        if seen.ahead_ms(now) is not None and seen.leads_to(now) and now.boot_ms - seen.boot_ms < _KEEP_EVERY_MS:
            return
        try:
            with self._metadata.write_notes() as txn:
                txn.update_store(clock_seen=now)
        except TierfsError as exc:  # as on a full disk: later processes know an older time
            log.info("cannot record the time: %s", exc)
