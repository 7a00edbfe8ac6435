"""Sizes and durations as people write them: `64MiB`, `1.5GB`, `4h`, `10min`; and numbers of things as they read them.

Plain numbers are bytes and seconds.
"""

from __future__ import annotations

import math
import re

_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([a-z]*)", re.ASCII)

_SECONDS_PER_UNIT = {
    "ms": 0.001,
    "": 1,
    "s": 1,
    "m": 60,
    "min": 60,
    "h": 3600,
    "d": 86_400,
    "w": 7 * 86_400,
}
"""Months and years are left out: their lengths vary."""

_SINGULAR = {"are": "is", "were": "was"}

MAX_S = 100 * 365 * 86_400
"""A hundred years: more is a slip of the finger, and far below what any sum of times can hold."""

MAX_BYTES = (1 << 63) - 1
"""Offsets are signed 64-bit numbers in every system call."""


_MOST_DIGITS = 20
"""Of 64 bits, and of what Pulsar and RocketMQ pad their numbers to."""


def decimal(text: str, most: int = MAX_BYTES) -> int | None:
    """Parse a whole number from 0 to `most`, written in ASCII digits; None for any other text.

    `int` also takes signs, underscores, spaces and the digits of every script, and raises for more than 4,300 digits.
    """
    if not (text.isascii() and text.isdecimal()) or len(text) > _MOST_DIGITS:
        return None
    number = int(text)
    return number if number <= most else None


def parse_size(text: str | int) -> int:
    """Parse a size into bytes: KiB, MiB ... are powers of 1024, KB, MB ... of 1000.

    Raises ValueError that names the valid forms.
    """
    if isinstance(text, str):
        plain = decimal(text)
        size = _parse_with_unit(text) if plain is None else plain
    elif isinstance(text, int) and not isinstance(text, bool):
        size = text
    else:
        raise _no_size(text)
    if not 0 <= size <= MAX_BYTES:
        raise ValueError(f"{text!r} is out of range: sizes go from 0 to {MAX_BYTES}")
    return size


def parse_duration(text: str | float) -> float:
    """Parse a time into seconds.

    pydantic's timedelta reads ISO 8601 (PT4H) but not 4h, hence this table. Raises ValueError that names the valid
    forms.
    """
    if isinstance(text, (int, float)) and not isinstance(text, bool):
        return float(text)
    match = _DURATION.fullmatch(str(text).strip().lower())
    factor = _SECONDS_PER_UNIT.get(match[2]) if match else None
    if match is None or factor is None:
        raise ValueError(f"{text!r} is not a time: write seconds, or a number with ms, s, min, h, d or w, like 4h")
    seconds = float(match[1]) * factor
    if math.isinf(seconds):
        raise ValueError(f"{text!r} is too long")
    return seconds


def count(number: int, noun: str) -> str:
    """Format a number of things: `1 segment`, `2 directories`."""
    return f"1 {noun}" if number == 1 else f"{number:,} {_plural(noun)}"


def numbered(noun: str, first: int, end: int, verb: str) -> str:
    """Format things by their numbers, with a verb that is `are` or `were`: `entry 3 was`, `entries 3 to 5 were`."""
    if end - first == 1:
        return f"{noun} {first} {_SINGULAR[verb]}"
    return f"{_plural(noun)} {first} to {end - 1} {verb}"


def _plural(noun: str) -> str:
    return f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"


def _parse_with_unit(text: str) -> int:
    # Plain numbers never get here, so that commands which see only those start without pydantic.
    from pydantic import ByteSize, TypeAdapter, ValidationError

    if not text.isascii():  # pydantic reads the digits of every script
        raise _no_size(text)
    try:
        return int(TypeAdapter(ByteSize).validate_python(text))
    except ValidationError as exc:
        raise _no_size(text) from exc


def _no_size(text: object) -> ValueError:
    return ValueError(f"{text!r} is not a size: write bytes, or a number with KiB, MiB, GiB ..., like 64MiB")
