"""The names that rotation gives the earlier files of a log, and their order. Pure.

logrotate writes `app.log.1`, `app.log-20261129`, with `extension .log` also `app-20261129.log`; Python, log4j, logback
and kubelet write the same with other separators. A name is one of these only where the log itself exists: `web.1` alone
is a log.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache

from tierfs.app.unpacking import is_compressed, plain_name

# A number, a date or a time in any form, or a word for the one before.
_TAG = r"[0-9][0-9T:_.\-]*|old|bak|prev|save"
_DIGITS = re.compile("[0-9]+")
_AFTER = re.compile(rf"[._-](?P<tag>{_TAG})")
_INSIDE = re.compile(rf"[._-](?P<tag>{_TAG})(?P<suffix>\.[A-Za-z][A-Za-z0-9]*)")

# Names of which is kept what they stand for: those of some hundred logs with their rotated files. Every look at a
# directory needs all of them, and to take one apart takes some 20 µs.
_KNOWN_NAMES = 65_536

# Longest number that counts rotations, from the newest: a year has four digits too, but is never alone.
_COUNT_DIGITS = 3


@lru_cache(maxsize=_KNOWN_NAMES)
def logs_of(name: str) -> Sequence[tuple[str, str]]:
    """Return each log that a file of this name may be an earlier file of, with the tag that says which."""
    short = plain_name(name)
    logs: list[tuple[str, str]] = []
    for at in range(1, len(short)):
        if (match := _AFTER.fullmatch(short, at)) is not None:
            logs.append((short[:at], match["tag"]))
        if (match := _INSIDE.fullmatch(short, at)) is not None:
            logs.append((short[:at] + match["suffix"], match["tag"]))
    if short != name:  # a log that was compressed where it was
        logs.append((short, "0"))
    return tuple(logs)


def earlier_files(listing: Collection[str]) -> Mapping[str, Sequence[str]]:
    """Return the names among a directory's that are earlier files of a log, by the log's name, the oldest first.

    Of a file and its compressed form, both of which exist while that is made, only the file counts.
    """
    tags: dict[str, dict[str, str]] = {}
    for name in listing:
        if is_compressed(name) and plain_name(name) in listing:
            continue
        for log, tag in logs_of(name):
            tags.setdefault(log, {})[name] = tag
    return {log: sorted(each, key=lambda name: (_age(each[name]), name)) for log, each in tags.items()}


@lru_cache(maxsize=_KNOWN_NAMES)
def _age(tag: str) -> tuple[int, tuple[int, ...]]:
    """Return what sorts a tag: dates as they pass, then counts, of which the lowest is the newest."""
    numbers = tuple(int(digits) for digits in _DIGITS.findall(tag))
    if not numbers:
        return 1, (-1,)
    if len(numbers) == 1 and _DIGITS.fullmatch(tag) is not None and len(tag) <= _COUNT_DIGITS:
        return 1, (-numbers[0],)
    return 0, numbers
