"""User metadata of files: extended attributes, or a small file of JSON where there are none.

Such a sidecar is named by the identity of one version of one object (its name, mtime and size), so that it can be
written before the object gets its name, and a writer that loses the race for the name harms no other.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Mapping

from tierfs.base.system import osio
from tierfs.base.words.errors import DataLoss
from tierfs.base.words.names import printable
from tierfs.base.words.types import MAX_METADATA_BYTES
from tierfs.engine.chunkstore.directory.tree import READ_FLAGS, RootDirectory

METADATA_DIRECTORY = ".metadata"

_XATTR_PREFIX = "user.tierfs."
# tmpfs before Linux 6.6 and NFS before 4.2 know no user attributes; some mounts refuse them.
_NO_XATTRS = frozenset({errno.EOPNOTSUPP, errno.ENOSYS, errno.EPERM, errno.EACCES})

# JSON adds quotes and separators; a larger file was not written by us.
MAX_SIDECAR_BYTES = 4 * MAX_METADATA_BYTES


class FileMetadata:
    """Reads and writes the user metadata of files below one root directory."""

    def __init__(self, tree: RootDirectory) -> None:
        self._tree = tree

    def write(self, name: str, fd: int, metadata: Mapping[str, str]) -> str | None:
        """Attach `metadata` to the open file that will be `name`; its bytes and mtime are final.

        Returns the sidecar to remove if the file never gets its name, or None without a sidecar.
        """
        try:
            for key, value in metadata.items():
                os.setxattr(fd, _XATTR_PREFIX + key, value.encode("ascii"))
        except OSError as exc:
            if exc.errno not in _NO_XATTRS:
                raise
        else:
            return None
        sidecar = _sidecar(name, os.fstat(fd))
        self._write_sidecar(sidecar, metadata)
        return sidecar

    def read(self, name: str, fd: int) -> dict[str, str]:
        """Return the metadata of the open file `name`, empty without any."""
        try:
            keys = [key for key in os.listxattr(fd) if key.startswith(_XATTR_PREFIX)]
            attributes = {key[len(_XATTR_PREFIX) :]: os.getxattr(fd, key).decode("ascii") for key in keys}
        except OSError as exc:
            if exc.errno not in _NO_XATTRS:
                raise
            attributes = {}
        return attributes or self._read_sidecar(name, os.fstat(fd))

    def remove(self, sidecar: str) -> None:
        """Remove a sidecar; a missing one is success."""
        try:
            with self._tree.open_directory(METADATA_DIRECTORY) as directory:
                os.unlink(sidecar, dir_fd=directory)
        except FileNotFoundError:
            return

    def remove_of(self, name: str, status: os.stat_result) -> None:
        """Remove the sidecar of this version of `name`, if there is one."""
        self.remove(_sidecar(name, status))

    def _write_sidecar(self, sidecar: str, metadata: Mapping[str, str]) -> None:
        with (
            self._tree.open_directory(METADATA_DIRECTORY, create=True) as directory,
            osio.durable_file(sidecar, os.O_TRUNC | os.O_NOFOLLOW, dir_fd=directory) as file,
        ):
            file.write(json.dumps(dict(metadata)).encode())
        self._tree.sync_directories(METADATA_DIRECTORY)

    def _read_sidecar(self, name: str, status: os.stat_result) -> dict[str, str]:
        try:
            with self._tree.open_directory(METADATA_DIRECTORY) as directory:
                fd = os.open(_sidecar(name, status), READ_FLAGS, dir_fd=directory)
        except FileNotFoundError:
            return {}
        with os.fdopen(fd, "rb") as file:
            return parse_metadata(name, file.read(MAX_SIDECAR_BYTES + 1))


def _sidecar(name: str, status: os.stat_result) -> str:
    digest = hashlib.sha256(name.encode()).hexdigest()
    return f"{digest}-{status.st_mtime_ns}-{status.st_size}"


def parse_metadata(name: str, text: bytes) -> dict[str, str]:
    """Return the metadata of object `name` from a sidecar's text. Raises DataLoss for any other text."""
    try:
        metadata = json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise DataLoss(f"{printable(name)}: its metadata is damaged") from exc
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise DataLoss(f"{printable(name)}: its metadata is damaged")
    return metadata
