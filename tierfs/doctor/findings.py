"""What a check found, and the three ways to say it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum

from tierfs.errors import TierfsError
from tierfs.types import MIB

_AGAIN = "mend what it names, then run tierfs doctor again"


class Level(StrEnum):
    """How bad it is."""

    OK = "OK"
    WARN = "WARN"
    """It works, but slower or less safely than it could."""
    FAIL = "FAIL"
    """Something does not work."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check."""

    name: str
    level: Level
    found: str
    remedy: str | None = None
    """The line that mends it; None when there is nothing to mend."""


def ok(name: str, found: str) -> Finding:
    """All is well."""
    return Finding(name, Level.OK, found)


def warn(name: str, found: str, remedy: str) -> Finding:
    """It works, and could be better."""
    return Finding(name, Level.WARN, found, remedy)


def fail(name: str, found: str, remedy: str) -> Finding:
    """It does not work."""
    return Finding(name, Level.FAIL, found, remedy)


def guarded(name: str, check: Callable[[], Iterable[Finding]]) -> list[Finding]:
    """What `check` found; an error that ends it is the last finding, called `name`, and other checks go on."""
    found: list[Finding] = []
    try:
        found.extend(check())
    except TierfsError as exc:
        found.append(fail(name, str(exc), exc.remedy or _AGAIN))
    except OSError as exc:
        subject = f"{exc.filename}: " if exc.filename is not None else ""
        found.append(fail(name, f"{subject}{exc.strerror or exc}", _AGAIN))
    return found


def mebibytes(size_bytes: int) -> str:
    """A size to the MiB; smaller ones in bytes."""
    return f"{size_bytes // MIB:,} MiB" if size_bytes >= MIB else f"{size_bytes} bytes"
