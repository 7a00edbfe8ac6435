"""The result of a check, and its three levels."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import StrEnum

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words.errors import TierfsError
from tierfs.base.words.types import MIB

_AGAIN = "fix the reported error, then run tierfs doctor again"


class FindingLevel(StrEnum):
    """The severity of a finding."""

    OK = "OK"
    WARN = "WARN"
    """It works, but slower or less safely than it could."""
    FAIL = "FAIL"
    """Something does not work."""


@dataclass(frozen=True, slots=True)
class DoctorFinding:
    """The result of one check."""

    name: str
    level: FindingLevel
    text: str
    remedy: str | None = None
    """The line that mends it; None when there is nothing to mend."""


def ok(name: str, text: str) -> DoctorFinding:
    """Return a finding that all is well."""
    return DoctorFinding(name, FindingLevel.OK, text)


def warn(name: str, text: str, remedy: str) -> DoctorFinding:
    """Return a finding of something that works, and could be better."""
    return DoctorFinding(name, FindingLevel.WARN, text, remedy)


def fail(name: str, text: str, remedy: str) -> DoctorFinding:
    """Return a finding of something that does not work."""
    return DoctorFinding(name, FindingLevel.FAIL, text, remedy)


def guarded(name: str, check: Callable[[], Iterable[DoctorFinding]]) -> list[DoctorFinding]:
    """Return the findings of `check`; an error that ends it is the last one, called `name`, and other checks run."""
    findings: list[DoctorFinding] = []
    try:
        findings.extend(check())
    except TierfsError as exc:
        findings.append(fail(name, str(exc), exc.remedy or _AGAIN))
    except OSError as exc:
        subject = f"{exc.filename}: " if exc.filename is not None else ""
        findings.append(fail(name, f"{subject}{exc.strerror or exc}", _AGAIN))
    return findings


def mebibytes(size_bytes: int) -> str:
    """Format a size to the MiB; smaller ones in bytes."""
    return f"{size_bytes // MIB:,} MiB" if size_bytes >= MIB else f"{size_bytes} bytes"
