"""How wrong a clock may be."""

from __future__ import annotations

from tierfs.doctor.findings import Finding, fail, ok, warn

_MS_PER_S = 1000
_NOTICED_MS = 60 * _MS_PER_S
"""Less makes no difference to any lag or grace period."""

_REFUSED_MS = 15 * 60 * _MS_PER_S
"""S3 refuses signatures that are further off."""

_SET_CLOCK = "as root: timedatectl set-ntp true"


def clock_finding(name: str, difference_ms: int, what: str) -> Finding:
    """The finding for a clock that is `difference_ms` (not negative) off; `what` says in relation to what."""
    found = f"{difference_ms / _MS_PER_S:,.0f} s {what}"
    if difference_ms > _REFUSED_MS:
        return fail(name, found, _SET_CLOCK)
    if difference_ms > _NOTICED_MS:
        return warn(name, found, _SET_CLOCK)
    return ok(name, found)
