"""Errors in one clear line, because Spark shows a traceback: the error, its subject, and the remedy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tierfs.errors import TierfsError
from tierfs.names import printable


class TierfsException(Exception):
    """An error of tierfs as users of Spark see it: message and remedy in one line."""


@contextmanager
def explained() -> Iterator[None]:
    """Turn errors of tierfs into TierfsException."""
    try:
        yield
    except TierfsError as exc:
        raise TierfsException(_line(exc)) from None


def _line(error: TierfsError) -> str:
    message = printable(str(error))
    return f"{message}; {printable(error.remedy)}" if error.remedy else message
