"""Limits of bytes per second, shared by the threads and the loop of one process.

`TokenBucket` is the rule, with time as a parameter. `Throttle` is the limit: it grants bytes while its bucket is not
in debt, so that one grant may exceed what is there and the next one waits for it. Waiters sleep until then; nothing
polls. A reader on the loop takes what is there at once and comes before every waiting thread.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from tierfs.base.system import deadlines
from tierfs.base.system.clock import Clock, SystemClock
from tierfs.base.words.errors import Closed

# Bytes that an idle limit saves up, as a time at its rate: enough that a late wake-up loses nothing (a guess). More
# would be sent at once after each pause.
SAVED_S = 0.1

# Longest time for which a thread lets readers pass: a warm-up advances even if readers always wait (a guess).
_YIELDS_S = 10.0

# A shorter sleep is no sleep; and the rest of a debt that rounding leaves must not keep a waiter awake.
_SHORTEST_S = 1e-4

# Waits for a change, or for a time: `Condition.wait`.
Wait = Callable[[threading.Condition, float | None], object]


class TokenBucket:
    """An amount that grows with time up to a limit, and is taken from; it may be taken into debt. Pure."""

    __slots__ = ("_at_s", "_level", "_most", "_per_s")

    def __init__(self, per_s: float, most: float, now_s: float) -> None:
        """Begin with `most`."""
        self._per_s = per_s
        self._most = self._level = most
        self._at_s = now_s

    def level(self, now_s: float) -> float:
        """Return the present amount, negative in debt."""
        grown = self._level + max(0.0, now_s - self._at_s) * self._per_s
        self._level, self._at_s = min(self._most, grown), max(now_s, self._at_s)
        return self._level

    def take(self, amount: float, now_s: float) -> None:
        """Take an amount, whatever is there; a negative one gives back."""
        self._level = min(self._most, self.level(now_s) - amount)

    def wait_s(self, now_s: float) -> float:
        """Return the time until it is out of debt; 0 if it is."""
        wait_s = -self.level(now_s) / self._per_s
        return wait_s if wait_s > _SHORTEST_S else 0.0


class Throttle:
    """A limit of bytes per second. Thread-safe."""

    def __init__(self, bytes_per_s: int = 0, clock: Clock | None = None, wait: Wait = threading.Condition.wait) -> None:
        """0: no limit."""
        self._clock = clock or SystemClock()
        self._wait = wait
        self._changed = threading.Condition()
        self._turns: deque[object] = deque()
        self._bucket: TokenBucket | None = None
        self._bytes_per_s = 0
        self._reader_waits = False
        self._ended = False
        self.granted_bytes = 0
        """Bytes that were counted so far; none are while there is no limit."""
        self.limit(bytes_per_s)

    @property
    def bytes_per_s(self) -> int:
        """The limit; 0 for none."""
        return self._bytes_per_s

    @property
    def waits(self) -> int:
        """Threads that wait."""
        return len(self._turns)

    def limit(self, bytes_per_s: int) -> None:
        """Change the limit, for those that wait too."""
        with self._changed:
            if bytes_per_s != self._bytes_per_s:
                self._bytes_per_s = bytes_per_s
                most, now_s = bytes_per_s * SAVED_S, self._clock.monotonic_s()
                self._bucket = TokenBucket(bytes_per_s, most, now_s) if bytes_per_s else None
            self._changed.notify_all()

    def take(self, length_bytes: int) -> None:
        """Wait for the bytes, in the order of the calls and after waiting readers, but not always after them.

        Raises Unavailable at the deadline in force, Closed after `end`.
        """
        if self._bucket is None:
            return
        with self._changed:
            turn, since_s = object(), self._clock.monotonic_s()
            self._turns.append(turn)
            try:
                while (wait_s := self._wait_s(turn, since_s)) != 0:
                    if self._ended:
                        raise Closed("a transfer within the limit of bandwidth was interrupted")
                    deadlines.require_time("a transfer within the limit of bandwidth")
                    longest_s = deadlines.within(threading.TIMEOUT_MAX if wait_s is None else wait_s)
                    self._wait(self._changed, longest_s)
                self._charge(length_bytes)
            finally:
                self._turns.remove(turn)
                self._changed.notify_all()

    def end(self) -> None:
        """Let no thread wait any more, those that do included. A handler of signals may call it."""
        with self._changed:  # its lock is reentrant: the handler's thread may have it
            self._ended = True
            self._changed.notify_all()

    def charge(self, length_bytes: int) -> None:
        """Count bytes that did not wait; negative ones were granted and not transferred."""
        if self._bucket is not None:
            with self._changed:
                self._charge(length_bytes)

    def ready_in_s(self) -> float:
        """Return the time until bytes are granted; 0 for now. Only threads have turns."""
        with self._changed:
            return 0.0 if self._bucket is None else self._bucket.wait_s(self._clock.monotonic_s())

    def let_readers_first(self, waits: bool) -> None:
        """Note whether a reader waits for bytes: threads wait until none does."""
        if waits != self._reader_waits:
            with self._changed:
                self._reader_waits = waits
                self._changed.notify_all()

    def _wait_s(self, turn: object, since_s: float) -> float | None:
        """Return how long a thread has to wait, which does so since then: 0 for not, None for a change."""
        if self._bucket is None:
            return 0.0
        if self._turns[0] is not turn:
            return None
        now_s = self._clock.monotonic_s()
        yields_s = since_s + _YIELDS_S - now_s
        if self._reader_waits and yields_s > 0:
            return yields_s
        return self._bucket.wait_s(now_s)

    def _charge(self, length_bytes: int) -> None:
        if self._bucket is not None:
            self._bucket.take(length_bytes, self._clock.monotonic_s())
            self.granted_bytes += length_bytes
