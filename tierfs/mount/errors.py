"""Translate errors into errnos. pyfuse3 catches FUSEError only: anything else would end the mount."""

from __future__ import annotations

import contextlib
import errno
import functools
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

import pyfuse3

from tierfs.base.system.metrics import Count, MetricName, MetricSink
from tierfs.base.words.errors import Closed, DataLoss, PermissionDenied, TierfsError, Unavailable
from tierfs.mount import access_log
from tierfs.mount.access_log import AccessLog
from tierfs.mount.subjects import Subject, Subjects

log = logging.getLogger(__name__)

_UNKNOWN = "?"

Self_ = TypeVar("Self_", bound="Observed")
P = ParamSpec("P")
T = TypeVar("T")


class Observed(Protocol):
    """The attributes that the class of a decorated method must have."""

    metrics: MetricSink
    counts: dict[str, Count]
    """Counters of the operations so far, by name."""
    access_log: AccessLog
    subjects: Subjects


def operation(
    method: Callable[Concatenate[Self_, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Self_, P], Coroutine[Any, Any, T]]:
    """Count a FUSE operation and translate its errors: TierfsError to its errno, logged once; any other to EIO.

    Cancellation passes, and so does FUSEError, counted like the others. With listeners of the access log, it is logged.
    """
    name = method.__name__

    @functools.wraps(method)
    async def observed(self: Self_, /, *arguments: P.args, **named: P.kwargs) -> T:
        _count_operation(self, name)
        call = _translated(self, name, method(self, *arguments, **named))
        if self.access_log.listeners and (subject := _subject(self, name, arguments)).path != access_log.PATH:
            return await self.access_log.logged(name, subject, call)
        return await call

    return observed


def reported(
    method: Callable[Concatenate[Self_, P], Coroutine[Any, Any, None]],
) -> Callable[Concatenate[Self_, P], Coroutine[Any, Any, None]]:
    """Count and log the errors of an operation that has no answer (forget, release); raise none of them.

    Cancellation passes.
    """
    translated = operation(method)

    @functools.wraps(method)
    async def quiet(self: Self_, /, *arguments: P.args, **named: P.kwargs) -> None:
        with contextlib.suppress(pyfuse3.FUSEError):
            await translated(self, *arguments, **named)

    return quiet


async def _translated(operations: Observed, name: str, call: Coroutine[Any, Any, T]) -> T:
    try:
        return await call
    except pyfuse3.FUSEError as exc:
        _count_error(operations, name, exc.errno)
        raise
    except Exception as exc:
        raise _failed(operations, name, exc) from exc


def _failed(operations: Observed, name: str, error: Exception) -> pyfuse3.FUSEError:
    """Count and log an error; return what the kernel is told."""
    code = errno_of(error) if isinstance(error, TierfsError) else errno.EIO
    _count_error(operations, name, code)
    if isinstance(error, TierfsError):
        log.log(logging.WARNING if code == errno.EIO else logging.DEBUG, "%s: %s", name, error)
    else:
        log.error("%s failed unexpectedly", name, exc_info=error)
    return pyfuse3.FUSEError(code)


def _count_error(operations: Observed, name: str, code: int) -> None:
    operations.metrics.count(MetricName.FUSE_ERRORS, operation=name, errno=errno.errorcode.get(code, str(code)))


def _count_operation(operations: Observed, name: str) -> None:
    count = operations.counts.get(name)
    if count is None:
        count = operations.counts[name] = operations.metrics.counter(MetricName.FUSE_OPERATIONS, operation=name)
    count(1)


def _subject(operations: Observed, name: str, arguments: Sequence[Any]) -> Subject:
    """Return the subject of the call, or an unknown one: an error here must not fail the call."""
    try:
        return operations.subjects.of(name, arguments)
    except Exception:
        log.exception("access log: cannot find the path of a %s", name)
        return Subject(_UNKNOWN)


def errno_of(error: TierfsError) -> int:
    """Return the errno; EIO when no tier answers or the mount ends: EAGAIN would make tools spin.

    EIO also for refused keys of the cold tier: EACCES would be looked for in the modes of the file.
    """
    return errno.EIO if isinstance(error, (Unavailable, DataLoss, Closed, PermissionDenied)) else error.errno
