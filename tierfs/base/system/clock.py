"""Time as a component, so that tests own it: no other module reads a clock."""

from __future__ import annotations

import time
from functools import cache
from pathlib import Path
from typing import Protocol

from tierfs.base.bytes.frozen import dataclass

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_TIME_NAMESPACE = Path("/proc/self/timens_offsets")

_MS_PER_S = 1000

# Clocks that are kept by NTP differ by far less, and no lag or retention is that short. A guess.
TOLERANCE_S = 300

# Longest time that the wall clock alone may say to have passed while the machine was off. A difference of a few hours,
# as of two time zones, ends nothing too early that is kept for days. A guess.
LONGEST_REST_S = 4 * 3600

# How often the newest reading is written with a commit: far below the rest that is allowed. A guess.
_KEEP_EVERY_MS = 10 * 60 * _MS_PER_S


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockReading:
    """The wall clock, bound to the start of the machine at which it was read."""

    boot_id: str = ""
    """Of that start; empty when it is not known."""
    boot_ms: int = 0
    """Since that start."""
    wall_ms: int = 0
    """0: there is no reading."""

    @classmethod
    def of(cls, clock: Clock) -> ClockReading:
        """Read a clock."""
        return cls(boot_id=clock.boot_id(), boot_ms=round(clock.boot_s() * _MS_PER_S), wall_ms=clock.now_ms())

    def gained_ms(self, later: ClockReading) -> int:
        """Return by how much the wall clock gained on the time since boot until `later`, within one process."""
        return later.wall_ms - self.wall_ms - (later.boot_ms - self.boot_ms)

    def ahead_ms(self, later: ClockReading) -> int | None:
        """Return the same for readings of any two processes; None for two starts of the machine."""
        # A container may show the same id after every start: less time since boot than before tells of another one.
        if not self.boot_id or self.boot_id != later.boot_id or later.boot_ms < self.boot_ms:
            return None
        return later.wall_ms - self.wall_ms - (later.boot_ms - self.boot_ms)

    def leads_to(self, later: ClockReading) -> bool:
        """Return whether `later` is not in doubt if this one is not."""
        ahead_ms = self.ahead_ms(later)
        if ahead_ms is not None:
            return abs(ahead_ms) <= TOLERANCE_S * _MS_PER_S
        rested_ms = later.wall_ms - self.wall_ms
        return -TOLERANCE_S * _MS_PER_S <= rested_ms <= LONGEST_REST_S * _MS_PER_S

    def dates(self, later: ClockReading) -> int:
        """Return the time to record for what happens at `later`: its wall time, unless that was set back.

        What is dated too early ends too early, once the clock is right again.
        """
        gained_ms = self.ahead_ms(later)
        behind_ms = self.wall_ms - later.wall_ms if gained_ms is None else -gained_ms
        return later.wall_ms + (behind_ms if behind_ms > TOLERANCE_S * _MS_PER_S else 0)

    def followed_by(self, later: ClockReading) -> ClockReading:
        """Return the reading to keep for later ones to be compared with: this, or a `later` one that it leads to."""
        return later if not self.is_kept(later) and self.leads_to(later) else self

    def is_kept(self, later: ClockReading) -> bool:
        """Return whether this reading is too young to give way to a later one."""
        return later.boot_id == self.boot_id and 0 <= later.boot_ms - self.boot_ms < _KEEP_EVERY_MS


NO_READING = ClockReading()


def newest_reading(seen: ClockReading, last_wall_ms: int, now: ClockReading) -> ClockReading:
    """Return the reading that a store keeps: `seen` is the one so far, `last_wall_ms` its newest time of a commit."""
    known = seen if seen.wall_ms else ClockReading(wall_ms=last_wall_ms)  # of an older tierfs, or new
    return known.followed_by(now) if known.wall_ms else now


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
        return time.clock_gettime(time.CLOCK_BOOTTIME) - _namespace_offset_s()

    def boot_id(self) -> str:
        """Return the kernel's random id of this boot; empty where it cannot be read."""
        return _boot_id()


@cache
def _boot_id() -> str:
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""


@cache
def _namespace_offset_s() -> float:
    """Return what a time namespace, as of a container, adds to the time since boot: processes of two are compared."""
    try:
        rows = [line.split() for line in _TIME_NAMESPACE.read_text(encoding="ascii").splitlines()]
        # time_namespaces(7): clock, seconds, nanoseconds.
        return next((int(row[1]) + int(row[2]) / 1e9 for row in rows if row[0] == "boottime"), 0.0)
    except (OSError, ValueError, IndexError):
        return 0.0  # a kernel without them
