"""Time as a component, so that tests own it: no other module reads a clock."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Protocol

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Clock(Protocol):
    """Source of time."""

    def now_ms(self) -> int:
        """Return the wall clock, in milliseconds since the epoch."""
        ...

    def monotonic_s(self) -> float:
        """Return seconds that never go backwards, for measuring durations."""
        ...

    def boot_s(self) -> float:
        """Return seconds since the machine started, those it slept included; they cannot be set."""
        ...

    def boot_id(self) -> str:
        """Return the id of that start: `boot_s` of two processes compare only within one."""
        ...


class SystemClock:
    """The machine's clocks."""

    def now_ms(self) -> int:
        """Return the wall clock, in milliseconds since the epoch."""
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        """Return seconds since an arbitrary start."""
        return time.monotonic()

    def boot_s(self) -> float:
        """Return seconds since boot, suspend included, which time.monotonic() leaves out."""
        # clock_gettime(2): CLOCK_MONOTONIC stands still while the machine sleeps.
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def boot_id(self) -> str:
        """Return the kernel's random id of this boot."""
        return _BOOT_ID.read_text(encoding="ascii").strip()


class ManualClock:
    """A clock that stands still until it is advanced; for tests and simulations."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._monotonic_s = 0.0

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
        """Return the same for all such clocks."""
        return "manual"

    def jump(self, delay_s: float) -> None:
        """Set the wall clock alone, as an operator or a broken battery does."""
        self._now_ms += round(delay_s * 1000)

    def advance(self, delay_s: float) -> None:
        """Move both clocks forward."""
        self._now_ms += round(delay_s * 1000)
        self._monotonic_s += delay_s
