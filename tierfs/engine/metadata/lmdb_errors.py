"""Errors of LMDB as those of tierfs, each with its remedy."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from types import TracebackType

import lmdb

from tierfs.base.system import os_errors
from tierfs.base.words.errors import Closed, DataLoss, PermissionDenied, TierfsError, Unavailable
from tierfs.engine.metadata.host import MAX_READERS, has_no_room, no_room, read_only_disk

_UNLIMITED = "run with: ulimit -v unlimited (LimitAS=infinity); tierfs maps 1 TiB of addresses, which use no memory"


class map_lmdb_errors:  # a class, as a generator costs three times as much
    """Turns LMDB's errors into ours: Unavailable, StorageFull and PermissionDenied, and DataLoss for damage."""

    __slots__ = ("_path",)

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        if exc is not None:
            raise_as_ours(self._path, exc)


def raise_as_ours(path: Path, exc: BaseException) -> None:
    """Raise one of LMDB's errors as ours; nothing for any other."""
    if isinstance(exc, lmdb.Error):
        raise meaning(path, exc) from exc


def meaning(path: Path, exc: lmdb.Error) -> TierfsError:
    """Return one of LMDB's errors as ours."""
    if isinstance(exc, lmdb.PanicError):
        return Unavailable(
            f"{path}: the disk failed at the end of a commit, which may or may not be durable",
            remedy="restart this process",
        )
    if isinstance(exc, lmdb.ReadersFullError):
        return Unavailable(f"{path}: more than {MAX_READERS} readers", remedy="close some readers")
    if isinstance(exc, (lmdb.MapFullError, lmdb.DiskError)):
        if isinstance(exc, lmdb.MapFullError) or "No space left" in str(exc) or has_no_room(path):
            return no_room(path)
        return DataLoss(f"{path}: I/O error on the disk of the metadata: {exc}", remedy="run: tierfs check")
    if isinstance(exc, (lmdb.CorruptedError, lmdb.InvalidError, lmdb.VersionMismatchError, lmdb.PageNotFoundError)):
        return DataLoss(f"{path}: the metadata is damaged: {exc}", remedy="run: tierfs check")
    if isinstance(exc, lmdb.NotFoundError):
        return DataLoss(f"{path} has no complete store", remedy="run tierfs init in an empty directory")
    if isinstance(exc, lmdb.ReadonlyError):
        return PermissionDenied(f"{path}: {exc}")
    return _from_message(path, exc)


def _from_message(path: Path, exc: lmdb.Error) -> TierfsError:
    """Return the error for a plain errno value, for which py-lmdb raises its base class: only the text differs."""
    text = str(exc)
    cut_short = "Input/output" in text and has_no_room(path)
    if cut_short or any(os.strerror(number) in text for number in os_errors.NO_ROOM):
        return no_room(path)
    if "Permission denied" in text:
        return PermissionDenied(f"{path}: permission denied")
    if isinstance(exc, lmdb.MemoryError) or "Cannot allocate memory" in text:
        # ENOMEM of the map: nothing is known of the metadata then, least of all that it is damaged.
        return Unavailable(
            f"{path}: the metadata needs more memory than is free, or more than ulimit -v allows", remedy=_UNLIMITED
        )
    if any(os.strerror(number) in text for number in (errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOLCK)):
        return Unavailable(f"{path}: the metadata cannot be opened now: {text}", remedy=os_errors.FEW_FILES_REMEDY)
    if os.strerror(errno.EROFS) in text:
        return read_only_disk(path)
    if "closed" in text:
        return Closed(f"{path}: the metadata was closed")
    return DataLoss(f"{path}: the metadata cannot be used: {text}", remedy="run: tierfs check")
