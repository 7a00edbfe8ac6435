"""Values as people write them, the same in settings, policies and options: sizes, durations, switches, `off`.

`64MiB`, `1.5 GB`, `4096`; `5min`, `1h30m`, `90s`; `yes`, `no`. Plain numbers are bytes and seconds. What `format_size`,
`format_duration` and `format_flag` print is read back as the same value.
"""

from __future__ import annotations

import re
from contextlib import suppress

_UNIT_ORDER = ("ms", "s", "min", "h", "d", "w")
# Months and years are left out: their lengths vary.
_MS_PER_UNIT = {
    "ms": 1,
    "s": 1000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "w": 7 * 86_400_000,
}

_MS_PER_S = 1000

_LETTERS = "kmgtpe"
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_STEP = 1024
# A letter alone counts in 1024, as `dd`, `head` and Spark read it.
# IEC 80000-13: KiB is 1024 bytes, KB 1000.
_BYTES_PER_UNIT: dict[str, int] = {
    "b": 1,
    **{f"{letter}b": 1000**power for power, letter in enumerate(_LETTERS, 1)},
    **{f"{letter}{rest}": 1024**power for power, letter in enumerate(_LETTERS, 1) for rest in ("ib", "i", "")},
}

# A number with its fraction. More digits are a slip of the finger, and take long to convert.
_PART = r"([0-9]{1,20})(?:\.([0-9]{1,400}))?\s*"
_SIZE = re.compile(rf"{_PART}([a-z]*)", re.ASCII)
_DURATION_PART = re.compile(rf"{_PART}(ms|s|min|m|h|d|w)\s*", re.ASCII)
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?", re.ASCII)

_FLAGS = {"yes": True, "true": True, "on": True, "1": True, "no": False, "false": False, "off": False, "0": False}

# Value of what is switched off.
OFF = "off"

# The forms of each kind, for messages.
SIZES = "bytes, or a number with KiB, MiB, GiB ..., like 64MiB"
DURATIONS = "seconds, or numbers with s, min, h, d or w, like 4h or 1h30min"
TIMES = "how long ago, like 2h, a date and time, like 2026-01-31T12:00Z, or milliseconds since 1970"
FLAGS = "yes or no, or true or false"

_SINGULAR = {"are": "is", "were": "was"}

# A hundred years: more is a slip of the finger, and far below what any sum of times can hold.
MAX_S = 100 * 365 * 86_400

# Numbers from here on, of 1973, are milliseconds since the epoch and nothing else.
_LEAST_EPOCH_MS = 100_000_000_000

# What is between, from 115 days on, was meant as seconds since the epoch, or as a date without hyphens.
_MOST_BARE_S = 10_000_000

_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")

# Offsets are signed 64-bit numbers in every system call.
MAX_BYTES = (1 << 63) - 1

# Of 64 bits, and of what Pulsar and RocketMQ pad their numbers to.
_MOST_DIGITS = 20


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
        match = _SIZE.fullmatch(text.strip().lower()) if text.isascii() else None  # the Kelvin sign's lower case is k
        factor = _BYTES_PER_UNIT.get(match[3] or "b") if match else None
        if match is None or factor is None:
            if _NUMBER.fullmatch(text.strip()):
                raise _out_of_range(text)
            raise _no_size(text)
        whole, scale = _scaled(match)
        size, rest = divmod(whole * factor, scale)
        if rest and factor == 1:  # half a byte; of 1.3KiB the fraction is dropped
            raise _no_size(text)
    elif isinstance(text, int) and not isinstance(text, bool):
        size = text
    else:
        raise _no_size(text)
    if not 0 <= size <= MAX_BYTES:
        raise _out_of_range(text)
    return size


def format_size(size_bytes: int) -> str:
    """Format a size as `parse_size` reads it back without loss, in the largest unit that divides it."""
    for power, letter in reversed([*enumerate(_LETTERS.upper(), 1)]):
        if size_bytes and size_bytes % 1024**power == 0:
            return f"{size_bytes // 1024**power}{letter}iB"
    return str(size_bytes)


def size(size_bytes: int) -> str:
    """Format a size for people, with at most one decimal: `64 MiB`, `3.1 GiB`, `17 B`."""
    value, unit = float(size_bytes), 0
    while round(value, 1) >= _STEP and unit < len(_UNITS) - 1:
        value, unit = value / _STEP, unit + 1
    return f"{value:.1f}".removesuffix(".0") + f" {_UNITS[unit]}"


