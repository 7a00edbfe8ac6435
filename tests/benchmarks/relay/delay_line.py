"""The times at which bytes may go on, without the bytes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

Clock = Callable[[], float]
"""Seconds of a clock that never goes back."""


class DelayLine:
    """Bytes that entered in order; each may leave `delay_s` after it entered."""

    def __init__(self, delay_s: float, clock: Clock) -> None:
        self._delay_s = delay_s
        self._clock = clock
        self._waiting: deque[tuple[float, int]] = deque()
        self._ready_bytes = 0

    def enter(self, length_bytes: int) -> None:
        """Take in bytes that arrived now."""
        if self._delay_s:
            self._waiting.append((self._clock() + self._delay_s, length_bytes))
        else:
            self._ready_bytes += length_bytes

    def ready_bytes(self) -> int:
        """Return how many may leave now."""
        if self._waiting:
            now_s = self._clock()
            while self._waiting and self._waiting[0][0] <= now_s:
                self._ready_bytes += self._waiting.popleft()[1]
        return self._ready_bytes

    def leave(self, length_bytes: int) -> None:
        """Let bytes go that were ready."""
        assert length_bytes <= self._ready_bytes
        self._ready_bytes -= length_bytes

    @property
    def empty(self) -> bool:
        """Whether every byte has left."""
        return not self._waiting and not self._ready_bytes

    @property
    def due_s(self) -> float | None:
        """The time at which more becomes ready; None where nothing waits."""
        return self._waiting[0][0] if self._waiting else None
