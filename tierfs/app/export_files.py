"""Files of an export: each appears as a whole, durable, and replaces nothing."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from tierfs.base.bytes.checksum import Buffer
from tierfs.base.system import osio
from tierfs.base.words.errors import AlreadyExists
from tierfs.base.words.names import printable
from tierfs.engine.chunkstore.directory.tree import map_os_errors
from tierfs.engine.metadata.store import new_id

# Filesystems without hard links, such as FAT.
_NO_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})


def write_new(target: Path, pieces: Iterable[Buffer]) -> bool:
    """Make a durable file of these bytes; return False where it exists already with just them.

    Raises AlreadyExists for a file of other bytes, StorageFull, PermissionDenied, and what `pieces` raises: nothing is
    left then.
    """
    with map_os_errors(str(target)):
        if os.path.lexists(target):
            if target.is_symlink() or not target.is_file() or not _holds(target, pieces):
                what = printable(str(target))
                raise AlreadyExists(
                    f"{what} already exists with different contents", remedy="export into another directory"
                )
            return False
        temporary = target.with_name(f".{target.name}.{new_id()}")
        try:
            _write(temporary, pieces)
            _name(temporary, target)
        finally:
            temporary.unlink(missing_ok=True)
        osio.sync_directory(target.parent)
    return True


def _write(path: Path, pieces: Iterable[Buffer]) -> None:
    with osio.durable_file(path, os.O_EXCL, osio.SHARED_FILE) as file:
        for piece in pieces:
            file.write(piece)


def _name(temporary: Path, target: Path) -> None:
    """Give a file its name unless another has it."""
    try:
        os.link(temporary, target)
    except FileExistsError as exc:
        raise AlreadyExists(f"{printable(str(target))} appeared meanwhile", remedy="export again") from exc
    except OSError as exc:
        if exc.errno not in _NO_LINKS:
            raise
        if os.path.lexists(target):
            raise AlreadyExists(f"{printable(str(target))} appeared meanwhile", remedy="export again") from exc
        os.rename(temporary, target)


def _holds(target: Path, pieces: Iterable[Buffer]) -> bool:
    with target.open("rb") as file:
        return all(file.read(len(piece)) == piece for piece in _not_empty(pieces)) and not file.read(1)


def _not_empty(pieces: Iterable[Buffer]) -> Iterator[Buffer]:
    return (piece for piece in pieces if len(piece))
