"""Errors in one clear line, because Spark shows a traceback: the error, its subject, and the remedy.

And what this Spark is too old for: sources in Python exist since 4.0, and each release knew more of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyspark

from tierfs.base.words import units
from tierfs.base.words.errors import InvalidRequest, TierfsError
from tierfs.base.words.names import printable

# The version of PySpark: major, minor.
SPARK = tuple(units.decimal(part) or 0 for part in pyspark.__version__.split(".")[:2])


class TierfsException(Exception):
    """An error of tierfs as users of Spark see it: message and remedy in one line."""


@contextmanager
def explained() -> Iterator[None]:
    """Turn errors of tierfs into TierfsException."""
    try:
        yield
    except TierfsError as exc:
        # Jobs of tierfs know the kind by the name of the class: Spark hands on a traceback, as text.
        kind = type(f"{type(exc).__name__}{TierfsException.__name__}", (TierfsException,), {"__module__": __name__})
        raise kind(_line(exc)) from None


def _line(error: TierfsError) -> str:
    message = printable(str(error))
    return f"{message}; {printable(error.remedy)}" if error.remedy else message


def require_sources(what: str) -> None:
    """Raise InvalidRequest if this Spark knows no sources in Python, so that modules of them cannot be imported."""
    require_spark((4, 0), what, "read the path of a mount")


def require_spark(version: tuple[int, int], what: str, instead: str) -> None:
    """Raise InvalidRequest, with another way to do it, if this Spark is older."""
    if version > SPARK:
        raise InvalidRequest(
            f"{what} needs PySpark {version[0]}.{version[1]}; installed is {pyspark.__version__}",
            remedy=f"{instead}, or upgrade PySpark",
        )
