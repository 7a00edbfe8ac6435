"""Translate errors into errnos. pyfuse3 catches FUSEError only: anything else would end the mount."""

from __future__ import annotations

import errno
import functools
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, ParamSpec, Protocol, TypeVar, cast

import pyfuse3

from tierfs.errors import Closed, DataLoss, TierfsError, Unavailable
from tierfs.fuse import access_log
from tierfs.fuse.access_log import AccessLog, Subject, Subjects
from tierfs.metrics import MetricName, MetricSink

log = logging.getLogger(__name__)

_UNKNOWN = "?"

P = ParamSpec("P")
T = TypeVar("T")


class Observed(Protocol):
    """The attributes that the class of a decorated method must have."""

    metrics: MetricSink
    access_log: AccessLog
    subjects: Subjects


def _observed(method: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Count an operation, and log it while the access log has listeners."""
    name = method.__name__

    @functools.wraps(method)
    async def observed(*arguments: P.args, **named: P.kwargs) -> T:
        operations = cast(Observed, arguments[0])
        operations.metrics.count(MetricName.FUSE_OPERATIONS, operation=name)
        if operations.access_log.listeners:
            subject = _subject(operations, name, arguments[1:])
            if subject.path != access_log.PATH:
                return await operations.access_log.logged(name, subject, method(*arguments, **named))
        return await method(*arguments, **named)

    return observed


def _subject(operations: Observed, name: str, arguments: Sequence[Any]) -> Subject:
    """Return the subject of the call, or an unknown one: an error here must not fail the call."""
    try:
        return operations.subjects.of(name, arguments)
    except Exception:
        log.exception("the access log cannot find the path of a %s", name)
        return Subject(_UNKNOWN)


def operation(method: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Count a FUSE operation and translate its errors: TierfsError to its errno, logged once; any other to EIO.

    Cancellation passes, and so does FUSEError, counted like the others.
    """
    name = method.__name__

    @functools.wraps(method)
    async def translated(*arguments: P.args, **named: P.kwargs) -> T:
        operations = cast(Observed, arguments[0])
        try:
            return await method(*arguments, **named)
        except TierfsError as exc:
            code = _errno_of(exc)
            _count(operations, name, code)
            level = logging.WARNING if code == errno.EIO else logging.DEBUG
            log.log(level, "%s: %s", name, exc)
            raise pyfuse3.FUSEError(code) from exc
        except pyfuse3.FUSEError as exc:
            _count(operations, name, exc.errno)
            raise
        except Exception as exc:
            log.exception("%s failed unexpectedly", name)
            _count(operations, name, errno.EIO)
            raise pyfuse3.FUSEError(errno.EIO) from exc

    return _observed(translated)


def reported(method: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, Coroutine[Any, Any, None]]:
    """Count and log the errors of an operation that has no answer (forget, release); raise none of them.

    Cancellation passes.
    """
    name = method.__name__

    @functools.wraps(method)
    async def quiet(*arguments: P.args, **named: P.kwargs) -> None:
        try:
            await method(*arguments, **named)
        except Exception:
            log.exception("%s failed unexpectedly", name)
            _count(cast(Observed, arguments[0]), name, errno.EIO)

    return _observed(quiet)


def _errno_of(error: TierfsError) -> int:
    """Return the errno; EIO when no tier answers or the mount ends: EAGAIN would make tools spin."""
    return errno.EIO if isinstance(error, (Unavailable, DataLoss, Closed)) else error.errno


def _count(operations: Observed, name: str, code: int) -> None:
    operations.metrics.count(MetricName.FUSE_ERRORS, operation=name, errno=errno.errorcode.get(code, str(code)))
