"""Modes of the directories that files are copied from, for the directories of the store that they become."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace

from tierfs.base.system.os_errors import map_os_errors
from tierfs.base.words import names
from tierfs.base.words.errors import InvalidRequest, NotDirectory
from tierfs.base.words.types import (
    EntryKind,
)
from tierfs.engine.metadata import changes, directories
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.tables import DIRECTORIES
from tierfs.engine.metadata.transaction import ReadTransaction, WriteTransaction
from tierfs.engine.segments.create import make_directory

# Others wait for a commit: this one takes some 20 ms (a guess from that of as many segments).
_DIRECTORIES_PER_COMMIT = 256


def name_of_copy(directory: str) -> str:
    """Return the name that `cp -r` gives a copy of the directory; "" where it copies its content alone, as of `d/.`."""
    name = os.path.basename(directory.rstrip("/"))
    return "" if name in (".", "..") else name


class CopiedDirectories:
    """Modes of the directories that files are copied from, for the directories of the store they become.

    Where several become the same one, it has the permissions that all of them give.
    """

    def __init__(self, into: str) -> None:
        self._into = names.split(into)
        self._seen: set[tuple[str, str]] = set()
        self._modes: dict[str, int] = {}

    def add(self, directory: str, path: str, name: str = "") -> None:
        """Note the directories that lead to a path below `directory`, this one included. Raises a TierfsError.

        A path that ends in a slash is a directory itself.

        `name` is that of `directory` below the target; "" if it becomes the target itself.
        """
        while True:
            path = os.path.dirname(path)
            if (directory, path) in self._seen:
                return
            self._seen.add((directory, path))
            with map_os_errors(path):
                mode = os.stat(os.path.join(directory, path)).st_mode
            target = names.join((*self._into, *map(names.from_os, (*names.split(name), *names.split(path)))))
            self._modes[target] = mode & self._modes.get(target, mode)
            if not path:
                return

    def write(self, metadata: MetadataStore) -> None:
        """Give the directories of the store their modes, and make those that are missing.

        To be done before the first file is in one of them: nobody may read it meanwhile.
        """
        with metadata.read() as txn:
            left = sorted(item for item in self._modes.items() if _mode_at(txn, item[0]) != item[1])
        for at in range(0, len(left), _DIRECTORIES_PER_COMMIT):
            with metadata.write() as writer:
                for name, mode in left[at : at + _DIRECTORIES_PER_COMMIT]:
                    with suppress(NotDirectory, InvalidRequest):  # so are the files in it, which tell
                        _note_directory(writer, name, mode)


def _mode_at(txn: ReadTransaction, name: str) -> int | None:
    with suppress(NotDirectory):
        entry = directories.find(txn, name)
        if entry is not None and entry.kind is EntryKind.DIRECTORY:
            return directories.directory(txn, entry.id).mode
    return None


def _note_directory(txn: WriteTransaction, name: str, mode: int) -> None:
    make_directory(txn, name)
    record = replace(directories.directory(txn, directories.must_find(txn, name).id), mode=mode)
    changes.put(txn, DIRECTORIES, record)
    txn.touch(inode=record.inode)
