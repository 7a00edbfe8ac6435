"""What the kernel is told of an error: always an errno, and none that makes tools try again for ever."""

from __future__ import annotations

import errno

import pyfuse3
import pytest
import trio

from tierfs.base.system.metrics import Count
from tierfs.base.system.prometheus import Metrics
from tierfs.base.words.errors import Closed, DataLoss, Fenced, NotFound, PermissionDenied, Unavailable
from tierfs.mount.access_log import AccessLog
from tierfs.mount.errors import operation, reported
from tierfs.mount.subjects import Subjects


class Operations:
    """Operations that fail as they are told."""

    def __init__(self, error: Exception) -> None:
        self.metrics = Metrics()
        self.counts: dict[str, Count] = {}
        self.access_log = AccessLog.__new__(AccessLog)
        self.access_log.listeners = set()
        self.subjects = Subjects.__new__(Subjects)
        self._error = error

    @operation
    async def read(self) -> None:
        raise self._error

    @reported
    async def release(self) -> None:
        raise self._error


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Unavailable("no answer"), errno.EIO),
        (DataLoss("gone"), errno.EIO),
        (Closed("unmounted"), errno.EIO),
        (PermissionDenied("keys"), errno.EIO),
        (NotFound("no such name"), errno.ENOENT),
        (Fenced("deleted"), errno.ESTALE),
        (ZeroDivisionError("a defect"), errno.EIO),
        (RuntimeError("a defect"), errno.EIO),
        (pyfuse3.FUSEError(errno.EROFS), errno.EROFS),
    ],
)
def test_every_error_of_an_operation_has_an_errno(error: Exception, code: int, expected_warnings: list[str]) -> None:
    expected_warnings.append("read|release")
    with pytest.raises(pyfuse3.FUSEError) as told:
        trio.run(Operations(error).read)
    assert told.value.errno == code
    trio.run(Operations(error).release)
