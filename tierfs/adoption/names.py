"""Numbers in the names and headers of others: decimal, bounded, ASCII."""

from __future__ import annotations

import re

from tierfs.adoption.plan import MAX_OFFSET

_MAX_DIGITS = 20
"""Leading zeros included: RocketMQ pads to 20."""

_DECIMAL = re.compile(rf"[0-9]{{1,{_MAX_DIGITS}}}")


def offset(text: str) -> int | None:
    """The offset that `text` says, or None when it says none, or one that no segment can have."""
    if not _DECIMAL.fullmatch(text):
        return None
    number = int(text)
    return number if number <= MAX_OFFSET else None
