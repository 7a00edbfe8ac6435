"""A clock that tests set: lags, retention and grace periods pass at once."""

from __future__ import annotations


class ManualClock:
    """A clock that stands still until it is advanced."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._monotonic_s = 0.0
        self._starts = 0

    def now_ms(self) -> int:
        """Return the wall time last set."""
        return self._now_ms

    def monotonic_s(self) -> float:
        """Return the seconds advanced so far."""
        return self._monotonic_s

    def boot_s(self) -> float:
        """Return the seconds advanced so far."""
        return self._monotonic_s

    def boot_id(self) -> str:
        """Return the same for all such clocks of machines that were started as often."""
        return f"manual {self._starts}"

    def restart(self, rested_s: float, *, ahead_s: float = 0) -> None:
        """Start the machine again after a rest, with a wall clock that is ahead; monotonic time begins anew."""
        self._now_ms += round((rested_s + ahead_s) * 1000)
        self._monotonic_s = 0.0
        self._starts += 1

    def jump(self, delay_s: float) -> None:
        """Set the wall clock alone, as an operator or a broken battery does."""
        self._now_ms += round(delay_s * 1000)

    def advance(self, delay_s: float) -> None:
        """Move both clocks forward."""
        self._now_ms += round(delay_s * 1000)
        self._monotonic_s += delay_s
