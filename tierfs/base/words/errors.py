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
        Unconfirmed       it is stored; do not repeat it        EAGAIN   exit 11
        WrongColdTier     mount it, or bring it back            EAGAIN   exit 12
      Archived            thaw it, wait, and read again         EIO      exit 13
      BudgetSpent         wait, or raise the user's limit       EDQUOT   exit 11
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

    Both may contain names that somebody else chose, and end on terminals and in logs: they are made printable here. The
    docstring of each class below is its section of docs/errors.md: the case, and after `Do: ` the way out.
    """

    errno: int = _errno.EIO
    exit_code: int = 1

    def __init__(self, message: str, *, remedy: str | None = None) -> None:
        super().__init__(printable(message))
        self.remedy = None if remedy is None else printable(remedy)


class InvalidRequest(TierfsError):
    """The request can never succeed unchanged: an option, a name, a value, or their combination is wrong.

    Do: change it as the remedy says; a retry fails in the same way.
    """

    errno = _errno.EINVAL
    exit_code = 2


class NotDirectory(InvalidRequest):
    """A path runs through a segment as if it were a directory.

    Do: correct the path: `tierfs ls` lists the names of a directory.
    """

    errno = _errno.ENOTDIR


class IsDirectory(InvalidRequest):
    """A path leads to a directory, but a segment is needed.

    Do: give the path of a segment: `tierfs ls` lists those of the directory.
    """

    errno = _errno.EISDIR


class NoColdTier(InvalidRequest):
    """The request needs a cold tier, but the store has no cold tier.

    Do: set one: `tierfs config cold.url=URL`.
    """


class NotFound(TierfsError):
    """No segment, directory, file, object or store has this name.

    Do: check the name with `tierfs ls`, and the store with `--store`. A removed segment can be restored for a day:
    `tierfs ls --removed` lists it.
    """

    errno = _errno.ENOENT
    exit_code = 3


class PermissionDenied(TierfsError):
    """The cold tier refuses the keys, the system refuses a file, or the store belongs to another user.

    Do: run `tierfs doctor`, which checks both; or run the command as the owner of the store. On refused keys, a mount
    answers EIO: for EACCES a reader would look at the modes of the file. See docs/runbook.md#the-keys-have-expired.
    """

    errno = _errno.EACCES
    exit_code = 4


class ReadOnlyDisk(PermissionDenied):
    """The disk accepts no changes: after an I/O error, as a snapshot, or because it is mounted read-only.

    Do: read as usual, copy the bytes that only this disk has, then repair it: see
    docs/runbook.md#the-disk-is-read-only.
    """

    errno = _errno.EROFS


class Conflict(TierfsError):
    """Another process owns the thing that the request needs, or has just changed it.

    Do: look at its new state, and run the command again if that is still correct.
    """

    errno = _errno.EBUSY
    exit_code = 5


class AlreadyExists(Conflict):
    """A name that the request creates exists already. Nothing was changed.

    Do: choose another name, or remove the existing one first.
    """

    errno = _errno.EEXIST


class Fenced(Conflict):
    """A newer writer of the segment or a newer owner of the bucket exists; or an open segment was deleted or trimmed.

    Do: stop this writer. If the store was fenced, save the bytes that only its disk has: see
    docs/runbook.md#the-owner-is-dead.
    """

    errno = _errno.ESTALE
    exit_code = 6


class Sealed(Conflict):
    """The segment is sealed and accepts no more bytes.

    Do: append to another segment, or open this one again: `tierfs unseal`.
    """

    errno = _errno.EROFS
    exit_code = 7


class OffsetMismatch(Conflict):
    """An append expected another length of the segment: another process appended, or an earlier attempt succeeded.

    Do: read the length (`tierfs info`, or `actual_length` in JSON), and append only the rest (`--skip`).
    """

    errno = _errno.EINVAL
    exit_code = 8

    def __init__(self, message: str, *, actual_length: int, remedy: str | None = None) -> None:
        super().__init__(message, remedy=remedy)
        self.actual_length = actual_length


class Unavailable(TierfsError):
    """A service, a disk or a process does not answer now; the same request may succeed later.

    Do: retry. `tierfs doctor` checks the cold tier, and `tierfs status` lists work that waits for it. Waiting loses
    nothing.
    """

    errno = _errno.EAGAIN
    exit_code = 11


class Unconfirmed(Unavailable):
    """An append is durable in its segment, but the bucket's journal is not known to have it yet (`ack=cold`).

    Do: continue after it (`end` in JSON); repeating it would store it twice.
    """

    def __init__(self, message: str, *, end: int = 0, remedy: str | None = None) -> None:
        super().__init__(message, remedy=remedy)
        self.end = end
        """Offset after its last byte."""


class WrongColdTier(Unavailable):
    """The place answers, but it is not the store's cold tier: not mounted, empty, an old copy, or another store's.
    Nothing is written or deleted there.

    Do: mount it, put its newest copy there, or correct the address: see docs/runbook.md#the-place-is-away.
    """

    exit_code = 12


class Archived(TierfsError):
    """Bytes are in a storage class that has to bring them back before they can be read, which takes minutes to hours.

    Do: run `tierfs thaw --wait PATH`, and read again: see docs/archive.md. A retry without it fails in
    the same way, and nothing is lost.
    """

    errno = _errno.EIO
    exit_code = 13


class BudgetSpent(TierfsError):
    """A user has read as much from the cold tier as `read.hourly_bytes` and `read.hourly_requests` permit per hour.

    Do: wait, or raise that setting: see docs/operations.md#a-budget-for-each-user.
    """

    errno = _errno.EDQUOT
    exit_code = 11


class StorageFull(TierfsError):
    """A disk has no room, or its user has no quota left. Nothing was written in part.

    Do: free space, or run `tierfs evict`, which removes local copies of bytes that are cold: see
    docs/runbook.md#the-disk-is-full.
    """

    errno = _errno.ENOSPC
    exit_code = 28


class QuotaReached(StorageFull):
    """The cold tier has as many bytes of the store as `cold.quota_bytes` permits. Nothing was written there.

    Do: raise that setting, or delete bytes: see docs/cold-tier.md#a-quota.
    """

    errno = _errno.EDQUOT


class DataLoss(TierfsError):
    """Bytes or records are damaged or missing in every copy that was tried.

    Do: delete nothing, and run `tierfs check --read`: see docs/runbook.md#bytes-are-lost.
    """

    errno = _errno.EIO
    exit_code = 74


class InternalError(TierfsError):
    """tierfs itself has a defect. This says nothing about the bytes: none is damaged by it.

    Do: report it, with the traceback from the log or from `-v`.
    """

    errno = _errno.EIO
    exit_code = 70


class Closed(TierfsError):
    """The store, the reader or the writer was closed while it was in use.

    Do: open it again.
    """

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
