"""Turn tierfs's errors into those that users of Python's files expect."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

from tierfs.base.words.errors import Closed, DataLoss, Fenced, Sealed, StorageFull, TierfsError, Unavailable

A = TypeVar("A")


@contextmanager
def as_os_errors(*, writing: bool = False) -> Iterator[None]:
    """Turn tierfs's errors into OSError and its subclasses, with the message and the remedy in their text."""
    try:
        yield
    except TierfsError as exc:
        raise os_error(exc, writing=writing) from exc


def os_error(error: TierfsError, *, writing: bool = False) -> OSError:
    """Return the OSError for one of tierfs's; the class follows from the number, by Python's rule.

    A write that is refused for good is a PermissionError. A tier that does not answer is EIO, as on a mount:
    EAGAIN would be a BlockingIOError, which callers take for a file that does not block.
    """
    text = str(error) if error.remedy is None else f"{error}; {error.remedy}"
    return OSError(_number(error, writing=writing), text)


def _number(error: TierfsError, *, writing: bool) -> int:
    if writing and isinstance(error, Sealed | Fenced):
        return errno.EPERM
    if isinstance(error, Unavailable | DataLoss | Closed) and not isinstance(error, StorageFull):
        return errno.EIO
    return error.errno
