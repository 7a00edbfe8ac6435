"""The check of a clock."""

from __future__ import annotations

from tierfs.faces.doctor.findings import DoctorFinding, fail, ok, warn

_MS_PER_S = 1000

# Less makes no difference to any lag or grace period.
_NOTICED_MS = 60 * _MS_PER_S

# S3 refuses signatures that are further off.
_REFUSED_MS = 15 * 60 * _MS_PER_S

_SET_CLOCK = "as root: timedatectl set-ntp true"


def clock_finding(name: str, difference_ms: int, what: str) -> DoctorFinding:
    """Judge a clock that is `difference_ms` (not negative) off; `what` names the other clock."""
    text = f"{difference_ms / _MS_PER_S:,.0f} s {what}"
    if difference_ms > _REFUSED_MS:
        return fail(name, text, _SET_CLOCK)
    if difference_ms > _NOTICED_MS:
        return warn(name, text, _SET_CLOCK)
    return ok(name, text)
