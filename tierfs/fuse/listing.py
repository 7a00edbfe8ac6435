"""Listings of directories: where one goes on is a name, but the kernel keeps a number.

The number is the entry's id: never used twice, so names that come and go while a directory is listed
neither repeat nor hide others, and a listing of any size holds a bounded number of names.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Generator

from tierfs.errors import Fenced
from tierfs.metadata import directories, keys
from tierfs.metadata.directories import Entry
from tierfs.metadata.tables import DIRECTORIES
from tierfs.metadata.transaction import ReadTransaction
from tierfs.types import DirectoryId, SegmentId

START = 0
"""The token of the beginning; ids begin above it."""

_NAMES_KEPT = 8192
"""For entries deleted behind the listing's back: more than the kernel takes with one request (measured:
about 25 of them in 4 KiB; libfuse takes 1 MiB at most)."""


class Listing:
    """One open directory."""

    def __init__(self, directory_id: DirectoryId) -> None:
        self._directory_id = directory_id
        self._names: OrderedDict[int, str] = OrderedDict()

    def entries(self, txn: ReadTransaction, token: int) -> Generator[Entry]:
        """Entries in name order behind the one that `token` was given for; START is the beginning.

        Raises Fenced for a token whose entry was deleted long ago.
        """
        after = "" if token == START else self._name_of(txn, token)
        return directories.entries(txn, self._directory_id, after=after)

    def given(self, entry: Entry) -> None:
        """The kernel took an entry, with its id as the token to go on behind it."""
        self._names[entry.id] = entry.name
        self._names.move_to_end(entry.id)
        if len(self._names) > _NAMES_KEPT:
            self._names.popitem(last=False)

    def _name_of(self, txn: ReadTransaction, token: int) -> str:
        name = self._names.get(token)
        if name is not None:
            return name
        found = directories.segment(txn, SegmentId(token)) or txn.get(DIRECTORIES, keys.u64(token))
        if found is None or found.parent_id != self._directory_id:
            raise Fenced("the listing cannot go on: the entry it had come to was deleted")
        return found.name
