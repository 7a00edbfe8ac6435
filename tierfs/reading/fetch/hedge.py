"""The time after which a GET counts as slow, so that a second one (a hedge) is sent, and how many of these may be.

A GET is slow when its first byte takes longer than in nearly all recent ones.
"""

from __future__ import annotations

from collections import deque

from tierfs.engine.chunkstore.link import Links

_RECENT = 512
# Fewer samples give no 99th percentile.
_ENOUGH = 32

_QUANTILE = 0.99
# Below this a busy processor is more likely than a slow server (a guess; a GET takes 2 ms on one machine).
_FLOOR_S = 0.05

# Multiple of the link's shortest time to a first byte that is no sign of a slow server (a guess).
_LATE = 2.0

# Until there are enough samples.
_UNKNOWN_S = 1.0

_RENEW_EVERY = 32
_EARNED_PER_FETCH = 0.05
# At most one hedge for twenty fetches, a few at once, so that a generally slow server is not asked twice.
_MOST_SAVED = 4.0


class HedgePolicy:
    """The delay before a hedge, and a budget of hedges. On the trio loop only."""

    def __init__(self, links: Links) -> None:
        self._links = links
        self._first_bytes_s: deque[float] = deque(maxlen=_RECENT)
        self._since_renewal = 0
        self._saved = 1.0
        self.delay_s = _UNKNOWN_S
        """Time for a first byte after which a second GET is worth it."""

    def note(self, first_byte_s: float) -> None:
        """Note the time to the first byte of a fetch."""
        self._first_bytes_s.append(first_byte_s)
        self._saved = min(_MOST_SAVED, self._saved + _EARNED_PER_FETCH)
        self._since_renewal += 1
        if self._since_renewal >= _RENEW_EVERY and len(self._first_bytes_s) >= _ENOUGH:
            self._since_renewal = 0
            ordered = sorted(self._first_bytes_s)
            floor_s = max(_FLOOR_S, _LATE * self._links.first_byte_s)
            self.delay_s = max(floor_s, ordered[int(len(ordered) * _QUANTILE)])

    @property
    def allowed(self) -> bool:
        """Whether one more hedge may be sent now."""
        return self._saved >= 1

    def sent(self) -> None:
        """Note that a hedge was sent."""
        self._saved -= 1
