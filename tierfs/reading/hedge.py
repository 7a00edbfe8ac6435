"""When to ask a second time: a GET whose first byte takes longer than nearly all recent ones did."""

from __future__ import annotations

from collections import deque

_RECENT = 512
_ENOUGH = 32
"""Fewer samples tell nothing of a 99th percentile."""

_QUANTILE = 0.99
_FLOOR_S = 0.05
"""Below this a busy processor is more likely than a slow server (a guess; a GET takes 2 ms on one machine)."""

_UNKNOWN_S = 1.0
"""Until enough is known."""

_RENEW_EVERY = 32
_EARNED_PER_FETCH = 0.05
_MOST_SAVED = 4.0
"""At most one hedge for twenty fetches, a few at once: a server that is slow for all is not asked twice."""


class HedgePolicy:
    """On the trio loop only."""

    def __init__(self) -> None:
        self._first_bytes_s: deque[float] = deque(maxlen=_RECENT)
        self._since_renewal = 0
        self._saved = 1.0
        self.delay_s = _UNKNOWN_S
        """How long a first byte may take before a second GET is worth it."""

    def note(self, first_byte_s: float) -> None:
        """A fetch delivered its first byte after so long."""
        self._first_bytes_s.append(first_byte_s)
        self._saved = min(_MOST_SAVED, self._saved + _EARNED_PER_FETCH)
        self._since_renewal += 1
        if self._since_renewal >= _RENEW_EVERY and len(self._first_bytes_s) >= _ENOUGH:
            self._since_renewal = 0
            ordered = sorted(self._first_bytes_s)
            self.delay_s = max(_FLOOR_S, ordered[int(len(ordered) * _QUANTILE)])

    @property
    def allowed(self) -> bool:
        """Whether one more hedge may go out now."""
        return self._saved >= 1

    def sent(self) -> None:
        """A hedge went out."""
        self._saved -= 1
