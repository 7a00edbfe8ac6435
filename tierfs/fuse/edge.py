"""Where errors become errnos. pyfuse3 catches FUSEError only: anything else would end the mount."""

from __future__ import annotations

import errno
import functools
import logging
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, Protocol, TypeVar, cast

import pyfuse3

from tierfs.errors import DataLoss, TierfsError, Unavailable
from tierfs.metrics import MetricName, MetricSink

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")


class HasMetrics(Protocol):
    """What the decorated methods' class offers."""

    metrics: MetricSink


def _counted(method: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    name = method.__name__

    @functools.wraps(method)
    async def counted(*arguments: P.args, **named: P.kwargs) -> T:
        operations = cast(HasMetrics, arguments[0])
        operations.metrics.count(MetricName.FUSE_OPERATIONS, operation=name)
        return await method(*arguments, **named)

    return counted


def operation(method: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Count a FUSE operation and translate what it raises: ours to its errno, logged once; the unexpected to EIO.

    Cancellation passes, and so does FUSEError, counted like the others.
    """
    name = method.__name__

    @functools.wraps(method)
    async def translated(*arguments: P.args, **named: P.kwargs) -> T:
        operations = cast(HasMetrics, arguments[0])
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

    return _counted(translated)


def reported(method: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, Coroutine[Any, Any, None]]:
    """For operations nobody hears the errors of (forget, release): count, log, raise nothing.

    Cancellation passes.
    """
    name = method.__name__

    @functools.wraps(method)
    async def quiet(*arguments: P.args, **named: P.kwargs) -> None:
        try:
            await method(*arguments, **named)
        except Exception:
            log.exception("%s failed unexpectedly", name)
            _count(cast(HasMetrics, arguments[0]), name, errno.EIO)

    return _counted(quiet)


def _errno_of(error: TierfsError) -> int:
    """Reads end in EIO when no tier answers: EAGAIN would make tools spin."""
    return errno.EIO if isinstance(error, (Unavailable, DataLoss)) else error.errno


def _count(operations: HasMetrics, name: str, code: int) -> None:
    operations.metrics.count(MetricName.FUSE_ERRORS, operation=name, errno=errno.errorcode.get(code, str(code)))
