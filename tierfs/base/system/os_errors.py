"""Errors of the operating system as ours, by tables: the class of each number, its message and its remedy."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from types import TracebackType

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words import errors
from tierfs.base.words.errors import (
    DataLoss,
    NotFound,
    PermissionDenied,
    ReadOnlyDisk,
    StorageFull,
    TierfsError,
    Unavailable,
)
from tierfs.base.words.names import printable

# Errors of a write for which there is no room; the last one is of RLIMIT_FSIZE, or of a file system's longest file.
NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})

FILE_LIMIT = "a file would be larger than ulimit -f, or its file system, allows"
FILE_LIMIT_REMEDY = "run it with: ulimit -f unlimited (of a systemd unit: LimitFSIZE=infinity)"

# Errors of a file that is opened where the process, or the system, has too many open.
FEW_FILES = frozenset({errno.EMFILE, errno.ENFILE})
FEW_FILES_REMEDY = "close some files, or allow more: ulimit -n 4096 (of a systemd unit: LimitNOFILE=4096)"


@dataclass(frozen=True, slots=True)
class Meaning:
    """An error of the operating system as one of ours: `{subject}: ` and the message, or the reason without one."""

    error: type[TierfsError]
    message: str | None = None
    remedy: str | None = None


Meanings = Mapping[int, Meaning]


def meanings(*rows: tuple[Meaning, tuple[int, ...]]) -> Meanings:
    """Build a table from rows, each a meaning and its numbers."""
    return {number: meaning for meaning, numbers in rows for number in numbers}


def lacks_files(error: BaseException) -> bool:
    """Return whether an error, or its cause, is that too many files are open."""
    cause = error.__cause__ or error
    return isinstance(cause, OSError) and cause.errno in FEW_FILES


# Of files in the store's directory.
LOCAL_DISK = meanings(
    (
        Meaning(StorageFull, "the local disk is full", "free space, or run: tierfs evict"),
        (errno.ENOSPC, errno.EDQUOT),
    ),
    (Meaning(StorageFull, FILE_LIMIT, FILE_LIMIT_REMEDY), (errno.EFBIG,)),
    (Meaning(Unavailable, "too many open files", FEW_FILES_REMEDY), tuple(FEW_FILES)),
    (Meaning(NotFound), (errno.ENOENT, errno.ENOTDIR)),
    (Meaning(PermissionDenied), (errno.EACCES, errno.EPERM, errno.ELOOP)),
    (Meaning(ReadOnlyDisk, "the disk is read-only", errors.READ_ONLY_REMEDY), (errno.EROFS,)),
    (Meaning(DataLoss, remedy="check the disk, then run: tierfs check"), (errno.EIO,)),
)

_UNKNOWN = Meaning(Unavailable)


def ours(exc: OSError, subject: str, table: Meanings = LOCAL_DISK) -> TierfsError:
    """Return an error of the operating system as ours, naming `subject`; Unavailable where `table` has no meaning."""
    meaning = table.get(exc.errno or 0, _UNKNOWN)
    reason = meaning.message or (os.strerror(exc.errno) if exc.errno else str(exc))
    return meaning.error(f"{printable(subject)}: {reason}", remedy=meaning.remedy)


class map_os_errors:  # a class, as a generator costs three times as much
    """Turn errors of the operating system into ours, naming `subject`; Unavailable where `table` has no meaning."""

    __slots__ = ("_subject", "_table")

    def __init__(self, subject: str, table: Meanings = LOCAL_DISK) -> None:
        self._subject = subject
        self._table = table

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(exc, OSError):
            raise ours(exc, self._subject, self._table) from exc
