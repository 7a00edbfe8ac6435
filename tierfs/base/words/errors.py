"""Every error tierfs raises, split by what the caller should do.

    TierfsError
      InvalidRequest      fix the request                       EINVAL   exit 2
        NotDirectory      a path runs through a segment         ENOTDIR  exit 2
        IsDirectory       a directory where a segment is meant  EISDIR   exit 2
        NoColdTier        the store has none                    EINVAL   exit 2
      NotFound            the name does not exist               ENOENT   exit 3
      PermissionDenied    ask the owner                         EACCES   exit 4
        ReadOnlyDisk      read what is there; save it elsewhere EROFS    exit 4
      Conflict            another was first; look again         EBUSY    exit 5
        AlreadyExists     the name is taken                     EEXIST   exit 5
        Fenced            a newer owner exists; stop for good   ESTALE   exit 6
        Sealed            the segment ended                     EROFS    exit 7
        OffsetMismatch    append at another offset              EINVAL   exit 8
      Unavailable         retry later                           EAGAIN   exit 11
        WrongColdTier     mount it, or bring it back            EAGAIN   exit 12
      StorageFull         make room                             ENOSPC   exit 28
        QuotaReached      raise the quota of the cold tier      EDQUOT   exit 28
      DataLoss            stop and page someone                 EIO      exit 74
      InternalError       report it: a fault of tierfs          EIO      exit 70
      Closed              you closed it                         EBADF    exit 70

Vendor exceptions are mapped in one context manager per adapter, always `raise ... from exc`.
"""

from __future__ import annotations

import errno as _errno
import logging

_log = logging.getLogger(__name__)

READ_ONLY_REMEDY = "commands and mounts can still read its bytes: see docs/recovery.md"


def printable(text: str) -> str:
    """Return `text` safe for terminals and logs: controls and bidirectional marks become escapes. Idempotent."""
    if text.isprintable():  # false for every mark that turns the direction of text around: they are of category Cf
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape", "surrogatepass").decode("ascii")
        for character in text
    )


class TierfsError(Exception):
    """Base of the tree. `str(error)` says what failed and on what; `remedy` says what to do about it.

    Both may contain names that somebody else chose, and end on terminals and in logs: they are made printable here.
    """

    errno: int = _errno.EIO
    exit_code: int = 1

    def __init__(self, message: str, *, remedy: str | None = None) -> None:
        super().__init__(printable(message))
        self.remedy = None if remedy is None else printable(remedy)


class InvalidRequest(TierfsError):
    """The request can never succeed as it is."""

    errno = _errno.EINVAL
    exit_code = 2


class NotDirectory(InvalidRequest):
    """A path runs through a segment as if it were a directory."""

    errno = _errno.ENOTDIR


class IsDirectory(InvalidRequest):
    """The path names a directory where a segment is needed."""

    errno = _errno.EISDIR


class NoColdTier(InvalidRequest):
    """The request needs a cold tier, and the store was made without one."""


class NotFound(TierfsError):
    """The name does not exist."""

    errno = _errno.ENOENT
    exit_code = 3


class PermissionDenied(TierfsError):
    """The credentials or modes do not allow it."""

    errno = _errno.EACCES
    exit_code = 4


class ReadOnlyDisk(PermissionDenied):
    """The disk takes no changes: after an error of its own, as a snapshot, or because it is mounted so."""

    errno = _errno.EROFS


class Conflict(TierfsError):
    """Another process holds or changed it: look again before trying again."""

    errno = _errno.EBUSY
    exit_code = 5


class AlreadyExists(Conflict):
    """A create-only name is taken. Nothing was changed."""

    errno = _errno.EEXIST


class Fenced(Conflict):
    """A newer writer or store owner exists; this one may change nothing any more."""

    errno = _errno.ESTALE
    exit_code = 6


class Sealed(Conflict):
    """The segment is sealed and takes no more bytes."""

    errno = _errno.EROFS
    exit_code = 7


class OffsetMismatch(Conflict):
    """A conditional append named another offset than the segment's length."""

    errno = _errno.EINVAL
    exit_code = 8

    def __init__(self, message: str, *, actual_length: int, remedy: str | None = None) -> None:
        super().__init__(message, remedy=remedy)
        self.actual_length = actual_length


class Unavailable(TierfsError):
    """A service or disk does not answer now; the same request may succeed later."""

    errno = _errno.EAGAIN
    exit_code = 11


class Unconfirmed(Unavailable):
    """An append is in its segment, and the bucket's journal is not known to name it yet: repeating it doubles it."""

    def __init__(self, message: str, *, end: int = 0, remedy: str | None = None) -> None:
        super().__init__(message, remedy=remedy)
        self.end = end
        """Offset after its last byte."""


class WrongColdTier(Unavailable):
    """The place answers, but is not the store's cold tier: not mounted, emptied, rolled back, or another store's."""

    exit_code = 12


class StorageFull(TierfsError):
    """A disk or quota has no room; nothing was half-written."""

    errno = _errno.ENOSPC
    exit_code = 28


class QuotaReached(StorageFull):
    """The cold tier holds as many bytes as the store may have there. Nothing was written to it."""

    errno = _errno.EDQUOT


class DataLoss(TierfsError):
    """Bytes or records are damaged or gone. Stop and page someone."""

    errno = _errno.EIO
    exit_code = 74


class InternalError(TierfsError):
    """A fault of tierfs itself. It says nothing about the bytes: none is damaged for it."""

    errno = _errno.EIO
    exit_code = 70


class Closed(TierfsError):
    """The object was closed by its owner."""

    errno = _errno.EBADF
    exit_code = 70


def no_cold_tier(what: str) -> NoColdTier:
    """Return the error of `what`, which needs a cold tier, in a store without one."""
    remedy = "set a cold tier: tierfs config cold.url=URL"
    return NoColdTier(f"{what} needs a cold tier, but this store has no cold tier", remedy=remedy)


def unexpected(error: Exception, what: str) -> TierfsError:
    """Return an error of ours as it is; for any other, logged with its traceback, an InternalError about `what`."""
    if isinstance(error, TierfsError):
        return error
    _log.error("%s: unexpected %s", what, type(error).__name__, exc_info=error)
    text = f"{what}: internal error: {type(error).__name__}: {error}"
    return InternalError(text, remedy="this is a bug in tierfs; the log has its traceback")


def leaf(error: BaseException) -> BaseException:
    """Return the error that a group of trio's stands for; any other error as it is.

    Of several an interrupt comes before an error of ours, and that before any other.
    """
    if not isinstance(error, BaseExceptionGroup):
        return error
    leaves = [leaf(each) for each in error.exceptions]
    return min(leaves, key=lambda each: (isinstance(each, Exception), not isinstance(each, TierfsError)))


def named(kind: str) -> type[TierfsError]:
    """Return the class of a name that another process wrote; Conflict or Unavailable where it cannot be constructed."""
    error_class = globals().get(kind)
    if not (isinstance(error_class, type) and issubclass(error_class, TierfsError)):
        return Unavailable
    return Conflict if issubclass(error_class, OffsetMismatch) else error_class
