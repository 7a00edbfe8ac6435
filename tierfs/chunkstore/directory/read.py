"""Read and list files below a held tree as objects. Changes nothing.

A listing is in the order of full names, with one directory in memory at a time.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from tierfs.chunkstore.directory.tree import READ_FLAGS, HeldTree, map_os_errors
from tierfs.chunkstore.protocol import OnReceived, StoredObject
from tierfs.chunkstore.validate import STEP_BYTES, check_etag, check_range, is_relative, past_end
from tierfs.errors import NotFound
from tierfs.names import printable

Describe = Callable[[str, os.stat_result], StoredObject]
"""Makes the description of an object from its file's status; decides the etag."""


class FileReader:
    """Regular files of one tree; links, devices and pipes are no objects. Thread-safe."""

    def __init__(self, tree: HeldTree, describe: Describe) -> None:
        self._tree = tree
        self._describe = describe

    def read_into(
        self, name: str, offset: int, buffer: memoryview, if_match: str | None, progress: OnReceived | None
    ) -> None:
        """See ChunkStorage.read_into; `name` is already checked."""
        with self.open(name) as (fd, status):
            found = self._describe(name, status)
            check_etag(name, found.etag, if_match, found.length_bytes)
            check_range(found, offset, len(buffer))
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
            fd = os.open(last, READ_FLAGS | os.O_NONBLOCK, dir_fd=directory)
        try:
            with map_os_errors(name):
                status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode):
                raise NotFound(f"{printable(name)}: not a regular file")
            yield fd, status
        finally:
            os.close(fd)


Listed = tuple[str, os.stat_result]
"""Name below the root, and status."""


@dataclass(frozen=True, slots=True)
class _Wanted:
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


def list_files(tree: HeldTree, prefix: str, after: str, hidden: frozenset[str]) -> Iterator[Listed]:
    """Yield regular files whose name starts with `prefix` and is greater than `after`, ascending by bytes.

    `hidden` are directories of the root to leave out. Files that vanish meanwhile are left out too.
    """
    start, slash, _ = prefix.rpartition("/")
    if slash and (not is_relative(start) or start.split("/", 1)[0] in hidden):
        return
    wanted = _Wanted(prefix.encode(), after.encode(), frozenset(f"{name}/".encode() for name in hidden))
    yield from _walk(tree, start + slash, wanted)


def _walk(tree: HeldTree, directory: str, wanted: _Wanted) -> Iterator[Listed]:
    """Yield files below `directory`, which is "" or ends in a slash."""
    for key, status in sorted(_entries(tree, directory, wanted), key=lambda entry: entry[0]):
        name = directory + key.decode()
        if status is None:
            yield from _walk(tree, name, wanted)
        else:
            yield name, status


def _entries(tree: HeldTree, directory: str, wanted: _Wanted) -> list[tuple[bytes, os.stat_result | None]]:
    """Return the wanted entries of one directory: files with status, and directories, whose key ends in a slash.

    That slash orders "a-b/x" before "a/x": keys sort as the full names below them do.
    """
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
