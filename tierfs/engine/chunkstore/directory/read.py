"""Read and list files below a root directory as objects. Changes nothing.

A listing is in the order of full names, with one directory in memory at a time.

User metadata of files: extended attributes, or a small file of JSON where there are none.

A sidecar is named by the identity of one version of one object (its name, mtime and size), so that it can be written
before the object gets its name, and a writer that loses the race for the name harms no other.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TypeVar

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.system import osio
from tierfs.base.words.errors import DataLoss, NotFound
from tierfs.base.words.names import printable
from tierfs.base.words.types import MAX_METADATA_BYTES
from tierfs.engine.chunkstore.directory.tree import READ_FLAGS, RootDirectory, map_os_errors
from tierfs.engine.chunkstore.protocol import OnReceived, StoredObject
from tierfs.engine.chunkstore.validate import STEP_BYTES, check_etag, check_range, is_relative, past_end

T = TypeVar("T")

# Makes the description of an object from its file's status; decides the etag.
Describe = Callable[[str, os.stat_result], StoredObject]


class FileReader:
    """Regular files of one tree; links, devices and pipes are no objects. Thread-safe."""

    def __init__(self, tree: RootDirectory, describe: Describe) -> None:
        self._tree = tree
        self._describe = describe

    def read_into(
        self, name: str, offset: int, buffer: memoryview, if_match: str | None, progress: OnReceived | None
    ) -> None:
        """See ChunkStorage.read_into; `name` is already checked."""
        with self.open(name) as (fd, status):
            stored = self._describe(name, status)
            check_etag(name, stored.etag, if_match, stored.length_bytes)
            check_range(stored, offset, len(buffer))
            done = 0
            while done < len(buffer):
                with map_os_errors(name):
                    read = os.preadv(fd, [buffer[done : done + STEP_BYTES]], offset + done)
                if not read:
                    raise past_end(name, offset, len(buffer), offset + done)
                done += read
                if progress is not None:
                    progress(done)

    @contextmanager
    def open(self, name: str) -> Iterator[tuple[int, os.stat_result]]:
        """Yield a descriptor and the status of the regular file `name`. Raises NotFound."""
        parent, _, last = name.rpartition("/")
        with map_os_errors(name), self._tree.open_directory(parent) as directory:
            # O_NONBLOCK: a FIFO of that name must not block us.
            fd = os.open(last.encode(), READ_FLAGS | os.O_NONBLOCK, dir_fd=directory)
        try:
            with map_os_errors(name):
                status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode):
                raise NotFound(f"{printable(name)}: not a regular file")
            yield fd, status
        finally:
            os.close(fd)


# Name below the root, and status.
Listed = tuple[str, os.stat_result]


# The wanted entries of a directory, named as "" or ending in a slash: each file's key with what is known of it, and
# each directory's key, which ends in a slash, with None.
ListDirectory = Callable[[str, "WantedNames"], list[tuple[bytes, T | None]]]


@dataclass(frozen=True, slots=True)
class WantedNames:
    """The names a listing selects, as bytes, because names are ordered as bytes."""

    prefix: bytes
    after: bytes
    hidden: frozenset[bytes]

    def may_hold(self, path: bytes) -> bool:
        """Return whether file `path` is wanted, or directory `path`, which ends in a slash, may hold a wanted file."""
        if path in self.hidden:
            return False
        if path.endswith(b"/"):
            below = path.startswith(self.prefix) or self.prefix.startswith(path)
            return below and (path > self.after or self.after.startswith(path))
        return path.startswith(self.prefix) and path > self.after


def walk(list_directory: ListDirectory[T], prefix: str, after: str, hidden: frozenset[str]) -> Iterator[tuple[str, T]]:
    """Yield files whose name starts with `prefix` and is greater than `after`, ascending by bytes.

    `hidden` are directories of the root to leave out.
    """
    start, slash, _ = prefix.rpartition("/")
    if slash and (not is_relative(start) or start.split("/", 1)[0] in hidden):
        return
    wanted = WantedNames(prefix.encode(), after.encode(), frozenset(f"{name}/".encode() for name in hidden))
    yield from _below(list_directory, start + slash, wanted)


def _below(list_directory: ListDirectory[T], directory: str, wanted: WantedNames) -> Iterator[tuple[str, T]]:
    # The slash of a directory's key orders "a-b/x" before "a/x": keys sort as the full names below them do.
    for key, known in sorted(list_directory(directory, wanted), key=lambda entry: entry[0]):
        name = directory + key.decode()
        if known is None:
            yield from _below(list_directory, name, wanted)
        else:
            yield name, known


def list_files(tree: RootDirectory, prefix: str, after: str, hidden: frozenset[str]) -> Iterator[Listed]:
    """Yield regular files whose name starts with `prefix` and is greater than `after`, ascending by bytes.

    `hidden` are directories of the root to leave out. Files that vanish meanwhile are left out too.
    """
    return walk(lambda directory, wanted: _entries(tree, directory, wanted), prefix, after, hidden)


def _entries(tree: RootDirectory, directory: str, wanted: WantedNames) -> list[tuple[bytes, os.stat_result | None]]:
    """Return the wanted entries of one directory: files with status, and directories, whose key ends in a slash."""
    wanted_entries: list[tuple[bytes, os.stat_result | None]] = []
    base = directory.encode()
    with (
        map_os_errors(directory or str(tree.root)),
        suppress(FileNotFoundError, NotADirectoryError),  # removed meanwhile, or never there
        tree.open_directory(directory.rstrip("/")) as fd,
        os.scandir(fd) as entries,
    ):
        for entry in entries:
            key = os.fsencode(entry.name)
            if not _is_utf8(key):
                continue
            if entry.is_dir(follow_symlinks=False):
                if wanted.may_hold(base + key + b"/"):
                    wanted_entries.append((key + b"/", None))
            elif wanted.may_hold(base + key) and entry.is_file(follow_symlinks=False):
                with suppress(FileNotFoundError):
                    wanted_entries.append((key, entry.stat(follow_symlinks=False)))
    return wanted_entries


def _is_utf8(name: bytes) -> bool:
    try:
        name.decode()
    except UnicodeDecodeError:
        return False
    return True


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