def parse_duration(text: str | float) -> float:
    """Parse a time into seconds: a number of them, or numbers with units, the largest unit first.

    Raises ValueError that names the valid forms.
    """
    if isinstance(text, (int, float)) and not isinstance(text, bool):
        return float(text)
    written = str(text).strip().lower() if str(text).isascii() else ""
    if _NUMBER.fullmatch(written):
        written += "s"
    ms, scale, at, last = 0, 1, 0, len(_UNIT_ORDER)
    while match := _DURATION_PART.match(written, at):
        unit = "min" if match[3] == "m" else match[3]
        order = _UNIT_ORDER.index(unit)
        if order >= last:
            break
        whole, part_scale = _scaled(match)
        ms, scale = ms * part_scale + whole * _MS_PER_UNIT[unit] * scale, scale * part_scale
        at, last = match.end(), order
    if at < len(written) or not at:
        if re.match(r"[0-9.]{21}", written):
            raise ValueError(f"{text!r} is too long")
        raise ValueError(f"{text!r} is not a time: write {DURATIONS}")
    return ms / (scale * _MS_PER_S)  # of whole numbers: 1.1h are 3960 s, without an error of floating point


def parse_time(text: str, now_ms: int) -> int:
    """Parse a moment into milliseconds since the epoch: how long ago, a date and time, or those milliseconds.

    A date and time without a zone is in UTC, as tierfs prints them. Raises ValueError that names the valid forms.
    """
    from datetime import UTC, datetime  # most commands take no time

    number = parse_epoch_ms(text)
    if number is not None:
        return number
    written = text.strip()
    if _DATE.match(written):
        with suppress(ValueError):
            at = datetime.fromisoformat(written)
            return round((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * _MS_PER_S)
    else:
        with suppress(ValueError):
            return max(0, now_ms - round(parse_duration(written) * _MS_PER_S))
    raise ValueError(f"{text!r} is not a time: write {TIMES}")


def parse_epoch_ms(text: str) -> int | None:
    """Parse a bare number of milliseconds since the epoch, the form of all faces; None for any other text.

    Raises ValueError that names the valid forms for a number that may be anything else: seconds ago, seconds since the
    epoch, or a date without hyphens.
    """
    written = text.strip()
    if _NUMBER.fullmatch(written) is None:
        return None
    number = decimal(written)
    if number is not None and number >= _LEAST_EPOCH_MS:
        return number
    large = number is not None and number >= _MOST_BARE_S
    may_be = "a date, or seconds since 1970" if large else "seconds ago, or milliseconds since 1970"
    raise ValueError(f"{text!r} may be {may_be}: write {TIMES}")


def format_duration(seconds: float) -> str:
    """Format a time as `parse_duration` reads it back without loss, in the largest unit that divides it."""
    if seconds == int(seconds):
        for unit in ("d", "h", "min"):
            number, rest = divmod(int(seconds), _MS_PER_UNIT[unit] // _MS_PER_S)
            if number and not rest:
                return f"{number}{unit}"
        return f"{int(seconds)}s"
    ms = round(seconds * _MS_PER_S)
    if ms < _MS_PER_S and ms / _MS_PER_S == seconds:
        return f"{ms}ms"
    written = repr(seconds)
    if "e" in written:
        from decimal import Decimal  # of no value that people write

        written = format(Decimal(written), "f")
    return f"{written}s"


def parse_flag(text: str | bool) -> bool:
    """Parse a switch. Raises ValueError that names the valid forms."""
    flag = _FLAGS.get(str(text).strip().lower())
    if flag is None:
        raise ValueError(f"{text!r} is not yes or no: write {FLAGS}")
    return flag


def format_flag(value: bool) -> str:
    """Format a switch as `parse_flag` reads it back."""
    return "yes" if value else "no"


def format_by_name(name: str, value: object) -> str:
    """Format a value whose unit is at the end of its name: `_bytes`, `_s`; `bandwidth` is bytes too."""
    if isinstance(value, bool):
        return format_flag(value)
    if isinstance(value, (int, float)) and name.endswith("_s"):
        return format_duration(value)
    is_size = name.endswith(("_bytes", "bandwidth"))
    return format_size(value) if isinstance(value, int) and is_size else str(value)


def is_off(value: object) -> bool:
    """Return whether a value is written as switched off."""
    return isinstance(value, str) and value.strip().lower() == OFF


def _scaled(match: re.Match[str]) -> tuple[int, int]:
    """Return a number with a fraction as a whole number, and what divides it."""
    fraction = match[2] or ""
    return int(match[1] + fraction), 10 ** len(fraction)


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


def _no_size(text: object) -> ValueError:
    return ValueError(f"{text!r} is not a size: write {SIZES}")


def _out_of_range(text: object) -> ValueError:
    return ValueError(f"{text!r} is out of range: a size is from 0 to {MAX_BYTES}")
