"""List files below a root directory in the order of their full names, with one directory in memory at a time."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TypeVar

from tierfs.base.bytes.frozen import dataclass
from tierfs.engine.chunkstore.directory.tree import RootDirectory, map_os_errors
from tierfs.engine.chunkstore.validate import is_relative

T = TypeVar("T")

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
    wanted = WantedNames(prefix.encode(), after.encode(), frozenset([f"{name}/".encode() for name in hidden]))
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
            try:
                key.decode()
            except UnicodeDecodeError:  # no object has such a name
                continue
            if entry.is_dir(follow_symlinks=False):
                if wanted.may_hold(base + key + b"/"):
                    wanted_entries.append((key + b"/", None))
            elif wanted.may_hold(base + key) and entry.is_file(follow_symlinks=False):
                with suppress(FileNotFoundError):
                    wanted_entries.append((key, entry.stat(follow_symlinks=False)))
    return wanted_entries
