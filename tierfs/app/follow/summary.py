"""The work of a follower so far."""

from __future__ import annotations

from tierfs.base.bytes.frozen import dataclass, field
from tierfs.base.words.errors import TierfsError


@dataclass(slots=True)
class FollowSummary:
    """The work of a follower so far."""

    bytes: int = 0
    appends: int = 0
    gaps: int = 0
    logs: int = 0
    failed: dict[str, TierfsError] = field(default_factory=dict)
    """By path: the last error of a log that could not be followed."""
